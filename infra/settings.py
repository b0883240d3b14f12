"""The settings of an environment, held against the parameters of the templates: all that is known of them without asking AWS."""

import difflib
import json
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Tables and topics first, then readers before writers: what a new writer writes has readers that understand it.
ORDER = [
    "network", "nat", "flow-logs", "data", "data-scaling", "kafka", "cache", "roles", "change-streamer", "recount", "api", "trends", "consumer",
    "scaling", "alarms", "budget",
]  # fmt: skip
# Settings that are no parameter, each with its form: where, under which name, which stacks.
OWN = {
    "Region": (r"[a-z]{2}(-[a-z]+)+-[0-9]", "is the name of a region, such as us-east-1"),
    "Account": (r"[0-9]{12}", "has twelve digits"),
    "Deployment": (r"tally[a-z0-9-]{0,20}", "has to begin with tally, as the roles' policies say, and is short"),
    "Stacks": (r".*", ""),
}
# Found in the account where a setting does not say it.
FOUND = {"Brokers", "KafkaClusterName"}
# What a stack needs beside something else that is set; its own rules say the same, after other stacks have been created.
TOGETHER = [
    ("network", "VpcId", "", "PrivateSubnetIds"),
    ("roles", "Repository", "", "GitHubProviderArn"),
    ("api", "Brokers", "", "WriteTokenSecret"),
    ("api", "KafkaArn", "", "WriteTokenSecret"),
    ("api", "Scheme", "internet-facing", "CertificateArn"),
    ("api", "KafkaLogin", "scram-sha512", "KafkaUser"),
    ("api", "KafkaLogin", "scram-sha512", "KafkaPasswordSecret"),
    ("api", "BlocksTopic", "", "BoardsTopic"),
    ("change-streamer", "KafkaLogin", "scram-sha512", "KafkaUser"),
    ("change-streamer", "KafkaLogin", "scram-sha512", "KafkaPasswordSecret"),
    ("change-streamer", "RegionName", "", "CountsTopic"),
    ("change-streamer", "Remotes", "", "RegionName"),
    ("recount", "KafkaLogin", "scram-sha512", "KafkaUser"),
    ("recount", "KafkaLogin", "scram-sha512", "KafkaPasswordSecret"),
    ("trends", "KafkaLogin", "scram-sha512", "KafkaUser"),
    ("trends", "KafkaLogin", "scram-sha512", "KafkaPasswordSecret"),
    ("consumer", "KafkaLogin", "scram-sha512", "KafkaUser"),
    ("consumer", "KafkaLogin", "scram-sha512", "KafkaPasswordSecret"),
]


class Wrong(Exception):
    """Something has to be put right first; the message is a line for each."""

    code = 78


class Template:
    """A stack's file: its parameters and outputs, read by their place in the text, as all of ours are written."""

    def __init__(self, name):
        self.name, self.file = name, HERE / f"{name}.yaml"
        text = self.file.read_text()
        self.parameters = {parameter: about(body) for parameter, body in entries(section(text, "Parameters"))}
        self.outputs = [output for output, _ in entries(section(text, "Outputs"))]


def section(text, name):
    found = re.search(rf"^{name}:\n((?:[ #].*\n|\n)*)", text, re.MULTILINE)
    return found.group(1) if found else ""


def entries(text):
    """Each name at the first level, with its text."""
    found = {}
    for line in text.splitlines():
        if name := re.match(r"  (\w+):(.*)", line):
            found[name.group(1)] = name.group(2)
        elif line.startswith("    "):
            found[next(reversed(found))] += "\n" + line
    return found.items()


def about(body):
    """What a parameter's text says of it; what it does not say is None."""
    numbers = {key: re.search(rf"\b{key}: *(\d+)", body) for key in ("MinValue", "MaxValue")}
    allowed = re.search(r"\bAllowedValues: *\[([^\]]*)\]", body)
    pattern = re.search(r"\bAllowedPattern: *(\"(?:[^\"\\]|\\.)*\")", body)
    return {
        "default": default(body),
        "description": description(body),
        "number": bool(re.search(r"\bType: *Number\b", body)),
        "allowed": [value.strip().strip('"') for value in allowed.group(1).split(",")] if allowed else None,
        "pattern": json.loads(pattern.group(1)) if pattern else None,
        "least": int(numbers["MinValue"].group(1)) if numbers["MinValue"] else None,
        "most": int(numbers["MaxValue"].group(1)) if numbers["MaxValue"] else None,
    }


def unfit(value, about):
    """Why a value is not one that the parameter takes."""
    if about["allowed"] and value not in about["allowed"]:
        return f"it is one of {', '.join(about['allowed'])}"
    if about["pattern"] and not re.fullmatch(about["pattern"], value):
        return f"it has to fit {about['pattern']}"
    if about["number"]:
        if not re.fullmatch(r"-?[0-9]+", value):
            return "it is a number"
        if about["least"] is not None and int(value) < about["least"]:
            return f"it is at least {about['least']}"
        if about["most"] is not None and int(value) > about["most"]:
            return f"it is at most {about['most']}"
    return None


def default(body):
    found = re.search(r"\bDefault: *(\"[^\"]*\"|[^\s,}]+)", body)
    return found.group(1).strip('"') if found else None


def description(body):
    found = re.search(r"Description: *(?:>-\s*)?(\"[^\"]*\"|[^\n}]+)", body)
    return found.group(1).strip('" ') if found else ""


