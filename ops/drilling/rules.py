"""The shipped rules, shortened: the one place where the drill's rules differ from those of production."""

import copy
import re

import promql

# A span up to the first is the second, in seconds. They rise together, so an order of two spans stays that order.
SHORT = [("1m", 3), ("5m", 6), ("10m", 8), ("30m", 10), ("1h", 12), ("6h", 18), ("3d", 20), ("7d", 24), ("100d", 30)]
# Alerts whose cause is seen less often than the spans above are long: so many times as long. While no broker answers, a client
# says so every half minute. Lists of a deployment that is well are some seconds old.
LONGER = {"TallyKafkaErrors": 6, "TallyListsBehind": 4}
# The units of what is compared with an age.
AGES = {"seconds", "timestamp"}


def short(length):
    """A span in seconds, shortened."""
    return next(to for of, to in SHORT if length <= promql.seconds(of))


def shortened(path):
    """The rules of a file with `for`, ranges and ages shortened."""
    import yaml

    rules = copy.deepcopy(yaml.safe_load(path.read_text()))
    ages = gauges_of_ages(path.parent.parent.parent)
    for group in rules["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            times = LONGER.get(rule.get("alert"), 1)
            rule["expr"] = expression(rule["expr"], ages, times)
            if "for" in rule:
                rule["for"] = f"{times * short(promql.seconds(rule['for']))}s"
    return rules


def expression(text, ages, times=1):
    """An expression with its ranges shortened and, where all it asks for is ages, what they are compared with."""
    found = promql.tokens(text)
    is_of_ages = all(metric in ages for metric, _ in promql.selectors(text))
    for nth in reversed(range(len(found))):
        token = found[nth]
        new = None
        if token.kind == "range":
            length, colon, _ = token.text[1:-1].partition(":")
            new = f"[{times * short(promql.seconds(length))}s{':1s' if colon else ''}]"
        elif token.kind == "number" and is_of_ages and float(token.text) >= 60 and found[nth - 1].text in (">", "<"):
            new = str(times * short(float(token.text)))
        if new:
            text = text[: token.at] + new + text[token.at + len(token.text) :]
    return text


def gauges_of_ages(root):
    """The gauges that are an age or a moment, by the snapshots of the services' tests."""
    found = set()
    for file in root.glob("*/src/snapshots/*metrics__tests__*.snap"):
        for name, unit in re.findall(r"^(tally_\w+){[^}]*} gauge, (\w+):", file.read_text(), re.MULTILINE):
            if unit in AGES:
                found.add(name)
    return found
