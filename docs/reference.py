#!/usr/bin/env python3
"""Writes docs/reference.md: every flag, command and route, from the snapshots that the tests hold against the programs.
And docs/laws.md: which rules the tests hold, and which test fails without each. A rule that no test leaves out is an error.

    docs/reference.py            writes the pages
    docs/reference.py --check    exits with 1 if a page is another one
"""

import argparse
import json
import re
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SERVICES = ["consumer", "change-streamer", "batch-recount", "count-api", "trends"]
# A flag that so many programs or verbs have stands in a list of its own.
SHARED = 3
OF_CLAP = {"--help", "--version"}
# Sentences behind the first one that the page has as well; the help has all.
KEPT = re.compile("By default|Needs|Without|From then on")


@dataclass(frozen=True)
class Flag:
    name: str
    text: str
    variable: str
    default: str

    def line(self, note="", default=None):
        """What the page says of it: a variable only where it is not the flag's name, a default only where there is one."""
        default = self.default if default is None else default
        usual = "TALLY_" + self.name.split()[0].strip("-").replace("-", "_").upper()
        said = {"": "no variable", usual: ""}.get(self.variable, f"`{self.variable}`")
        said = ", ".join(filter(None, (default and f"`{default}`", said)))
        return f"- `{self.name}`" + (f" ({said})" if said else "") + f": {self.text}" + (f". {note}" if note else "")


def snapshot(path):
    return path.read_text(encoding="utf-8").split("---\n", 2)[2]


def brief(text):
    """The first sentence of a help text, and those of its others that the page has."""
    first, *rest = re.split(r"\.(?: |$)", " ".join(text.split()))
    return ". ".join([first, *(sentence for sentence in rest if KEPT.match(sentence))])


def helps(crate):
    """The help of a program and of each of its verbs: (usage, what it does, arguments and flags). What verbs share stands once, at
    the end, and each names what it has of that; the program's own flags are each verb's."""
    path = next((ROOT / crate / "src/snapshots").glob("*help_is_the_reference.snap"))
    parts = [part.strip() for part in re.split(r"\n\n\n", snapshot(path))]
    groups = {match[1]: list(flags(part)) for part in parts if (match := re.match(r"\.\.\. (.*):\n", part))}
    everywhere = []
    for part in parts:
        if part.startswith("... "):
            continue
        about, _, rest = part.partition("\nUsage: ")
        usage, _, body = rest.partition("\n")
        own = list(flags(body))
        shared = [flag for name in re.findall(r"(?m)^\.\.\. and (.*)$", body) for flag in groups[name]]
        yield usage.strip(), brief(about.split("\n\n")[0]), everywhere + own + shared
        everywhere = everywhere or own


def flags(body):
    head = r"^ {2,6}(?:-\w, )?(?:--[\w-]+|<)"
    for block in re.findall(rf"(?ms)({head}[^\n]*)\n(.*?)(?={head}|^\S|\Z)", body):
        name, text = re.sub(r"^-\w, ", "", block[0].strip()), block[1]
        if name.split()[0] in OF_CLAP:
            continue
        found = {key: (re.search(rf"\[{key}: (.*?)\]", text) or ["", ""])[1] for key in ("env", "default")}
        text = re.sub(r"\[(env|default): .*?\]", "", text)
        values = re.findall(r"(?m)^ +- ([\w-]+):", text)
        text = re.sub(r"(?s)Possible values:.*", "", text)
        text = brief(text) + (f". One of {', '.join(f'`{value}`' for value in values)}" if values else "")
        yield Flag(name, text, found["env"].rstrip("="), found["default"])


def services():
    all_flags = {crate: next(helps(crate))[2] for crate in SERVICES}
    # A flag is the same if only its default is another one.
    same = lambda flag: replace(flag, default="")
    having = {}
    for crate, own in all_flags.items():
        for flag in own:
            having.setdefault(same(flag), {})[crate] = flag.default
    shared = {flag: of for flag, of in having.items() if len(of) >= SHARED}
    yield "## Flags of several services"
    yield ""
    for flag, of in shared.items():
        note = "" if len(of) == len(SERVICES) else f"Of {', '.join(of)}"
        if len(set(of.values())) > 1:
            note = f"By default {', '.join(f'`{default}` ({crate})' for crate, default in of.items())}"
        yield flag.line(note, "" if note.startswith("By") else next(iter(of.values())))
    yield ""
    for crate in SERVICES:
        usage, about, own = next(helps(crate))
        yield f"## {usage.split()[0]}"
        yield ""
        yield f"{about}."
        yield ""
        yield from (flag.line() for flag in own if same(flag) not in shared)
        yield ""


