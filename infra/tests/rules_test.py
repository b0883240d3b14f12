"""Each rule passes what is shipped, and refuses it once the thing it is there for is broken."""

import copy
import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import rules

SHIPPED = rules.read()


def resource(templates, name, logical):
    return templates[name]["Resources"][logical]


def properties(templates, name, logical):
    return resource(templates, name, logical)["Properties"]


def container(templates, name):
    return properties(templates, name, "Task")["ContainerDefinitions"][0]


def statement(templates, role):
    return properties(templates, "roles", role)["Policies"][0]["PolicyDocument"]["Statement"][0]


def variable(templates, name, variable):
    return next(each for each in container(templates, name)["Environment"] if each.get("Name") == variable)


def put(place, key, value):
    place[key] = value


def reword(place, key, old, new):
    place[key] = json.loads(json.dumps(place[key]).replace(old, new))


# (rule, what is broken, a part of what it says)
BREAKS = [
    ("tables_are_kept", lambda t: put(resource(t, "data", "Likes"), "DeletionPolicy", "Delete"), "Likes: DeletionPolicy"),
    ("tables_are_kept", lambda t: resource(t, "data", "Recounts").pop("UpdateReplacePolicy"), "Recounts: UpdateReplacePolicy"),
    ("tables_are_kept", lambda t: properties(t, "data", "Likes").pop("DeletionProtectionEnabled"), "DeletionProtectionEnabled"),
    ("tables_are_kept", lambda t: put(t["data"]["Parameters"]["DeletionProtection"], "Default", "false"), "DeletionProtection"),
    ("tables_are_kept", lambda t: put(t["data"]["Parameters"]["PointInTimeRecovery"], "Default", "false"), "PointInTimeRecovery"),
    ("the_index_that_keeps_row_keys_whole_stays", lambda t: properties(t, "data", "Likes").pop("LocalSecondaryIndexes"), "pin"),
    (
        "the_index_that_keeps_row_keys_whole_stays",
        lambda t: put(properties(t, "data", "Likes")["LocalSecondaryIndexes"][0], "Projection", {"ProjectionType": "ALL"}),
        "pin",
    ),
    (
        "the_index_that_keeps_row_keys_whole_stays",
        lambda t: put(properties(t, "data", "Likes"), "StreamSpecification", {"StreamViewType": "NEW_IMAGE"}),
        "both images",
    ),
    ("tombstones_expire", lambda t: properties(t, "data", "Likes").pop("TimeToLiveSpecification"), "gone"),
    ("topics_and_tables_are_not_replaced", lambda t: resource(t, "kafka", "Likes").pop("DeletionPolicy"), "not retained"),
    ("topics_and_tables_are_not_replaced", lambda t: resource(t, "kafka", "Changes").pop("UpdateReplacePolicy"), "Changes: it is not retained"),
    *[
        ("topics_keep_what_their_readers_need", lambda t, topic=topic, old=old, new=new: reword(properties(t, "kafka", topic), "Configs", old, new), part)
        for topic, old, new, part in [
            ("Changes", "policy=delete", "policy=compact", "cleanup.policy is compact"),
            ("Changes", "LogAppendTime", "CreateTime", "timestamp.type is CreateTime"),
            ("Changes", "=zstd", "=uncompressed", "compression.type is uncompressed"),
            ("Changes", "${ChangesRetentionMillis}", "86400000", "retention.ms is 86400000"),
            ("Boards", "policy=compact", "policy=delete", "Boards: cleanup.policy"),
            ("Blocks", "cleanup.policy=compact", "", "Blocks: cleanup.policy"),
            ("Counts", "policy=compact", "policy=delete", "Counts: cleanup.policy is delete"),
            ("Counts", "lag.ms=3600000", "lag.ms=0", "Counts: min.compaction.lag.ms is 0"),
        ]
    ],
    ("topics_keep_what_their_readers_need", lambda t: put(properties(t, "kafka", "Boards"), "TopicName", "boards"), "told"),
    ("topics_keep_what_their_readers_need", lambda t: put(t["kafka"]["Parameters"]["ChangesRetentionMillis"], "MinValue", 86400000), "27 hours"),
    ("warm_throughput_is_off_until_asked_for", lambda t: put(t["data"]["Parameters"]["LikesWarmWrites"], "Default", 200000), "LikesWarm"),
    (
        "warm_throughput_is_off_until_asked_for",
        lambda t: put(properties(t, "data", "Likes"), "WarmThroughput", {"WriteUnitsPerSecond": 200000}),
        "no choice",
    ),
    ("no_policy_allows_more_than_is_named", lambda t: put(statement(t, "ApiRole"), "Action", "dynamodb:*"), "dynamodb:*"),
    ("no_policy_allows_more_than_is_named", lambda t: put(statement(t, "ApiRole"), "Action", ["dynamodb:Get*"]), "dynamodb:Get*"),
    ("no_policy_allows_more_than_is_named", lambda t: put(statement(t, "ApiRole"), "Resource", "*"), "every resource"),
    ("no_policy_allows_more_than_is_named", lambda t: put(statement(t, "ApiRole"), "NotResource", "x"), "all but"),
    (
        "roles_are_taken_by_this_account_alone",
        lambda t: properties(t, "roles", "ApiRole")["AssumeRolePolicyDocument"]["Statement"][0].pop("Condition"),
        "for which account",
    ),
    (
        "roles_are_taken_by_this_account_alone",
        lambda t: properties(t, "roles", "ReleaseRole")["AssumeRolePolicyDocument"]["Statement"][0]["Condition"].pop("StringLike"),
        "which repository",
    ),
    ("roles_are_taken_by_this_account_alone", lambda t: put(properties(t, "roles", "ApiRole"), "RoleName", "x"), "RoleName"),
    ("tasks_get_only_settings_that_they_have", lambda t: put(variable(t, "api", "TALLY_LISTEN"), "Name", "TALLY_LISTENS"), "no TALLY_LISTENS"),
    ("tasks_get_only_settings_that_they_have", lambda t: put(variable(t, "consumer", "TALLY_SHARDS"), "Name", "TALLY_REDIS"), "no TALLY_REDIS"),
    ("tasks_get_only_settings_that_they_have", lambda t: put(container(t, "recount"), "Command", ["--watches"]), "--watches"),
    ("tasks_get_only_settings_that_they_have", lambda t: put(container(t, "recount"), "EntryPoint", ["tally-recount"]), "starts"),
    (
        "producer_and_consumer_are_told_the_same",
        lambda t: put(container(t, "api"), "Environment", [each for each in container(t, "api")["Environment"] if each.get("Name") != "TALLY_TOPIC"]),
        "TALLY_TOPIC is not the parameter Topic",
    ),
    ("producer_and_consumer_are_told_the_same", lambda t: put(variable(t, "consumer", "TALLY_TOPIC"), "Value", "likes"), "TALLY_TOPIC"),
    ("producer_and_consumer_are_told_the_same", lambda t: put(variable(t, "trends", "TALLY_BOARDS_TOPIC"), "Value", "lists"), "TALLY_BOARDS_TOPIC"),
    (
        "producer_and_consumer_are_told_the_same",
        lambda t: reword(container(t, "change-streamer"), "Environment", '{"Ref": "ChangesTopic"}', '"changes"'),
        "TALLY_CHANGES_TOPIC",
    ),
    ("producer_and_consumer_are_told_the_same", lambda t: put(variable(t, "change-streamer", "TALLY_TOPIC"), "Value", "likes"), "TALLY_TOPIC"),
    (
        "producer_and_consumer_are_told_the_same",
        lambda t: reword(container(t, "change-streamer"), "Environment", '{"Ref": "CountsTopic"}', '"counts"'),
        "TALLY_COUNTS_TOPIC",
    ),
    (
        "secrets_are_no_plain_variables",
        lambda t: container(t, "api")["Environment"].append({"Name": "TALLY_WRITE_TOKEN", "Value": {"Ref": "WriteTokenSecret"}}),
        "TALLY_WRITE_TOKEN",
    ),
    ("tasks_have_a_health_check_of_their_own", lambda t: container(t, "consumer").pop("HealthCheck"), "health check"),
    (
        "tasks_have_a_health_check_of_their_own",
        lambda t: put(container(t, "api")["HealthCheck"], "Command", ["CMD-SHELL", "curl -f localhost:9090/livez"]),
        "health check",
    ),
    ("tasks_may_do_little_on_their_machine", lambda t: container(t, "api").pop("ReadonlyRootFilesystem"), "written to"),
    ("tasks_may_do_little_on_their_machine", lambda t: container(t, "api").pop("User"), "root"),
    ("tasks_may_do_little_on_their_machine", lambda t: container(t, "api").pop("LinuxParameters"), "capabilities"),
    ("a_task_is_given_the_time_to_drain", lambda t: container(t, "consumer").pop("StopTimeout"), "StopTimeout 30"),
    ("a_task_is_given_the_time_to_drain", lambda t: put(variable(t, "api", "TALLY_SHUTDOWN_GRACE"), "Value", "55s"), "55s"),
    (
        "services_are_replaced_before_they_stop",
        lambda t: put(properties(t, "consumer", "Service")["DeploymentConfiguration"], "MinimumHealthyPercent", 50),
        "MinimumHealthyPercent",
    ),
    (
        "services_are_replaced_before_they_stop",
        lambda t: properties(t, "api", "Service")["DeploymentConfiguration"].pop("DeploymentCircuitBreaker"),
        "taken back",
    ),
    (
        "what_reads_the_stream_is_told_where_it_is",
        lambda t: put(
            container(t, "change-streamer"),
            "Environment",
            [each for each in container(t, "change-streamer")["Environment"] if "ENDPOINT" not in json.dumps(each)],
        ),
        "endpoint",
    ),
    ("reads_are_not_logged_one_by_one", lambda t: put(t["api"]["Parameters"]["AccessLog"], "Default", "info"), "each request by default"),
    ("reads_are_not_logged_one_by_one", lambda t: put(variable(t, "api", "TALLY_LOG"), "Value", {"Ref": "LogLevel"}), "does not say"),
    ("connections_outlive_the_balancers", lambda t: put(variable(t, "api", "TALLY_HEADER_TIME"), "Value", "60s"), "60 s"),
    (
        "connections_outlive_the_balancers",
        lambda t: put(properties(t, "api", "Balancer")["LoadBalancerAttributes"][0], "Value", "120"),
        "120 s",
    ),
    ("connections_outlive_the_balancers", lambda t: put(properties(t, "api", "Targets"), "HealthCheckPath", "/livez"), "/readyz"),
    (
        "no_web_firewall_stands_before_reads",
        lambda t: put(t["api"]["Resources"], "Firewall", {"Type": "AWS::WAFv2::WebACLAssociation", "Properties": {}}),
        "every read",
    ),
]


