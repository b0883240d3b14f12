"""What every template of Tally has to keep, beyond what linters know. Each rule says what breaks without it.

A rule is a function over all templates, by their names; it yields a line for each thing that is wrong.
"""

import json
import re
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
HELP = "src/snapshots/tally_{}__args__tests__help_is_the_reference.snap"
# The services by their containers' names.
SERVICES = {"consumer", "change-streamer", "batch-recount", "count-api", "trends"}
# Calls that know no resource.
EVERYWHERE = {"ecr:GetAuthorizationToken", "dynamodb:DescribeLimits", "dynamodb:ListTables"}
# What all who have it are told by the same parameter.
TOLD = {
    "TALLY_TOPIC": "Topic", "TALLY_CHANGES_TOPIC": "ChangesTopic", "TALLY_BOARDS_TOPIC": "BoardsTopic", "TALLY_BLOCKS_TOPIC": "BlocksTopic",
    "TALLY_COUNTS_TOPIC": "CountsTopic",
}  # fmt: skip
SECRET = re.compile(r"TOKEN|PASSWORD|REDIS$")


class Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms, written out in their long ones."""


def short_form(loader, tag, node):
    name = tag if tag in ("Ref", "Condition") else f"Fn::{tag}"
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        return {name: value.split(".", 1) if tag == "GetAtt" else value}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: loader.construct_mapping(node, deep=True)}


Loader.add_multi_constructor("!", short_form)


def read(folder=HERE):
    return {file.stem: yaml.load(file.read_text(), Loader) for file in sorted(folder.glob("*.yaml"))}


# ---- what rules look at ------------------------------------------------------------------------------------------------


def resources(templates, kind):
    """(where, resource) of each resource of a type."""
    for name, template in templates.items():
        for logical, resource in template.get("Resources", {}).items():
            if re.fullmatch(kind, resource["Type"]):
                yield f"{name}.yaml: {logical}", resource


def containers(templates):
    for where, task in resources(templates, "AWS::ECS::TaskDefinition"):
        for container in task["Properties"]["ContainerDefinitions"]:
            yield f"{where}: {container['Name']}", container


def pairs(container, field="Environment"):
    """The variables of a container, those under a condition too: (name, value or reference)."""
    for entry in container.get(field, []):
        for each in entry["Fn::If"][1:] if "Fn::If" in entry else [entry]:
            if "Name" in each:
                yield each["Name"], each.get("Value", each.get("ValueFrom"))


def statements(templates):
    """Each statement of a policy: of roles, of what stands by itself, and of resources."""
    for name, template in templates.items():
        for logical, resource in template.get("Resources", {}).items():
            yield from statements_in(f"{name}.yaml: {logical}", resource.get("Properties", {}))


def statements_in(where, value):
    if isinstance(value, dict):
        if "Effect" in value:
            yield where, value
        for inner in value.values():
            yield from statements_in(where, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from statements_in(where, inner)


def listed(value):
    return value if isinstance(value, list) else [] if value is None else [value]


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", str(text)).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


# ---- data --------------------------------------------------------------------------------------------------------------


def tables_are_kept(templates):
    """A table that goes takes the likes with it."""
    for where, table in resources(templates, "AWS::DynamoDB::.*"):
        for policy in ("DeletionPolicy", "UpdateReplacePolicy"):
            if table.get(policy) != "Retain":
                yield f"{where}: {policy} is not Retain"
        properties, template = table["Properties"], templates[where.split(".yaml")[0]]
        recovery = properties.get("PointInTimeRecoverySpecification", {})
        if not is_on(properties.get("DeletionProtectionEnabled"), template):
            yield f"{where}: DeletionProtectionEnabled is not on"
        if not is_on(recovery.get("PointInTimeRecoveryEnabled"), template):
            yield f"{where}: PointInTimeRecoverySpecification is not on"


def is_on(value, template):
    """Whether a value is true where no parameter is given."""
    if isinstance(value, dict) and "Ref" in value:
        return is_on(template["Parameters"][value["Ref"]].get("Default"), template)
    if isinstance(value, dict) and "Fn::If" in value:
        condition, then, otherwise = value["Fn::If"]
        given, wanted = template["Conditions"][condition]["Fn::Equals"]
        default = template["Parameters"][given["Ref"]].get("Default")
        return is_on(then if default == wanted else otherwise, template)
    return str(value).lower() == "true"


def the_index_that_keeps_row_keys_whole_stays(templates):
    """Made with its table alone: a template without it, or with another, would replace the table."""
    pin = {
        "IndexName": "pin",
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "pin", "KeyType": "RANGE"}],
        "Projection": {"ProjectionType": "KEYS_ONLY"},
    }
    for where, table in resources(templates, "AWS::DynamoDB::Table"):
        if table["Properties"]["TableName"] == {"Fn::Sub": "${TablePrefix}likes"}:
            if table["Properties"].get("LocalSecondaryIndexes") != [pin]:
                yield f"{where}: its local index is not pin, as it was created"
            if table["Properties"].get("StreamSpecification") != {"StreamViewType": "NEW_AND_OLD_IMAGES"}:
                yield f"{where}: its stream does not carry both images"


def tombstones_expire(templates):
    """A removal leaves a row with the second at which it may go: without expiry the table keeps them for ever."""
    for where, table in resources(templates, "AWS::DynamoDB::Table"):
        is_likes = table["Properties"]["TableName"] == {"Fn::Sub": "${TablePrefix}likes"}
        if is_likes and table["Properties"].get("TimeToLiveSpecification") != {"AttributeName": "gone", "Enabled": True}:
            yield f"{where}: its rows do not expire by `gone`"


def topics_and_tables_are_not_replaced(templates, policy=None):
    """PartitionCount is updated "without interruption", which breaks the order of keys: a stack policy refuses it."""
    policy = policy or json.loads((HERE / "stack-policy.json").read_text())
    denied = {}
    for statement in policy["Statement"]:
        if statement["Effect"] == "Deny":
            for kind in statement["Condition"]["StringEquals"]["ResourceType"]:
                denied.setdefault(kind, set()).update(listed(statement["Action"]))
    for where, _ in resources(templates, "AWS::MSK::Topic"):
        if "Update:*" not in denied.get("AWS::MSK::Topic", ()):
            yield f"{where}: stack-policy.json lets its partitions change"
    for where, _ in resources(templates, "AWS::DynamoDB::Table|AWS::MSK::Cluster"):
        kind = "AWS::MSK::Cluster" if "kafka" in where else "AWS::DynamoDB::Table"
        if not {"Update:Replace", "Update:Delete"} <= denied.get(kind, set()):
            yield f"{where}: stack-policy.json lets it be replaced"
    for where, topic in resources(templates, "AWS::MSK::.*"):
        if topic.get("DeletionPolicy") != "Retain" or topic.get("UpdateReplacePolicy") != "Retain":
            yield f"{where}: it is not retained"


def topics_keep_what_their_readers_need(templates):
    """A log that is compacted, or shorter than the stream, lacks changes; lists that expire are no longer there to be read."""
    for where, topic in resources(templates, "AWS::MSK::Topic"):
        name, text = topic["Properties"]["TopicName"], topic["Properties"]["Configs"]["Fn::Base64"]
        lines = (text["Fn::Sub"] if isinstance(text, dict) else text).split()
        said = dict(line.split("=", 1) for line in lines if "=" in line)
        wanted = {"Changes": {"cleanup.policy": "delete", "compression.type": "zstd", "message.timestamp.type": "LogAppendTime",
                              "retention.ms": "${ChangesRetentionMillis}"},
                  "Boards": {"cleanup.policy": "compact"}, "Blocks": {"cleanup.policy": "compact"},
                  "Counts": {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}}.get(where.split()[-1], {})  # fmt: skip
        for key, value in wanted.items():
            if said.get(key) != value:
                yield f"{where}: {key} is {said.get(key)}, not {value}"
        if wanted and name != {"Ref": f"{where.split()[-1]}Topic"}:
            yield f"{where}: its name is not the parameter that services are told"
    if templates["kafka"]["Parameters"]["ChangesRetentionMillis"].get("MinValue", 0) < 27 * 3_600_000:
        yield "kafka.yaml: ChangesRetentionMillis may be less than 27 hours"


def warm_throughput_is_off_until_asked_for(templates):
    """It is refused above the account's quota, 40,000 write units by default."""
    for name, template in templates.items():
        for parameter, about in template.get("Parameters", {}).items():
            if "Warm" in parameter and about.get("Default") != 0:
                yield f"{name}.yaml: {parameter} is on by default"
    for where, table in resources(templates, "AWS::DynamoDB::Table"):
        warm = table["Properties"].get("WarmThroughput", {"Fn::If": []})
        if set(warm) != {"Fn::If"}:
            yield f"{where}: WarmThroughput is no choice"