def command():
    verbs = [verb for verb in helps("cli") if "<COMMAND>" not in verb[0]]
    count = Counter(flag for *_, own in verbs for flag in own)
    shared = [flag for flag, times in count.items() if times >= SHARED]
    # What the services' lists explain already.
    known = {(flag.name, flag.variable) for crate in SERVICES for flag in next(helps(crate))[2]}
    yield "## tally"
    yield ""
    names = ", ".join(f"`{flag.name.split()[0]}`" for flag in shared if (flag.name, flag.variable) in known)
    yield f"A verb has those of these flags that apply to it: {names}, which are as above, and"
    yield ""
    yield from (flag.line() for flag in shared if (flag.name, flag.variable) not in known)
    yield ""
    yield "The verbs; `--help` has their other flags. One that finds something wrong exits with 1."
    yield ""
    for usage, about, _ in verbs:
        yield f"- `{usage.replace(' [OPTIONS]', '')}`: {about}"
    yield ""


def routes():
    path = next((ROOT / "count-api/tests/api/snapshots").glob("*openapi*.snap"))
    paths = json.loads(snapshot(path))["paths"]
    yield "## Routes of the count-api"
    yield ""
    yield "`/openapi.json` has parameters, answers and errors, and `/docs` shows them. The routes of a post's counters are also"
    yield "there for a hashtag: `/v1/hashtags/{hashtag}/counters..`."
    yield ""
    for route, methods in paths.items():
        if route.replace("/hashtags/{hashtag}/", "/posts/{post_id}/") in set(paths) - {route}:
            continue
        for method, operation in methods.items():
            if method in ("get", "put", "post", "delete", "head"):
                yield f"- `{method.upper()} {route}`: {operation['summary']}"
    yield ""


def metrics():
    """Keeps the section as it is: it is written by hand, and each service's tests compare it with the service."""
    page = (ROOT / "docs/reference.md").read_text("utf-8")
    yield from page[page.index("## Metrics\n"):].splitlines()


def reference():
    yield "# Reference"
    yield ""
    yield "Written by `docs/reference.py` from what the tests hold against the programs; `--help` says more. The metrics are"
    yield "written by hand, and each service's tests compare them with the service. The variable of a flag is its name in"
    yield "capitals, `TALLY_LOG_FORMAT` for `--log-format`, unless another one or *no variable* is named."
    yield "Defaults are in brackets. A secret as a flag is visible to other users of the machine: prefer the variable or the file."
    yield ""
    yield from services()
    yield from command()
    yield from routes()
    yield from metrics()


# ---- docs/laws.md -----------------------------------------------------------------------------------------------------

MODELS = ROOT / "core/tests/laws/models"
PROPERTIES = ROOT / "core/tests/laws/properties"
MUTANTS = ROOT / "e2e/src/simulation/mutant.rs"
SEEDS = ROOT / "e2e/seeds.txt"
# What each model is about, in the order of the data.
MODELED = {
    "rows": "Events become rows: two consumers, late and repeated requests, refused events, expiring tombstones.",
    "cells": "Sums: what one Kafka partition adds to one counter.",
    "relay": "The table's stream is copied into the log `changes` by two relays; the log may lose messages.",
    "counts": "The log becomes counts: two relays, two folds, two recounts, edits by hand, losses.",
    "regrown": "The log loses its end, and other messages take their place.",
    "cached": "The cache of one partition: two folds, readers that fill, failover, expiry at any time.",
    "honest": "What answers may claim, from the change of a row to the answer of the API.",
    "regions": "Another Region's counters: folds that publish, a compacted topic, a mirror, readers, and the answer.",
}

INTRO = """# Laws

What the tests hold, and which test fails without each rule, written by `docs/reference.py`. The words are explained in [ARCHITECTURE.md](../ARCHITECTURE.md#glossary).

## Models

A model runs the functions that ship through every order of events in a small world, in which requests may be lost, late or \
repeated. With every rule kept, the laws hold in each state. Then a test leaves one rule out, and the model has to find a state that \
breaks a law. `cargo test -p tally-core --test laws` runs models and properties.
"""
PROPERTIES_INTRO = """## Properties

Held for random inputs by proptest, in `core/tests/laws/properties`.
"""
SIMULATION = """
## Mutants of the whole pipeline

`tally-e2e simulate` runs the whole pipeline in one process, in virtual time, with faults drawn from a seed. A mutant is the same \
pipeline with one rule broken from outside: at a port, on the wire or by a clock. A law has to fail for each. `--mutants` runs \
all of them; those in bold also run in every change, with the seeds of `e2e/seeds.txt`. `--help` says what each breaks.
"""