def read_settings(env):
    file = HERE / "env" / f"{env}.env"
    known = sorted(file.stem for file in (HERE / "env").glob("*.env"))
    if not file.exists():
        raise Wrong(f"there is no environment {env}: infra/env has {', '.join(known) or 'none'}")
    settings, problems = {}, []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            problems.append(f"{file.name}:{number}: write NAME=value, not {line!r}")
        elif name in settings:
            problems.append(f"{file.name}:{number}: {name} is set twice")
        settings[name.strip()] = value.strip()
    if problems:
        raise Wrong("\n".join(problems))
    return {name: value for name, value in settings.items() if value}


def check_settings(env, settings, chosen):
    """What can be known without asking AWS."""
    templates = {name: Template(name) for name in ORDER}
    for checks in CHECKS:
        if problems := [f"{env}.env: {problem}" for check in checks for problem in check(settings, chosen, templates)]:
            raise Wrong("\n".join(problems))


def names_are_known(settings, _, templates):
    every = {parameter for template in templates.values() for parameter in template.parameters}
    own = {f"{name}.{parameter}" for name, template in templates.items() for parameter in template.parameters}
    known = OWN.keys() | {"KafkaArn"} | every | own
    for name in settings:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, 1)
            yield f"no stack has a parameter {name}" + (f": is it {nearest[0]}" if nearest else "")


def what_is_no_parameter_has_its_form(settings, *_):
    if "Region" not in settings:
        yield "Region is missing"
    for name, (form, why) in OWN.items():
        if name in settings and not re.fullmatch(form, settings[name]):
            yield f"{name} {why}"


def nothing_is_missing(settings, chosen, templates):
    outputs, needed = {output for template in templates.values() for output in template.outputs}, {}
    for name in chosen:
        for parameter, about in templates[name].parameters.items():
            found = parameter in FOUND and (settings.get("KafkaArn") or "kafka" in chosen_of(settings))
            there = said(settings, name, parameter) or parameter in outputs or found
            if about["default"] is None and not there:
                needed.setdefault((parameter, about["description"]), []).append(name)
    for (parameter, described), names in needed.items():
        yield f"{', '.join(names)} {'need' if names[1:] else 'needs'} {parameter}: {described}"
    for name, setting, value, needed in TOGETHER:
        own_kafka = setting == "KafkaArn" and "kafka" in chosen_of(settings)
        given = said(settings, name, setting) or own_kafka
        if name in chosen and given and value in ("", given) and not said(settings, name, needed):
            yield f"{name} needs {needed} beside {setting}: {templates[name].parameters[needed]['description']}"


def values_are_what_parameters_take(settings, chosen, templates):
    """AWS says the same of a stack when its turn comes, and others have been created by then."""
    found = {}
    for name in chosen:
        for parameter, about in templates[name].parameters.items():
            setting = f"{name}.{parameter}" if f"{name}.{parameter}" in settings else parameter
            if setting in settings and (why := unfit(settings[setting], about)):
                found.setdefault(setting, f"{setting} is {settings[setting]}: {why} ({about['description'].rstrip('.')})")
    return found.values()


def values_fit_each_other(settings, chosen, templates):
    for name in chosen:
        parameters = templates[name].parameters
        value = {parameter: said(settings, name, parameter) or about["default"] for parameter, about in parameters.items()}
        if "Cpu" in value and not int(value["Cpu"]) * 2 <= int(value["Memory"]) <= int(value["Cpu"]) * 8:
            yield f"{name} has Cpu {value['Cpu']} and Memory {value['Memory']}: Fargate has 2 to 8 MiB for each unit of processor"
        if "Scaled" in value and value["Scaled"] != "true" and "scaling" in chosen_of(settings):
            yield f"{name} is not Scaled, and Stacks has scaling: a release would set its tasks back to TaskCount"
        for most in [parameter for parameter in value if parameter.endswith("AtMost")]:
            least = next(each for each in (most.replace("AtMost", "AtLeast"), most.removesuffix("AtMost")) if each in value)
            if int(value[least]) > int(value[most]):
                yield f"{name} has {least} {value[least]} and {most} {value[most]}: the most is less than the least"


def doubts(settings, chosen):
    """What may be meant, and seldom is."""
    network = "network" in chosen and not said(settings, "network", "VpcId")
    if network and said(settings, "network", "Endpoints") == "false" and "nat" not in chosen_of(settings):
        yield "Endpoints is false, and Stacks has no nat: tasks in the new VPC reach neither the registry nor the tables' stream"


# Those of the second row take for granted that the first has found nothing.
CHECKS = [
    [names_are_known, what_is_no_parameter_has_its_form, nothing_is_missing, values_are_what_parameters_take],
    [values_fit_each_other],
]


def said(settings, name, parameter):
    """A setting of one stack, or of all that have the parameter."""
    return settings.get(f"{name}.{parameter}") or settings.get(parameter)


def chosen_of(settings):
    return settings.get("Stacks", "").split()


def choose(env, settings, only):
    listed = chosen_of(settings)
    if not listed:
        raise Wrong(f"{env}.env: Stacks is missing: some of {' '.join(ORDER)}")
    wanted = only.split(",") if only else listed
    if unknown := [name for name in listed + wanted if name not in ORDER]:
        raise Wrong(f"there is no stack {unknown[0]}: there are {', '.join(ORDER)}")
    return [name for name in ORDER if name in wanted]
