"""What ops/check and ops/drill need of PromQL: its tokens, the series it asks for, and small changes of it."""

import re
from typing import NamedTuple

TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<range>\[[^\]]*\])
    | (?P<duration>\d+(?:ms|[smhdwy])\b)
    | (?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)
    | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<operator>=~|!~|!=|==|>=|<=|[-+*/%^=<>(){},])
    """,
    re.VERBOSE,
)
# What a list of labels in parentheses follows.
LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
WORDS = LISTS | {"and", "or", "unless", "bool", "offset"}
SPANS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "y": 31536000}


class Token(NamedTuple):
    kind: str
    text: str
    at: int


class Selector(NamedTuple):
    """A metric that is asked for, and its matchers as (label, operator, value)."""

    metric: str
    matchers: tuple


def tokens(expression):
    """Every token; what is a metric or a label is of that kind."""
    found, at, braces, listed = [], 0, False, False
    while at < len(expression):
        match = TOKEN.match(expression, at)
        if not match:
            raise ValueError(f"{expression}: what is {expression[at : at + 10]!r}?")
        kind, text = match.lastgroup, match.group()
        if text in "{}" and kind == "operator":
            braces = text == "{"
        elif text == "(" and kind == "operator":
            listed = bool(found) and found[-1].text in LISTS
        elif text == ")" and kind == "operator":
            listed = False
        if kind == "name":
            called = expression[match.end() :].lstrip().startswith("(")
            if braces or listed:
                kind = "label"
            elif text in WORDS:
                kind = "word"
            elif called or re.match(r"\s+(by|without)\b", expression[match.end() :]):
                kind = "function"
            else:
                kind = "metric"
        if kind != "space":
            found.append(Token(kind, text, at))
        at = match.end()
    return found


def selectors(expression):
    """Every selector of an expression."""
    found, every = tokens(expression), []
    for nth, token in enumerate(found):
        if token.kind != "metric":
            continue
        matchers, at = [], nth + 1
        if at < len(found) and found[at].text == "{":
            while found[at].text != "}":
                if found[at].kind == "label":
                    matchers.append((found[at].text, found[at + 1].text, found[at + 2].text[1:-1]))
                at += 1
        every.append(Selector(token.text, tuple(matchers)))
    return every


def grouped(expression):
    """The labels that are named outside of selectors."""
    found, named, braces = tokens(expression), set(), False
    for token in found:
        if token.text in "{}":
            braces = token.text == "{"
        if token.kind == "label" and not braces:
            named.add(token.text)
    return named


def seconds(span):
    """The length of `5m` or `1h30m`."""
    return sum(float(count) * SPANS[unit] for count, unit in re.findall(r"(\d+)(ms|[smhdwy])", span))


def span(length):
    """`seconds` the other way round, in whole seconds where it can be."""
    return f"{int(length)}s" if length == int(length) else f"{int(length * 1000)}ms"


def mutants(expression):
    """(what was changed, the expression so changed) for each small change that makes it another one."""
    found = tokens(expression)

    def put(token, text):
        return expression[: token.at] + text + expression[token.at + len(token.text) :]

    for nth, token in enumerate(found):
        if token.kind == "number" and not is_factor_one(found, nth):
            number = float(token.text)
            others = [number + 1, number - 1] if number == 0 else [number * 1.1, number * 0.9]
            for other in others:
                yield f"{token.text} -> {other:g}", put(token, f"({other:.10g})")
        elif token.kind == "range":
            yield from ranges(token, put)
        elif token.kind == "metric":
            yield f"{token.text} -> another metric", put(token, f"{token.text}_x")
        elif token.kind == "function":
            for other in OTHERS.get(token.text, ()):
                yield f"{token.text} -> {other}", put(token, other)
        elif token.kind == "word" and token.text in ("and", "or"):
            for other in {"and", "or", "unless"} - {token.text}:
                yield f"{token.text} -> {other}", put(token, other)
        elif token.kind == "operator" and token.text in COMPARED:
            if inside_braces(found, nth):
                yield f"{found[nth - 1].text}{token.text} -> {NEGATED[token.text]}", put(token, NEGATED[token.text])
                yield from without_matcher(expression, found, nth)
            else:
                for other in COMPARED[token.text]:
                    yield f"{token.text} -> {other}", put(token, other)
        elif token.kind == "operator" and token.text in ARITHMETIC:
            yield f"{token.text} -> {ARITHMETIC[token.text]}", put(token, ARITHMETIC[token.text])
        elif token.kind == "word" and token.text == "by":
            closing = next(other for other in found[nth:] if other.text == ")")
            yield "by (..) -> nothing", expression[: token.at] + expression[closing.at + 1 :]


OTHERS = {
    "sum": ("max", "min", "avg"),
    "max": ("min", "sum", "avg"),
    "min": ("max", "sum", "avg"),
    "count": ("max",),
    "rate": ("increase", "delta"),
    "increase": ("rate", "delta"),
    "max_over_time": ("min_over_time",),
    "avg_over_time": ("max_over_time", "min_over_time"),
    "absent": ("count",),
}
COMPARED = {">": (">=", "<"), "<": ("<=", ">"), "==": ("!=", ">", "<"), "=": (), "!=": (), "=~": (), "!~": ()}
NEGATED = {"=": "!=", "!=": "=", "=~": "!~", "!~": "=~"}
ARITHMETIC = {"*": "/", "/": "*", "-": "+", "+": "-"}


def is_factor_one(found, nth):
    """Whether a number is the whole that a share is taken from; that is changed by the signs beside it."""
    return found[nth].text == "1" and nth + 1 < len(found) and found[nth + 1].text == "-"


def inside_braces(found, nth):
    opened = [token.text for token in found[:nth] if token.text in "{}"]
    return bool(opened) and opened[-1] == "{"


def without_matcher(expression, found, nth):
    first, last = found[nth - 1], found[nth + 1]
    begin, end = first.at, last.at + len(last.text)
    if expression[end] == ",":
        end += 1
    elif expression[begin - 1] == ",":
        begin -= 1
    yield f"without {first.text}", expression[:begin] + expression[end:]


def ranges(token, put):
    length, _, step = token.text[1:-1].partition(":")
    for other in (seconds(length) * 2, seconds(length) / 2):
        text = f"[{span(other)}{':' + step if step else ''}]"
        yield f"{token.text} -> {text}", put(token, text)
