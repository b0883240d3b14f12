#!/usr/bin/env python3
"""Writes docs/reference.md: every flag, command, route and metric, from the snapshots that the tests hold against the programs.

    docs/reference.py            writes the page
    docs/reference.py --check    exits with 1 if the page is another one
"""

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference.md"
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
    """The help of a program and of each of its verbs: (usage, what it does, arguments and flags)."""
    path = next((ROOT / crate / "src/snapshots").glob("*help_is_the_reference.snap"))
    for part in re.split(r"\n\n\n", snapshot(path)):
        about, _, rest = part.strip().partition("\nUsage: ")
        usage, _, body = rest.partition("\n")
        yield usage.strip(), brief(about.split("\n\n")[0]), list(flags(body))


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
    yield "The verbs, each with its other flags, which its `--help` explains. One that finds something wrong exits with 1."
    yield ""
    for usage, about, own in verbs:
        usage = usage.replace(" [OPTIONS]", "")
        rest = [flag.name.split()[0] for flag in own if flag not in shared and flag.name.startswith("-")]
        rest = [f"`{name}`" for name in rest if f"{name} " not in usage]
        yield f"- `{usage}`: {about}" + (f". {', '.join(rest)}" if rest else "")
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
    yield "## Metrics"
    yield ""
    yield "Those that end with `_total` are counters."
    catalogues = {"every process": [ROOT / "service/src/metrics.rs"]}
    catalogues |= {crate: (ROOT / crate / "src/snapshots").glob("tally_*metrics__tests__the_catalogue*.snap") for crate in SERVICES}
    for crate, paths in catalogues.items():
        yield ""
        yield f"Of {crate}:"
        yield ""
        for path in paths:
            for name, labels, kind, text in re.findall(r"(?m)^ *(tally_\w+)\{(.*?)\} (\w+), \w+: (.*)$", path.read_text("utf-8")):
                kind = "" if name.endswith("_total") and kind == "counter" else f" ({kind})"
                yield f"- `{name}" + (f"{{{labels}}}" if labels else "") + f"`{kind}: {text}"


def page():
    yield "# Reference"
    yield ""
    yield "Written by `docs/reference.py` from what the tests hold against the programs; `--help` says more. The variable of a"
    yield "flag is its name in capitals, `TALLY_LOG_FORMAT` for `--log-format`, unless another one or *no variable* is named."
    yield "Defaults are in brackets. A secret as a flag is visible to other users of the machine: prefer the variable or the file."
    yield ""
    yield from services()
    yield from command()
    yield from routes()
    yield from metrics()


def main():
    text = "\n".join(page()).rstrip() + "\n"
    if sys.argv[1:] == ["--check"]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    if sys.argv[1:]:
        print(__doc__)
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