# ---- who may do what ---------------------------------------------------------------------------------------------------


def no_policy_allows_more_than_is_named(templates):
    """A star grants what nothing was tried for."""
    for where, statement in statements(templates):
        if statement["Effect"] != "Allow":
            continue
        if "NotAction" in statement or "NotResource" in statement:
            yield f"{where}: a statement that allows all but something"
        actions = listed(statement.get("Action"))
        for action in actions:
            if "*" in action:
                yield f"{where}: the action {action}"
        if listed(statement.get("Resource")) == ["*"] and not set(actions) <= EVERYWHERE:
            yield f"{where}: {', '.join(actions)} on every resource"
        if statement.get("Principal") in ("*", {"AWS": "*"}):
            yield f"{where}: any principal"


def roles_are_taken_by_this_account_alone(templates):
    """A service of AWS that acts for another account could take a role that does not say whose it is."""
    for where, role in resources(templates, "AWS::IAM::Role"):
        for _, statement in statements_in(where, role["Properties"]["AssumeRolePolicyDocument"]):
            principal = statement["Principal"]
            conditions = json.dumps(statement.get("Condition", {}))
            if "Service" in principal and "aws:SourceAccount" not in conditions:
                yield f"{where}: it does not say for which account a service may take it"
            if "Federated" in principal and not ("sub" in conditions and "aud" in conditions):
                yield f"{where}: it does not say which repository may take it"
        for key in ("ManagedPolicyArns", "RoleName"):
            if key in role["Properties"]:
                yield f"{where}: {key} is not written here, or clashes with another deployment's"


