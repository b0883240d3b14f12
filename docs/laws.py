#!/usr/bin/env python3
"""Writes docs/laws.md: which rules the tests hold, and which test fails without each.

    docs/laws.py           writes it
    docs/laws.py --check   writes nothing, and exits with 1 where it is stale; .ci/shape runs this

Everything comes from the tests themselves: the models and properties of core/tests/laws, the mutants of the simulation and
the schedules of e2e/seeds.txt. A rule that no test leaves out is an error.
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/laws.md"
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
}

INTRO = """# Laws

What the tests hold, and which test fails without each rule, written by `docs/laws.py`. The words are explained in [ARCHITECTURE.md](../ARCHITECTURE.md#glossary).

## Models

A model runs the functions that ship through every order of events in a small world, in which requests may be lost, late or \
repeated. With every rule kept, the laws hold in each state. Then a test leaves one rule out, and the model has to find a state that \
breaks a law: below, each rule stands beside its test. `cargo test -p tally-core --test laws` runs models and properties.
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


def model(name):
    text, runs = (MODELS / name / "mod.rs").read_text(), tests((MODELS / name / "tests.rs").read_text())
    rules = [(rule, doc) for rule, doc, _ in docs(body_of(text, "Rule"))]
    needed_by = {rule: [test for test, body in runs if re.search(rf"\bRule::{rule}\b", body)] for rule, _ in rules}
    if untested := [rule for rule, by in needed_by.items() if not by]:
        sys.exit(f"{MODELS / name}: no test leaves out {', '.join(untested)}")
    yield f"### `{name}`\n\n{MODELED[name]}\n"
    yield "Holds: " + ", ".join(f"`{test}`" for test, body in runs if "Rule::" not in body) + ".\n"
    yield "Rules:\n"
    yield from (f"- {plain(doc)}: {', '.join(f'`{test}`' for test in needed_by[rule])}" for rule, doc in rules)
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


def page():
    if set(MODELED) != {path.parent.name for path in MODELS.glob("*/mod.rs")}:
        sys.exit(f"{MODELS}: the models are not those that docs/laws.py knows")
    parts = [INTRO]
    for name in MODELED:
        parts += model(name)
    parts += [*properties(), *simulation()]
    lines = "\n".join(parts).splitlines()
    return "\n".join(wrapped(line) for line in lines) + "\n"


def main():
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != page():
            sys.exit("docs/laws.md is stale: run docs/laws.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
