"""What infra/deploy says before anything is created, over an aws command that answers from a script."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

INFRA = Path(__file__).resolve().parent.parent
# Answers by the first two words and, where a stack or table is named, by its name; what is not scripted fails.
FAKE = """#!{python}
import json, sys
with open({log!r}, "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
words = sys.argv[1:]
named = [words[n + 1] for n, word in enumerate(words) if word in ("--stack-name", "--table-name")]
for key in (" ".join(words[:2] + named), " ".join(words[:2])):
    if key in {answers!r}:
        code, said = {answers!r}[key]
        print(said, file=sys.stderr if code else sys.stdout)
        sys.exit(code)
print("not scripted: " + " ".join(words), file=sys.stderr)
sys.exit(254)
"""
CALLER = (0, json.dumps({"Account": "123456789012"}))
NO_STACK = (255, "An error occurred (ValidationError) when calling the DescribeStacks operation: Stack does not exist")
NO_TABLE = (255, "An error occurred (ResourceNotFoundException) when calling the DescribeTable operation: not found")
LIMITS = (0, json.dumps({"TableMaxWriteCapacityUnits": 40000, "AccountMaxWriteCapacityUnits": 80000}))
GOOD = {
    "sts get-caller-identity": CALLER,
    "dynamodb describe-limits": LIMITS,
    "dynamodb describe-table": NO_TABLE,
    "cloudformation describe-stacks": NO_STACK,
}
# What answers where a stack is there and is changed.
CHANGING = {
    **GOOD,
    "cloudformation describe-stacks": (0, json.dumps({"Stacks": [{"StackStatus": "UPDATE_COMPLETE"}]})),
    "cloudformation create-change-set": (0, "{}"),
    "cloudformation delete-change-set": (0, ""),
    "cloudformation execute-change-set": (0, ""),
    "cloudformation set-stack-policy": (0, ""),
    "cloudformation update-termination-protection": (0, "{}"),
}
# What changes an account.
CHANGES = {"create-change-set", "execute-change-set", "delete-stack", "set-stack-policy", "update-termination-protection"}
TABLE = {"LogicalResourceId": "Likes", "ResourceType": "AWS::DynamoDB::Table", "Action": "Modify", "Replacement": "False"}
SETTINGS = "Region=eu-west-1\nStacks=data\nTablePrefix=t-\n"


class Deploy(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.infra = self.folder / "infra"
        shutil.copytree(INFRA, self.infra, ignore=shutil.ignore_patterns("tests", "__pycache__"))
        self.log = self.folder / "calls"

    def deploy(self, settings, answers=GOOD, *flags, env="here", typed=""):
        (self.infra / "env/here.env").write_text(settings)
        binaries = self.folder / "bin"
        binaries.mkdir(exist_ok=True)
        if answers is not None:
            fake = binaries / "aws"
            fake.write_text(FAKE.format(python=sys.executable, log=str(self.log), answers=answers))
            fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        path = f"{binaries}:{Path(sys.executable).parent}" if answers is not None else str(binaries)
        command = [sys.executable, str(self.infra / "deploy"), env, *flags]
        return subprocess.run(command, env={**os.environ, "PATH": path}, input=typed, capture_output=True, text=True, check=False)

    def calls(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def refused(self, done, code, *parts):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual([call for call in self.calls() if CHANGES & set(call)], [], "nothing was changed")

    def test_an_environment_that_there_is_not(self):
        self.refused(self.deploy(SETTINGS, env="nope"), 78, "there is no environment nope: infra/env has here, large, trial")

    def test_a_setting_that_no_stack_has_is_named_with_the_nearest(self):
        done = self.deploy(SETTINGS + "LikesWarmWrite=1\n")
        self.refused(done, 78, "no stack has a parameter LikesWarmWrite: is it LikesWarmWrites")
        self.refused(self.deploy(SETTINGS + "data.Image=1\n"), 78, "no stack has a parameter data.Image")
        self.refused(self.deploy("Region\n"), 78, "here.env:1: write NAME=value")

    def test_every_missing_parameter_is_named_at_once(self):
        done = self.deploy("Region=eu-west-1\nStacks=network data roles change-streamer consumer api\nKafkaArn=arn:x/y/z\n")
        self.refused(done, 78, "api, change-streamer, consumer need Image: ")
        self.assertEqual(self.calls(), [], "AWS was not asked")
        done = self.deploy("Region=eu-west-1\nStacks=network roles trends\nImage=a:1\nKafkaArn=arn:x/y/z\n")
        self.refused(done, 78, "trends needs BoardsTopic: ")
        done = self.deploy("Stacks=consumer alarms\nDeployment=likes\n")
        self.refused(done, 78, "Region is missing", "Deployment has to begin with tally", "consumer needs Brokers", "alarms needs AlarmEmail")

    def test_a_value_that_a_parameter_does_not_take(self):
        for setting, why in [
            ("DeletionProtection=yes", "DeletionProtection is yes: it is one of true, false (Whether DynamoDB refuses"),
            ("TablePrefix=a/b", "TablePrefix is a/b: it has to fit [a-zA-Z0-9_.-]{0,32}"),
            ("data.LikesWarmWrites=many", "data.LikesWarmWrites is many: it is a number"),
            ("LikesWrites=0", "LikesWrites is 0: it is at least 1"),
            ("Partitions=5000", "Partitions is 5000: it is at most 1200"),
            ("Region=Frankfurt", "Region is the name of a region"),
            ("Account=1234", "Account has twelve digits"),
            ("Scaled=false", "consumer is not Scaled, and Stacks has scaling"),
        ]:
            with self.subTest(setting):
                name = setting.partition("=")[0]
                others = {"Region": "eu-west-1", "Stacks": "network data data-scaling kafka api change-streamer consumer scaling", "Image": "a:1", "Scaled": "true"}
                others = {**others, "KafkaArn": "arn:aws:kafka:r:123456789012:cluster/a/b", "WriteTokenSecret": "s"}
                done = self.deploy("".join(f"{key}={value}\n" for key, value in others.items() if key != name) + setting)
                self.refused(done, 78, f"here.env: {why}")
                self.assertEqual(len(done.stderr.splitlines()), 3 if name == "Scaled" else 1, done.stderr)
                self.assertEqual(self.calls(), [], "AWS was not asked")

    def test_stacks_that_there_are_not(self):
        self.refused(self.deploy("Region=eu-west-1\n"), 78, "Stacks is missing")
        self.refused(self.deploy("Region=eu-west-1\nStacks=data date\n"), 78, "there is no stack date")
        self.refused(self.deploy(SETTINGS, GOOD, "--only", "cash"), 78, "there is no stack cash")

    def test_no_aws_command(self):
        self.refused(self.deploy(SETTINGS, None), 69, "the aws command is not installed")

    def test_no_credentials_and_another_account(self):
        unknown = {**GOOD, "sts get-caller-identity": (253, "Unable to locate credentials. You can configure credentials.")}
        self.refused(self.deploy(SETTINGS, unknown), 78, "AWS does not know the caller: Unable to locate credentials")
        self.refused(self.deploy(SETTINGS + "Account=999999999999\n"), 78, "of account 123456789012", "in 999999999999")

    def test_too_low_a_quota(self):
        done = self.deploy(SETTINGS + "LikesWarmWrites=200000\nCountsWarmWrites=30000\n")
        self.refused(done, 78, "LikesWarmWrites is 200000, and a table of this account may take 40000 write units")
        self.assertNotIn("CountsWarmWrites", done.stderr)
        self.refused(self.deploy(SETTINGS + "data.LikesWarmWrites=200000\n"), 78, "LikesWarmWrites is 200000")
        bought = SETTINGS + "BillingMode=PROVISIONED\nLikesWrites=40000\nCountsWrites=39000\nCheckpointsUnits=1000\n"
        self.refused(self.deploy(bought), 78, "is 80100, and all tables of this account may take 80000 write units")
        more = SETTINGS.replace("Stacks=data", "Stacks=data data-scaling") + "BillingMode=PROVISIONED\nLikesWritesAtMost=50000\n"
        self.refused(self.deploy(more), 78, "LikesWritesAtMost is 50000, and a table of this account may take 40000 write units")

    def test_a_table_made_without_stream_or_index_or_by_another(self):
        bare = {"Table": {"TableName": "t-likes"}}
        done = self.deploy(SETTINGS, {**GOOD, "dynamodb describe-table t-likes": (0, json.dumps(bare))})
        self.refused(done, 78, "table t-likes has no stream", "table t-likes has no local index pin", "the stack tally-data is not")
        whole = {
            "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
            "LocalSecondaryIndexes": [{"IndexName": "pin"}],
        }
        done = self.deploy(SETTINGS, {**GOOD, "dynamodb describe-table t-likes": (0, json.dumps({"Table": whole}))})
        self.refused(done, 78, "table t-likes is there, and the stack tally-data is not")
        self.assertNotIn("pin", done.stderr)

    def test_tables_that_are_not_there(self):
        done = self.deploy("Region=eu-west-1\nStacks=roles\nTablePrefix=t-\n")
        self.refused(done, 78, "table t-likes is not there: deploy data first", "table t-recounts is not there")

    def change(self, change, *flags, typed=""):
        described = {"Status": "CREATE_COMPLETE", "Changes": [{"ResourceChange": change}]}
        answers = {**CHANGING, "cloudformation describe-change-set": (0, json.dumps(described))}
        return self.deploy(SETTINGS, answers, *flags, typed=typed)

    def changed(self):
        return [call[1] for call in self.calls() if call[1] == "execute-change-set"]

    def test_a_change_is_shown_and_asked_for(self):
        tags = {**TABLE, "Details": [{"Target": {"Name": "Tags"}}]}
        done = self.change(tags, typed="n\n")
        self.assertEqual((done.returncode, self.changed()), (1, []))
        self.assertIn("~ Likes", done.stdout)
        self.assertIn("(Tags)", done.stdout)
        self.assertIn("data was declined", done.stderr)
        self.assertEqual((self.change(tags).returncode, self.changed()), (1, []), "no answer is no")
        self.assertEqual((self.change(tags, "--plan").returncode, self.changed()), (0, []))
        self.assertEqual((self.change(tags, typed="y\n").returncode, self.changed()), (0, ["execute-change-set"]))

    def test_a_change_that_loses_data_or_the_order_of_keys_is_refused(self):
        losses = [
            ({**TABLE, "Replacement": "True"}, "Likes would be replaced"),
            ({**TABLE, "Replacement": "Conditional"}, "Likes would be replaced"),
            ({**TABLE, "Action": "Remove"}, "Likes would be removed"),
            ({**TABLE, "ResourceType": "AWS::MSK::Topic", "Details": [{"Target": {"Name": "PartitionCount"}}]}, "move keys"),
        ]
        for change, why in losses:
            with self.subTest(why):
                done = self.change(change, "--yes")
                self.assertEqual((done.returncode, self.changed()), (1, []), done.stderr)
                self.assertIn(why, done.stderr)

    def test_nothing_to_change(self):
        none = (0, json.dumps({"Status": "FAILED", "StatusReason": "The submitted information didn't contain changes."}))
        done = self.deploy(SETTINGS, {**CHANGING, "cloudformation describe-change-set": none}, "--yes")
        self.assertEqual((done.returncode, done.stdout, self.changed()), (0, "data: nothing changes\n", []))


if __name__ == "__main__":
    unittest.main()
