"""The emulator as boto3 and the aws command see it, unmodified: tables, items of every type, transactions, pages, and the
records of a stream. Limits, and a stream that splits, are held by the emulator's own tests.

Run with the endpoint of an emulator as the only argument; ends with 1 at the first broken rule.
"""

import json
import os
import shutil
import subprocess
import sys
from decimal import Decimal

import boto3
from boto3.dynamodb.conditions import Key

ENDPOINT = sys.argv[1]
ACCESS = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
client, streams = (boto3.client(name, endpoint_url=ENDPOINT, **ACCESS) for name in ("dynamodb", "dynamodbstreams"))
resource = boto3.resource("dynamodb", endpoint_url=ENDPOINT, **ACCESS)


def like(post, user, **attributes):
    return {"pk": {"S": post}, "user_id": {"S": user}, "post_id": {"S": post.split("#")[0]}, **attributes}


def tables_are_created():
    key = lambda *names: [{"AttributeName": n, "KeyType": t} for n, t in zip(names, ("HASH", "RANGE"))]
    strings = lambda *names: [{"AttributeName": n, "AttributeType": "S"} for n in names]
    pin = {"IndexName": "pin", "KeySchema": key("pk", "pin"), "Projection": {"ProjectionType": "KEYS_ONLY"}}
    images = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    on_demand = {"BillingMode": "PAY_PER_REQUEST"}
    client.create_table(TableName="likes", KeySchema=key("pk", "user_id"), AttributeDefinitions=strings("pk", "user_id", "pin"),
                        LocalSecondaryIndexes=[pin], StreamSpecification=images, **on_demand)
    client.create_table(TableName="recounts", KeySchema=key("pk", "sk"), AttributeDefinitions=strings("pk", "sk"), **on_demand)
    client.get_waiter("table_exists").wait(TableName="recounts")
    client.update_time_to_live(TableName="recounts", TimeToLiveSpecification={"AttributeName": "ttl", "Enabled": True})
    assert client.list_tables()["TableNames"] == ["likes", "recounts"]
    try:
        client.describe_table(TableName="absent")
    except client.exceptions.ResourceNotFoundException:
        return
    raise AssertionError("a table that is absent is described")


def what_is_written_is_read():
    every_type = {
        "s": "text", "n": Decimal("12345678901234567890123456789012345678"), "b": b"\x00\xff", "t": True, "z": None,
        "m": {"k": [Decimal("1.5")]}, "ss": {"a", "b"}, "ns": {Decimal(1), Decimal(2)}, "bs": {b"x"},
    }
    recounts = resource.Table("recounts")
    recounts.put_item(Item={"pk": "types", "sk": "all", **every_type})
    stored = recounts.get_item(Key={"pk": "types", "sk": "all"}, ConsistentRead=True)["Item"]
    stored["b"], stored["bs"] = stored["b"].value, {b.value for b in stored["bs"]}
    assert stored == {"pk": "types", "sk": "all", **every_type}, stored
    with recounts.batch_writer() as batch:
        for i in range(30):
            batch.put_item(Item={"pk": "page", "sk": f"k{i:02}"})
    pages = client.get_paginator("query").paginate(
        TableName="recounts", KeyConditionExpression="pk = :p", ExpressionAttributeValues={":p": {"S": "page"}}, PaginationConfig={"PageSize": 7})
    assert [item["sk"]["S"] for page in pages for item in page["Items"]] == [f"k{i:02}" for i in range(30)]
    found = recounts.query(KeyConditionExpression=Key("pk").eq("page") & Key("sk").between("k01", "k03"), ScanIndexForward=False)
    assert [item["sk"] for item in found["Items"]] == ["k03", "k02", "k01"]
    add = {"Key": {"pk": "n", "sk": "n"}, "UpdateExpression": "ADD n :d SET s0 = if_not_exists(s0, :zero) + :d",
           "ExpressionAttributeValues": {":d": 2, ":zero": 0}, "ReturnValues": "UPDATED_NEW"}
    recounts.update_item(**add)
    assert recounts.update_item(**add)["Attributes"] == {"n": 4, "s0": 4}


def transactions_and_streams_are_understood():
    put = lambda post, **condition: {"Put": {"TableName": "likes", "Item": like(post, "u"), **condition}}
    client.transact_write_items(TransactItems=[put("t#0"), put("t#1")])
    try:
        client.transact_write_items(TransactItems=[put("t#0", ConditionExpression="attribute_not_exists(pk)"), put("t#2")])
        raise AssertionError("a transaction whose condition fails is carried out")
    except client.exceptions.TransactionCanceledException as error:
        assert [reason["Code"] for reason in error.response["CancellationReasons"]] == ["ConditionalCheckFailed", "None"]
    arn = client.describe_table(TableName="likes")["Table"]["LatestStreamArn"]
    seen = set()
    for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
        iterator = streams.get_shard_iterator(StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
        seen |= {record["dynamodb"]["Keys"]["pk"]["S"] for record in streams.get_records(ShardIterator=iterator)["Records"]}
    assert seen == {"t#0", "t#1"}, seen


def the_aws_command_works():
    command = shutil.which("aws")
    if command is None:
        print("skipped: the aws command is not installed", file=sys.stderr)
        return
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local",
                   "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1"}

    def aws(*arguments):
        return subprocess.run([command, "--endpoint-url", ENDPOINT, "--output", "json", *arguments], timeout=120,
                              env=environment, capture_output=True, text=True, check=False)

    item = json.dumps(like("cli#0", "u", liked_at={"N": "1700000000000"}))
    written = aws("dynamodb", "put-item", "--table-name", "likes", "--item", item)
    assert written.returncode == 0, written.stderr
    key = json.dumps({"pk": {"S": "cli#0"}, "user_id": {"S": "u"}})
    read = aws("dynamodb", "get-item", "--table-name", "likes", "--key", key, "--consistent-read")
    assert json.loads(read.stdout)["Item"] == json.loads(item), read
    bad = aws("dynamodb", "update-item", "--table-name", "likes", "--key", key, "--update-expression", "SET #o = :v")
    assert bad.returncode != 0 and "ValidationException" in bad.stderr, bad
    listed = aws("dynamodbstreams", "list-streams", "--table-name", "likes")
    assert len(json.loads(listed.stdout)["Streams"]) == 1, listed


for law in (tables_are_created, what_is_written_is_read, transactions_and_streams_are_understood, the_aws_command_works):
    law()
    print("ok", law.__name__.replace("_", " "), flush=True)
