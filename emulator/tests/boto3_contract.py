"""The emulator as boto3 and the aws command see it: the project's tables, every limit, and a stream read once through a split.

Run with the endpoint of an emulator started with --control as the only argument; ends with 1 at the first broken rule.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from decimal import Decimal

import boto3
from boto3.dynamodb.conditions import Key
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = sys.argv[1]
ACCESS = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
# The server is to refuse, not the client; and a refusal is to be seen, not retried.
CONFIG = Config(parameter_validation=False, retries={"max_attempts": 0}, read_timeout=30)

client = boto3.client("dynamodb", endpoint_url=ENDPOINT, config=CONFIG, **ACCESS)
streams = boto3.client("dynamodbstreams", endpoint_url=ENDPOINT, config=CONFIG, **ACCESS)
resource = boto3.resource("dynamodb", endpoint_url=ENDPOINT, **ACCESS)


def refused(code, call, **request):
    """Calls an operation that must be refused with this error code; returns the error."""
    try:
        answer = call(**request)
    except ClientError as error:
        assert error.response["Error"]["Code"] == code, f"expected {code}, got {error.response}"
        assert error.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 413), error.response
        assert error.response["Error"]["Message"] or code == "SerializationException", error.response
        return error.response
    raise AssertionError(f"expected {code}, got {answer}")


def like(post, user, **attributes):
    return {"pk": {"S": post}, "user_id": {"S": user}, "post_id": {"S": post.split("#")[0]}, **attributes}


def put(table, item):
    return {"Put": {"TableName": table, "Item": item}}


def control(route, **command):
    body = json.dumps(command).encode()
    request = urllib.request.Request(f"{ENDPOINT}/_control/{route}", data=body, method="POST",
                                     headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def the_four_tables_are_created():
    key = lambda *names: [{"AttributeName": n, "KeyType": t} for n, t in zip(names, ("HASH", "RANGE"))]
    strings = lambda *names: [{"AttributeName": n, "AttributeType": "S"} for n in names]
    created = client.create_table(
        TableName="likes",
        KeySchema=key("pk", "user_id"),
        AttributeDefinitions=strings("pk", "user_id", "pin"),
        LocalSecondaryIndexes=[
            {"IndexName": "pin", "KeySchema": key("pk", "pin"), "Projection": {"ProjectionType": "KEYS_ONLY"}}
        ],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    assert created["TableDescription"]["LatestStreamArn"].startswith("arn:aws:dynamodb:us-east-1:")
    for name, names in {"like_counts": ["post_id"], "checkpoints": ["id"], "recounts": ["pk", "sk"]}.items():
        client.create_table(
            TableName=name, KeySchema=key(*names), AttributeDefinitions=strings(*names), BillingMode="PAY_PER_REQUEST"
        )
        client.get_waiter("table_exists").wait(TableName=name)
    client.update_time_to_live(
        TableName="recounts", TimeToLiveSpecification={"AttributeName": "ttl", "Enabled": True}
    )
    assert client.list_tables()["TableNames"] == ["checkpoints", "like_counts", "likes", "recounts"]
    described = client.describe_table(TableName="likes")["Table"]
    assert described["TableStatus"] == "ACTIVE" and described["LocalSecondaryIndexes"][0]["IndexName"] == "pin"
    refused("ResourceInUseException", client.create_table, TableName="likes", KeySchema=key("pk"),
            AttributeDefinitions=strings("pk"), BillingMode="PAY_PER_REQUEST")
    refused("ResourceNotFoundException", client.describe_table, TableName="absent")


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
    for i in range(5):
        recounts.put_item(Item={"pk": "page", "sk": f"k{i}"})
    found = recounts.query(
        KeyConditionExpression=Key("pk").eq("page") & Key("sk").between("k1", "k3"), ConsistentRead=True,
        ScanIndexForward=False,
    )
    assert [item["sk"] for item in found["Items"]] == ["k3", "k2", "k1"]
    page = recounts.query(KeyConditionExpression=Key("pk").eq("page"), Limit=2, ConsistentRead=True)
    rest = recounts.query(
        KeyConditionExpression=Key("pk").eq("page"), ExclusiveStartKey=page["LastEvaluatedKey"], ConsistentRead=True
    )
    assert [item["sk"] for item in page["Items"] + rest["Items"]] == [f"k{i}" for i in range(5)]
    counts = resource.Table("like_counts")
    add = dict(
        Key={"post_id": "p"}, UpdateExpression="ADD likes :d, version :one SET s0 = if_not_exists(s0, :zero) + :d",
        ExpressionAttributeValues={":d": 2, ":one": 1, ":zero": 0}, ReturnValues="UPDATED_NEW",
    )
    counts.update_item(**add)
    assert counts.update_item(**add)["Attributes"] == {"likes": 4, "version": 2, "s0": 4}
    refusal = refused(
        "ConditionalCheckFailedException", client.put_item, TableName="like_counts", Item={"post_id": {"S": "p"}},
        ConditionExpression="attribute_not_exists(post_id)", ReturnValuesOnConditionCheckFailure="ALL_OLD",
    )
    assert refusal["Item"]["likes"] == {"N": "4"}
    seen = Counter()
    for segment in range(3):
        scanned = client.scan(TableName="recounts", Segment=segment, TotalSegments=3, ConsistentRead=True)
        seen.update(item["sk"]["S"] for item in scanned["Items"])
    assert seen == Counter(["all", *(f"k{i}" for i in range(5))]), seen


def a_transaction_is_all_or_nothing():
    fence = {"Update": {
        "TableName": "checkpoints", "Key": {"id": {"S": "kafka/likes/0"}},
        "UpdateExpression": "SET #o = :to", "ConditionExpression": "attribute_not_exists(#o) OR #o = :from",
        "ExpressionAttributeNames": {"#o": "offset"},
        "ExpressionAttributeValues": {":from": {"N": "0"}, ":to": {"N": "99"}},
    }}
    rows = [put("likes", like("t#0", f"u{i}")) for i in range(99)]
    client.transact_write_items(TransactItems=[fence, *rows])
    refusal = refused("TransactionCanceledException", client.transact_write_items,
                      TransactItems=[fence, put("likes", like("t#1", "u"))])
    assert [reason["Code"] for reason in refusal["CancellationReasons"]] == ["ConditionalCheckFailed", "None"]
    assert "Item" not in client.get_item(TableName="likes", Key={"pk": {"S": "t#1"}, "user_id": {"S": "u"}},
                                         ConsistentRead=True)
    token = dict(ClientRequestToken="one", TransactItems=[put("recounts", {"pk": {"S": "tk"}, "sk": {"S": "1"}})])
    client.transact_write_items(**token)
    client.transact_write_items(**token)
    token["TransactItems"] = [put("recounts", {"pk": {"S": "tk"}, "sk": {"S": "2"}})]
    refused("IdempotentParameterMismatchException", client.transact_write_items, **token)
    got = client.transact_get_items(TransactItems=[
        {"Get": {"TableName": "recounts", "Key": {"pk": {"S": "tk"}, "sk": {"S": sk}}}} for sk in ("1", "2")
    ])
    assert "Item" in got["Responses"][0] and "Item" not in got["Responses"][1]


def requests_of_too_many_items_are_refused():
    key = lambda i: {"pk": {"S": "limit"}, "sk": {"S": str(i)}}
    puts = lambda n: {"recounts": [{"PutRequest": {"Item": key(i)}} for i in range(n)]}
    client.batch_write_item(RequestItems=puts(25))
    refused("ValidationException", client.batch_write_item, RequestItems=puts(26))
    gets = lambda n: {"recounts": {"Keys": [key(i) for i in range(n)], "ConsistentRead": True}}
    assert len(client.batch_get_item(RequestItems=gets(100))["Responses"]["recounts"]) == 25
    refused("ValidationException", client.batch_get_item, RequestItems=gets(101))
    actions = lambda n: [put("recounts", key(i)) for i in range(n)]
    client.transact_write_items(TransactItems=actions(100))
    refused("ValidationException", client.transact_write_items, TransactItems=actions(101))
    reads = lambda n: [{"Get": {"TableName": "recounts", "Key": key(i)}} for i in range(n)]
    client.transact_get_items(TransactItems=reads(100))
    refused("ValidationException", client.transact_get_items, TransactItems=reads(101))


def the_same_item_twice_is_refused():
    key = {"pk": {"S": "twice"}, "sk": {"S": "x"}}
    refused("ValidationException", client.batch_write_item,
            RequestItems={"recounts": [{"PutRequest": {"Item": key}}, {"DeleteRequest": {"Key": key}}]})
    refused("ValidationException", client.batch_get_item, RequestItems={"recounts": {"Keys": [key, key]}})
    refused("ValidationException", client.transact_write_items, TransactItems=[put("recounts", key)] * 2)


def items_and_requests_that_are_too_large_are_refused():
    # pk + user_id + post_id + pad: 2+1 + 7+1 + 7+1 + 3 bytes beside the padding.
    row = lambda user, size: like("b", user, pad={"S": "x" * (size - 22)})
    client.put_item(TableName="likes", Item=row("x", 400 * 1024))
    refused("ValidationException", client.put_item, TableName="likes", Item=row("x", 400 * 1024 + 1))
    refused("ValidationException", client.update_item, TableName="likes",
            Key={"pk": {"S": "b"}, "user_id": {"S": "x"}}, UpdateExpression="SET more = :m",
            ExpressionAttributeValues={":m": {"S": "x"}})
    client.delete_item(TableName="likes", Key={"pk": {"S": "b"}, "user_id": {"S": "x"}})
    big = lambda n, size: [put("recounts", {"pk": {"S": "4mb"}, "sk": {"S": str(i)}, "pad": {"S": "x" * size}})
                           for i in range(n)]
    client.transact_write_items(TransactItems=big(10, 390_000))
    refused("ValidationException", client.transact_write_items, TransactItems=big(11, 390_000))
    too_large = {"pk": {"S": "16mb"}, "sk": {"S": "x"}, "pad": {"S": "x" * (17 * 1024 * 1024)}}
    refused("RequestEntityTooLargeException", client.put_item, TableName="recounts", Item=too_large)


def pages_end_at_one_megabyte_and_batches_at_sixteen():
    for i in range(45):
        client.put_item(TableName="recounts", Item={
            "pk": {"S": "pages"}, "sk": {"S": f"{i:02}"}, "pad": {"S": "x" * 390_000}})
    pages = client.get_paginator("query").paginate(
        TableName="recounts", KeyConditionExpression="pk = :p", ExpressionAttributeValues={":p": {"S": "pages"}},
        ConsistentRead=True)
    sizes = [len(page["Items"]) for page in pages]
    # The item that crosses the limit may end a page or begin the next one.
    assert sum(sizes) == 45 and max(sizes) in (2, 3), sizes
    scanned = client.scan(TableName="recounts", ConsistentRead=True)
    assert "LastEvaluatedKey" in scanned
    keys = [{"pk": {"S": "pages"}, "sk": {"S": f"{i:02}"}} for i in range(45)]
    got = client.batch_get_item(RequestItems={"recounts": {"Keys": keys, "ConsistentRead": True}})
    given, left = len(got["Responses"]["recounts"]), len(got["UnprocessedKeys"]["recounts"]["Keys"])
    assert given + left == 45 and 40 <= given <= 44, (given, left)
    for key in keys:
        client.delete_item(TableName="recounts", Key=key)


def keys_that_break_the_rules_are_refused():
    client.put_item(TableName="recounts", Item={"pk": {"S": "h" * 2048}, "sk": {"S": "r" * 1024}})
    for pk, sk in [("h" * 2049, "r"), ("h", "r" * 1025), ("", "r"), ("h", "")]:
        refused("ValidationException", client.put_item, TableName="recounts", Item={"pk": {"S": pk}, "sk": {"S": sk}})
    refused("ValidationException", client.put_item, TableName="recounts", Item={"pk": {"S": "no sort key"}})
    refused("ValidationException", client.put_item, TableName="recounts", Item={"pk": {"N": "1"}, "sk": {"S": "x"}})
    refused("ValidationException", client.get_item, TableName="recounts",
            Key={"pk": {"S": "a"}, "sk": {"S": "b"}, "more": {"S": "c"}})
    refused("ValidationException", client.update_item, TableName="recounts", Key={"pk": {"S": "a"}, "sk": {"S": "b"}},
            UpdateExpression="SET sk = :v", ExpressionAttributeValues={":v": {"S": "x"}})


def values_that_break_the_rules_are_refused():
    def store(value):
        return dict(TableName="recounts", Item={"pk": {"S": "v"}, "sk": {"S": "v"}, "v": value})

    client.put_item(**store({"N": "9" * 38}))
    for value in [
        {"N": "9" * 39}, {"N": "1E126"}, {"N": "1E-131"}, {"N": "one"}, {"N": ""}, {"SS": []}, {"NS": []}, {"BS": []},
        {"SS": ["a", "a"]}, {"NS": ["1", "1.0"]}, {"S": "a", "N": "1"}, {}, {"NULL": False},
    ]:
        refused("ValidationException", client.put_item, **store(value))
    deep = {"S": "leaf"}
    for _ in range(32):
        deep = {"L": [deep]}
    client.put_item(**store(deep["L"][0]))
    refused("ValidationException", client.put_item, **store(deep))
    refused("ValidationException", client.update_item, TableName="recounts", Key={"pk": {"S": "v"}, "sk": {"S": "n"}},
            UpdateExpression="SET n = :a + :b",
            ExpressionAttributeValues={":a": {"N": "9" * 38}, ":b": {"N": "0.1"}})
    for body in ['{"S": 1}', '{"N": 1}', '{"B": "?"}', '{"SS": "a"}', '"text"']:
        answer = raw("PutItem", '{"TableName":"recounts","Item":{"pk":{"S":"v"},"sk":{"S":"v"},"v":%s}}' % body)
        assert answer["__type"].endswith("#SerializationException"), answer


def raw(operation, body):
    """Sends a body that no client would write and returns the error."""
    request = urllib.request.Request(ENDPOINT, data=body.encode(), method="POST", headers={
        "X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0",
        "Authorization": "AWS4-HMAC-SHA256 Credential=local/20260101/us-east-1/dynamodb/aws4_request, "
                         "SignedHeaders=host;x-amz-date;x-amz-target, Signature=0",
        "X-Amz-Date": "20260101T000000Z",
    })
    try:
        urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        assert error.code == 400, error
        return json.load(error)
    raise AssertionError(f"{body} was accepted")


def expressions_that_break_the_rules_are_refused():
    key = {"pk": {"S": "e"}, "sk": {"S": "e"}}
    value = {":v": {"S": "x"}}

    def update(expression, message, values=value, **more):
        refusal = refused("ValidationException", client.update_item, TableName="recounts", Key=key,
                          UpdateExpression=expression, ExpressionAttributeValues=values, **more)
        assert message in refusal["Error"]["Message"], refusal["Error"]["Message"]

    for word in ["offset", "sequence", "state", "owner", "token", "at", "next"]:
        update(f"SET {word} = :v", f"Attribute name is a reserved keyword; reserved keyword: {word}")
    update("SET a = :v, a = :v", "Two document paths overlap")
    update("SET a = :v SET b = :v", 'The "SET" section can only be used once')
    update("SET a = :undefined", "An expression attribute value used in expression is not defined")
    update("SET #undefined = :v", "An expression attribute name used in the document path is not defined")
    update("REMOVE a", "unused in expressions: keys: {:v}")
    update("SET a = :v", "unused in expressions: keys: {#n}", ExpressionAttributeNames={"#n": "n"})
    update("SET a == :v", "Syntax error; token:")
    update("SET a = :v" + " " * 4096, "Expression size has exceeded the maximum allowed size")
    update("ADD a :v", "Incorrect operand type for operator or function; operator: ADD, operand type: STRING")
    update("SET a = absent", "", values=value)
    update("SET a.b = :v", "The document path provided in the update expression is invalid for update")
    many = {f":v{i}": {"N": str(i)} for i in range(101)}
    update("SET a = :v0", "provided with too many operands", values=many,
           ConditionExpression=f"b IN ({', '.join(many)})")
    update("SET a = :v", "too many operators", ConditionExpression=" OR ".join(["a>:v"] * 151))
    refused("ValidationException", client.query, TableName="recounts", KeyConditionExpression="sk = :v",
            ExpressionAttributeValues=value)
    refused("ValidationException", client.query, TableName="recounts", KeyConditionExpression="pk = :v OR sk = :v",
            ExpressionAttributeValues=value)


def a_stream_is_read_once_and_parents_first():
    arn = client.describe_table(TableName="likes")["Table"]["LatestStreamArn"]
    assert arn in [stream["StreamArn"] for stream in streams.list_streams(TableName="likes")["Streams"]]
    expected = Counter()
    for generation in range(3):
        for i in range(40):
            client.put_item(TableName="likes", Item=like(f"s{i % 8}#{i % 4}", f"g{generation}u{i}"))
            expected[(f"s{i % 8}#{i % 4}", f"g{generation}u{i}", "INSERT")] += 1
        for i in range(0, 40, 4):
            client.delete_item(TableName="likes", Key={
                "pk": {"S": f"s{i % 8}#{i % 4}"}, "user_id": {"S": f"g{generation}u{i}"}})
            expected[(f"s{i % 8}#{i % 4}", f"g{generation}u{i}", "REMOVE")] += 1
        if generation < 2:
            assert len(control("split", table="likes")["shards"]) == 2
    # A write that changes nothing leaves no record.
    client.put_item(TableName="likes", Item=like("s1#1", "g0u1"))

    shards, last = {}, {}
    while True:
        description = streams.describe_stream(StreamArn=arn, **last)["StreamDescription"]
        shards.update((shard["ShardId"], shard) for shard in description["Shards"])
        if "LastEvaluatedShardId" not in description:
            break
        last = {"ExclusiveStartShardId": description["LastEvaluatedShardId"]}
    assert sum("ParentShardId" in shard for shard in shards.values()) >= 4
    for shard in shards.values():
        bounds = shard["SequenceNumberRange"]
        assert len(bounds["StartingSequenceNumber"]) >= 21
        is_parent = any(child.get("ParentShardId") == shard["ShardId"] for child in shards.values())
        assert ("EndingSequenceNumber" in bounds) == is_parent, shard

    seen, order, done = Counter(), {}, set()
    while len(done) < len(shards):
        ready = [i for i, s in shards.items() if i not in done
                 and (s.get("ParentShardId") not in shards or s["ParentShardId"] in done)]
        for shard_id in ready:
            for record in read_shard(arn, shard_id, shards[shard_id]):
                change = record["dynamodb"]
                row = (change["Keys"]["pk"]["S"], change["Keys"]["user_id"]["S"])
                assert change["SequenceNumber"] > order.get(row, ""), "the records of one item are in order"
                order[row] = change["SequenceNumber"]
                assert ("NewImage" in change) == (record["eventName"] != "REMOVE")
                seen[(*row, record["eventName"])] += 1
            done.add(shard_id)
    ours = Counter({row: count for row, count in seen.items() if row[0].startswith("s")})
    assert ours == expected, (expected - ours, ours - expected)
    refused("ResourceNotFoundException", streams.describe_stream, StreamArn=arn + "x")
    refused("ValidationException", streams.get_shard_iterator, StreamArn=arn, ShardId=next(iter(shards)),
            ShardIteratorType="SOMEWHERE")


def read_shard(arn, shard_id, shard):
    iterator = streams.get_shard_iterator(StreamArn=arn, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON")
    iterator = iterator["ShardIterator"]
    closed = "EndingSequenceNumber" in shard["SequenceNumberRange"]
    while iterator:
        page = streams.get_records(ShardIterator=iterator)
        yield from page["Records"]
        iterator = page.get("NextShardIterator")
        if not page["Records"] and not closed:
            return


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


def main():
    laws = [
        the_four_tables_are_created, what_is_written_is_read, a_transaction_is_all_or_nothing,
        requests_of_too_many_items_are_refused, the_same_item_twice_is_refused,
        items_and_requests_that_are_too_large_are_refused, pages_end_at_one_megabyte_and_batches_at_sixteen,
        keys_that_break_the_rules_are_refused, values_that_break_the_rules_are_refused,
        expressions_that_break_the_rules_are_refused, a_stream_is_read_once_and_parents_first, the_aws_command_works,
    ]
    for law in laws:
        law()
        print("ok", law.__name__.replace("_", " "), flush=True)


main()