class Rules(unittest.TestCase):
    def test_what_is_shipped_keeps_every_rule(self):
        for rule in rules.RULES:
            with self.subTest(rule.__name__):
                self.assertEqual(list(rule(SHIPPED)), [])

    def test_every_rule_refuses_what_it_is_there_for(self):
        for name, change, part in BREAKS:
            with self.subTest(name, part=part):
                broken = copy.deepcopy(SHIPPED)
                change(broken)
                self.assertTrue(any(part in line for line in getattr(rules, name)(broken)), f"{part} is not refused")

    def test_every_rule_is_broken_once(self):
        self.assertEqual({rule.__name__ for rule in rules.RULES}, {name for name, _, _ in BREAKS})

    def test_a_stack_policy_that_lets_partitions_or_tables_change_is_refused(self):
        policy = json.loads((rules.HERE / "stack-policy.json").read_text())
        for kind in ("AWS::MSK::Topic", "AWS::DynamoDB::Table", "AWS::MSK::Cluster"):
            weaker = json.loads(json.dumps(policy).replace(kind, "AWS::Other"))
            self.assertTrue(list(rules.topics_and_tables_are_not_replaced(SHIPPED, weaker)), kind)
        self.assertEqual(list(rules.topics_and_tables_are_not_replaced(SHIPPED, policy)), [])


if __name__ == "__main__":
    unittest.main()