# ---- tasks -------------------------------------------------------------------------------------------------------------


def tasks_get_only_settings_that_they_have(templates, root=HERE.parent):
    """A variable that a service does not know is refused at its start."""
    for where, container in containers(templates):
        service = container["Name"]
        if service not in SERVICES:
            yield f"{where}: no service of that name"
            continue
        text = (root / service / HELP.format(service.replace("-", "_"))).read_text()
        for name, value in [*pairs(container), *pairs(container, "Secrets")]:
            if name.startswith("TALLY_") and f"[env: {name}" not in text:
                yield f"{where}: it has no {name}"
            elif not name.startswith(("TALLY_", "AWS_")):
                yield f"{where}: {name} is nothing that a service reads"
        for flag in container.get("Command", []):
            if flag.startswith("--") and f"\n      {flag}\n" not in text:
                yield f"{where}: it has no {flag}"
        if container.get("EntryPoint") != [f"tally-{service}"]:
            yield f"{where}: it starts {container.get('EntryPoint')}"


def producer_and_consumer_are_told_the_same(templates, root=HERE.parent):
    """A producer with another key puts one user's events into two partitions, where they have no order; lists that are written to
    one topic and read from another are never there."""
    for where, container in containers(templates):
        given = dict(pairs(container))
        text = (root / container["Name"] / HELP.format(container["Name"].replace("-", "_"))).read_text()
        for name, parameter in TOLD.items():
            if "TALLY_BROKERS" in given and f"[env: {name}]" in text and given.get(name) != {"Ref": parameter}:
                yield f"{where}: {name} is not the parameter {parameter}"


def secrets_are_no_plain_variables(templates):
    """What a task definition says in plain text is shown to all who may describe it."""
    for where, container in containers(templates):
        for name, value in pairs(container):
            if SECRET.search(name) and value != "off":
                yield f"{where}: {name} is in Environment, not in Secrets"


def tasks_have_a_health_check_of_their_own(templates):
    """The HEALTHCHECK of an image means nothing to ECS, and the image has no shell to run one."""
    for where, container in containers(templates):
        command = container.get("HealthCheck", {}).get("Command", [])
        if command[:3] != ["CMD", "tally", "probe"] or not command[-1].endswith(":9090/livez"):
            yield f"{where}: its health check is not `tally probe` of /livez"


def tasks_may_do_little_on_their_machine(templates):
    """Nothing is written to an image, and nothing needs to be root."""
    for where, container in containers(templates):
        if container.get("ReadonlyRootFilesystem") is not True:
            yield f"{where}: its root can be written to"
        if container.get("User") in (None, "0", "root"):
            yield f"{where}: it runs as root"
        if container.get("LinuxParameters", {}).get("Capabilities", {}).get("Drop") != ["ALL"]:
            yield f"{where}: it has capabilities"
        if container.get("Privileged"):
            yield f"{where}: it is privileged"