def docs(text):
    """The names of an enum's variants, each with its doc comment and its attributes, as one line."""
    found = re.findall(r"((?:^ +///.*\n)+)((?:^ +#\[.*\n)*)^ +(\w+),\n", text, re.MULTILINE)
    return [(name, re.sub(r"\s*\n?\s*///\s*", " ", doc).strip(), attributes) for doc, attributes, name in found]


def body_of(text, enum):
    return re.search(rf"enum {enum} \{{\n(.*?)^\}}", text, re.MULTILINE | re.DOTALL)[1]


def tests(text):
    """The name and body of each test."""
    return re.findall(r"#\[test\]\s+fn (\w+)\((.*?)^ *\}\n", text, re.MULTILINE | re.DOTALL)


def plain(text):
    """A rule without how a mutant breaks it."""
    return re.split(r": a mutant\b", text)[0].rstrip(".")


def failures(rule, test, body):
    """What happens without a rule, as a case of the test says behind it, or the test's name."""
    if re.search(rf"\bRule::{rule}\b", body):
        yield from re.findall(rf'\bRule::{rule}\b.*"(.+)"\),$', body, re.MULTILINE) or [f"`{test}`"]


def model(name):
    text, runs = (MODELS / name / "mod.rs").read_text(), tests((MODELS / name / "tests.rs").read_text())
    rules = [(rule, doc) for rule, doc, _ in docs(body_of(text, "Rule"))]
    needed_by = {rule: [found for run in runs for found in failures(rule, *run)] for rule, _ in rules}
    if untested := [rule for rule, by in needed_by.items() if not by]:
        sys.exit(f"{MODELS / name}: no test leaves out {', '.join(untested)}")
    yield f"### `{name}`\n\n{MODELED[name]}\n"
    yield "Holds: " + ", ".join(f"`{test}`" for test, body in runs if "Rule::" not in body) + ".\n"
    common = " or ".join(f"`{test}`" for test, _ in runs if test.startswith("each_rule_"))
    shown = f"what happens without it (tested by {common}), or " if common else ""
    yield f"Rules. After each: {shown}the test that leaves it out.\n"
    yield from (f"- {plain(doc)}: {', '.join(needed_by[rule])}" for rule, doc in rules)
    yield ""


def properties():
    yield PROPERTIES_INTRO
    for path in sorted(PROPERTIES.glob("*.rs")):
        if found := tests(path.read_text()):
            yield f"- `{path.stem}`: " + ", ".join(f"`{test}`" for test, _ in found)


def simulation():
    seeded = {line.rsplit(" ", 2)[0] for line in SEEDS.read_text().splitlines() if not line.startswith("#")}
    yield SIMULATION
    names = []
    for variant, _, attributes in docs(body_of(MUTANTS.read_text(), "Mutant")):
        named = re.search(r'name = "(.*?)"', attributes)
        name = named[1] if named else re.sub(r"(?<!^)(?=[A-Z])", "-", variant).lower()
        bold = "**" if name in seeded else ""
        names.append(f"{bold}`{name}`{bold}")
    yield ", ".join(names) + "."


def wrapped(line):
    """A line of prose at most 120 wide."""
    return textwrap.fill(line, 120, subsequent_indent="  " * line.startswith("- "), break_long_words=False, break_on_hyphens=False)


def laws():
    if set(MODELED) != {path.parent.name for path in MODELS.glob("*/mod.rs")}:
        sys.exit(f"{MODELS}: the models are not those that docs/reference.py knows")
    parts = [INTRO]
    for name in MODELED:
        parts += model(name)
    parts += [*properties(), *simulation()]
    lines = "\n".join(parts).splitlines()
    return "\n".join(wrapped(line) for line in lines) + "\n"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true")
    check = options.parse_args().check
    pages = {"reference": "\n".join(reference()).rstrip() + "\n", "laws": laws()}
    for name, text in pages.items():
        path = ROOT / f"docs/{name}.md"
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"docs/{name}.md is stale: run docs/reference.py")


if __name__ == "__main__":
    main()
