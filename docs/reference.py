#!/usr/bin/env python3
"""Writes docs/reference.md: every flag, command, route and metric, from the snapshots that the tests hold against the programs.

    docs/reference.py            writes the page
    docs/reference.py --check    exits with 1 if the page is another one
"""

import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference.md"
SERVICES = ["consumer", "change-streamer", "batch-recount", "count-api", "trends"]
# A flag that so many programs or verbs have stands in a table of its own.
SHARED = 3
OF_CLAP = {"--help", "--version"}


@dataclass(frozen=True)
class Flag:
    name: str
    text: str
    variable: str
    default: str

    def row(self, *more):
        cells = [f"`{self.name}`", f"`{self.variable}`" if self.variable else "", f"`{self.default}`" if self.default else "", *more, self.text]
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def snapshot(path):
    return path.read_text(encoding="utf-8").split("---\n", 2)[2]


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
        yield usage.strip(), " ".join(about.split("\n\n")[0].split()), everywhere + own + shared
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
        text = " ".join(text.split()) + (f". One of {', '.join(f'`{value}`' for value in values)}" if values else "")
        yield Flag(name, text, found["env"].rstrip("="), found["default"])


def table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *rows, ""]


def services():
    all_flags = {crate: next(helps(crate))[2] for crate in SERVICES}
    count = Counter(flag for each in all_flags.values() for flag in each)
    shared = [flag for flag in dict.fromkeys(flag for each in all_flags.values() for flag in each) if count[flag] >= SHARED]
    yield "## Flags of several services"
    yield ""
    having = lambda flag: "all" if count[flag] == len(SERVICES) else ", ".join(crate for crate in SERVICES if flag in all_flags[crate])
    yield from table(["flag", "variable", "default", "of", ""], (flag.row(having(flag)) for flag in shared))
    for crate in SERVICES:
        usage, about, own = next(helps(crate))
        yield f"## {usage.split()[0]}"
        yield ""
        yield f"{about}."
        yield ""
        yield from table(["flag", "variable", "default", ""], (flag.row() for flag in own if flag not in shared))


def command():
    verbs = [verb for verb in helps("cli") if "<COMMAND>" not in verb[0]]
    count = Counter(flag for *_, own in verbs for flag in own)
    shared = [flag for flag, times in count.items() if times >= SHARED]
    yield "## tally"
    yield ""
    yield "Every verb has those of these flags that apply to it:"
    yield ""
    yield from table(["flag", "variable", "default", ""], (flag.row() for flag in shared))
    yield from table(
        ["command", "does", "flags of its own"],
        (
            f"| `{usage.removesuffix(' [OPTIONS]').replace(' [OPTIONS]', '')}` | {about} | "
            + ", ".join(f"`{flag.name}`" for flag in own if flag not in shared and flag.name.startswith("-")).replace("|", "\\|")
            + " |"
            for usage, about, own in verbs
        ),
    )


def routes():
    path = next((ROOT / "count-api/tests/api/snapshots").glob("*openapi*.snap"))
    document = json.loads(snapshot(path))
    yield "## Routes of the count-api"
    yield ""
    yield "`/openapi.json` has parameters, answers and errors, and `/docs` shows them."
    yield ""
    yield from table(
        ["route", ""],
        (
            f"| `{method.upper()} {route}` | {operation['summary']} |"
            for route, methods in document["paths"].items()
            for method, operation in methods.items()
            if method in ("get", "put", "post", "delete", "head")
        ),
    )


def metrics():
    yield "## Metrics"
    yield ""
    catalogues = {"every process": [ROOT / "service/src/metrics.rs"]}
    catalogues |= {crate: (ROOT / crate / "src/snapshots").glob("tally_*metrics__tests__the_catalogue*.snap") for crate in SERVICES}
    for crate, paths in catalogues.items():
        found = [line for path in paths for line in re.findall(r"(?m)^ *(tally_\w+)\{(.*?)\} (\w+), \w+: (.*)$", path.read_text("utf-8"))]
        yield f"Of {crate}:"
        yield ""
        name = lambda metric, labels: f"{metric}{{{labels}}}".removesuffix("{}").replace("|", "\\|")
        yield from table(["metric", "kind", ""], (f"| `{name(metric, labels)}` | {kind} | {text} |" for metric, labels, kind, text in found))


def page():
    yield "# Reference"
    yield ""
    yield "Written by `docs/reference.py` from what the tests hold against the programs. A flag's variable may be set in its place."
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