def a_task_is_given_the_time_to_drain(templates):
    """ECS kills a task StopTimeout after it was told to stop."""
    for where, container in containers(templates):
        grace = dict(pairs(container)).get("TALLY_SHUTDOWN_GRACE", "25s")
        if container.get("StopTimeout", 30) < seconds(grace) + 10:
            yield f"{where}: StopTimeout {container.get('StopTimeout', 30)} is not 10 s longer than its grace, {grace}"


def services_are_replaced_before_they_stop(templates):
    """A service that stops first is away until the next one is ready."""
    for where, service in resources(templates, "AWS::ECS::Service"):
        deployment = service["Properties"].get("DeploymentConfiguration", {})
        if deployment.get("MinimumHealthyPercent") != 100:
            yield f"{where}: MinimumHealthyPercent is not 100"
        if deployment.get("DeploymentCircuitBreaker") != {"Enable": True, "Rollback": True}:
            yield f"{where}: a deployment that fails is not taken back"


def what_reads_the_stream_is_told_where_it_is(templates):
    """DynamoDB's streams have no gateway endpoint and no private name: without NAT nothing else reaches them."""
    for where, container in containers(templates):
        if container["Name"] == "change-streamer" and "AWS_ENDPOINT_URL_DYNAMODB_STREAMS" not in dict(pairs(container)):
            yield f"{where}: it cannot be told an endpoint for the streams"


def reads_are_not_logged_one_by_one(templates):
    """A line for each of 579,000 reads a second is 425 TB a month."""
    for where, container in containers(templates):
        if container["Name"] != "count-api":
            continue
        parameters, level = templates[where.split(".yaml")[0]]["Parameters"], dict(pairs(container)).get("TALLY_LOG")
        if level != {"Fn::Sub": "${LogLevel},tally_count_api::access=${AccessLog}"}:
            yield f"{where}: TALLY_LOG does not say how many requests are logged"
        elif parameters["AccessLog"].get("Default") not in ("warn", "off"):
            yield f"{where}: AccessLog is each request by default"


# ---- the load balancer -------------------------------------------------------------------------------------------------


def connections_outlive_the_balancers(templates):
    """A balancer sends a request over a connection that the API is just closing: 502."""
    for where, balancer in resources(templates, "AWS::ElasticLoadBalancingV2::LoadBalancer"):
        attributes = {each.get("Key"): each.get("Value") for each in balancer["Properties"]["LoadBalancerAttributes"]}
        idle = int(attributes.get("idle_timeout.timeout_seconds", 60))
        kept = [dict(pairs(container)).get("TALLY_HEADER_TIME", "10s") for _, container in containers(templates) if container["Name"] == "count-api"]
        for span in kept:
            if seconds(span) <= idle:
                yield f"{where}: it keeps connections for {idle} s, and the API for {span}"
        if attributes.get("deletion_protection.enabled") != "true":
            yield f"{where}: it can be deleted"
    for where, targets in resources(templates, "AWS::ElasticLoadBalancingV2::TargetGroup"):
        if (targets["Properties"].get("HealthCheckPort"), targets["Properties"].get("HealthCheckPath")) != ("9090", "/readyz"):
            yield f"{where}: its health check is not /readyz on the admin port"


def no_web_firewall_stands_before_reads(templates):
    """Paid for each request, it would cost more than everything else together."""
    for where, _ in resources(templates, "AWS::WAFv2::WebACLAssociation"):
        yield f"{where}: it would see every read"


RULES = [
    tables_are_kept,
    the_index_that_keeps_row_keys_whole_stays,
    tombstones_expire,
    topics_and_tables_are_not_replaced,
    topics_keep_what_their_readers_need,
    warm_throughput_is_off_until_asked_for,
    no_policy_allows_more_than_is_named,
    roles_are_taken_by_this_account_alone,
    tasks_get_only_settings_that_they_have,
    producer_and_consumer_are_told_the_same,
    secrets_are_no_plain_variables,
    tasks_have_a_health_check_of_their_own,
    tasks_may_do_little_on_their_machine,
    a_task_is_given_the_time_to_drain,
    services_are_replaced_before_they_stop,
    what_reads_the_stream_is_told_where_it_is,
    reads_are_not_logged_one_by_one,
    connections_outlive_the_balancers,
    no_web_firewall_stands_before_reads,
]
