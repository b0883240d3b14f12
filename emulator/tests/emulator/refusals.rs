//! Tests that the emulator has DynamoDB's rules about names, definitions, streams, start keys, expiry and the head of a
//! request, and refuses what breaks them.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

use crate::raw::{call, invalid, kind, table};

const HASH: [(&str, &str); 1] = [("p", "S")];
const BOTH: [(&str, &str); 2] = [("p", "S"), ("s", "N")];

/// An emulator with a table `hash` with the key `p`, and a table `rows` with the keys `p` and `s`.
async fn started(config: Config) -> Emulator {
    let emulator = Emulator::new(config);
    for (name, keys) in [("hash", &HASH[..]), ("rows", &BOTH)] {
        call(&emulator, "CreateTable", table(name, keys)).await.unwrap();
    }
    emulator
}

#[tokio::test(start_paused = true)]
async fn a_fractional_expiry_is_rounded_up_to_the_next_second() {
    let epoch = 1_700_000_000;
    let start = UNIX_EPOCH + Duration::from_secs(epoch);
    let emulator = started(Config { epoch: Some(start), ..Config::default() }).await;
    let specification = json!({"Enabled": true, "AttributeName": "ttl"});
    let expire = json!({"TableName": "hash", "TimeToLiveSpecification": specification});
    call(&emulator, "UpdateTimeToLive", expire).await.unwrap();
    for (key, after) in [("whole", "10"), ("half", "10.5"), ("tiny", "10.000000001"), ("later", "11.5")] {
        let (whole, fraction) = after.split_once('.').unwrap_or((after, ""));
        let ttl = format!("{}.{fraction}0", epoch + whole.parse::<u64>().unwrap());
        let item = json!({"p": {"S": key}, "ttl": {"N": ttl}});
        call(&emulator, "PutItem", json!({"TableName": "hash", "Item": item})).await.unwrap();
    }
    for (second, left) in [(9, 4), (10, 3), (11, 1), (12, 0)] {
        let now = emulator.stats().now_ms;
        emulator.advance_clock(Duration::from_millis((epoch + second) * 1000 - now));
        assert_eq!(emulator.stats().tables["hash"].items, left, "second {second}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_attribute_has_a_name_of_less_than_64_kilobytes() {
    let emulator = started(Config::default()).await;
    let key = json!({"p": {"S": "a"}});
    let longest = "n".repeat(65_535);
    for (name, words) in [("", "Empty attribute name"), ("n".repeat(65_536).as_str(), "less than 65536 bytes")] {
        for item in
            [json!({"p": {"S": "a"}, name: {"S": "x"}}), json!({"p": {"S": "a"}, "m": {"M": {name: {"S": "x"}}}})]
        {
            invalid(&emulator, "PutItem", json!({"TableName": "hash", "Item": item}), words).await;
        }
        let update = json!({"TableName": "hash", "Key": key, "UpdateExpression": "SET #n = :v",
            "ExpressionAttributeNames": {"#n": name}, "ExpressionAttributeValues": {":v": {"S": "x"}}});
        invalid(&emulator, "UpdateItem", update, words).await;
        let value = json!({"TableName": "hash", "Key": key, "UpdateExpression": "SET m = :v",
            "ExpressionAttributeValues": {":v": {"M": {name: {"S": "x"}}}}});
        invalid(&emulator, "UpdateItem", value, words).await;
        let read = json!({"TableName": "hash", "Key": key, "ProjectionExpression": "#n",
            "ExpressionAttributeNames": {"#n": name}});
        invalid(&emulator, "GetItem", read, words).await;
    }
    let item = json!({"p": {"S": "a"}, longest.as_str(): {"S": "x"}});
    call(&emulator, "PutItem", json!({"TableName": "hash", "Item": item})).await.unwrap();
    let read = json!({"TableName": "hash", "Key": key, "ConsistentRead": true, "ProjectionExpression": "#n",
        "ExpressionAttributeNames": {"#n": longest}});
    assert_eq!(call(&emulator, "GetItem", read).await.unwrap()["Item"], json!({longest: {"S": "x"}}));
}

#[tokio::test(start_paused = true)]
async fn key_attributes_are_defined_once_and_have_short_names() {
    let emulator = started(Config::default()).await;
    let too_long = "n".repeat(256);
    for second in ["S", "N"] {
        let mut twice = table("made", &HASH);
        let again = json!({"AttributeName": "p", "AttributeType": second});
        twice["AttributeDefinitions"].as_array_mut().unwrap().push(again);
        invalid(&emulator, "CreateTable", twice, "Attribute Name is duplicated: p").await;
    }
    for (list, name) in [("AttributeDefinitions", "attributeDefinitions"), ("KeySchema", "keySchema")] {
        let mut long = table("made", &HASH);
        long[list][0]["AttributeName"] = json!(too_long);
        invalid(&emulator, "CreateTable", long, &format!("{name}.attributeName")).await;
    }
    let indexed = |keys: Value, projection: Value| {
        let mut request = table("made", &BOTH);
        let of_index = json!({"AttributeName": "i", "AttributeType": "S"});
        request["AttributeDefinitions"].as_array_mut().unwrap().push(of_index);
        request["LocalSecondaryIndexes"] = json!([{"IndexName": "by-i", "Projection": projection, "KeySchema": keys}]);
        request
    };
    let key = |name: &str, kind: &str| json!({"AttributeName": name, "KeyType": kind});
    let keys = json!([key("p", "HASH"), key("i", "RANGE")]);
    let all = json!({"ProjectionType": "ALL"});
    invalid(&emulator, "CreateTable", indexed(json!([key("i", "HASH")]), all.clone()), "needs the table's HASH key")
        .await;
    let some = json!({"ProjectionType": "INCLUDE", "NonKeyAttributes": ["x"]});
    invalid(&emulator, "CreateTable", indexed(keys.clone(), some), "NonKeyAttributes is not supported").await;
    call(&emulator, "CreateTable", indexed(keys, all)).await.unwrap();
    let wrong = json!({"TableName": "made", "Item": {"p": {"S": "a"}, "s": {"N": "1"}, "i": {"N": "1"}}});
    invalid(&emulator, "PutItem", wrong, "Type mismatch for Index Key i").await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_table_is_described_without_its_keys() {
    let emulator = started(Config::default()).await;
    let deleted = call(&emulator, "DeleteTable", json!({"TableName": "rows"})).await.unwrap();
    let description = deleted["TableDescription"].as_object().unwrap();
    for absent in ["KeySchema", "AttributeDefinitions", "CreationDateTime", "LocalSecondaryIndexes"] {
        assert!(!description.contains_key(absent), "{absent}");
    }
    for present in
        ["TableName", "TableArn", "TableId", "TableStatus", "ItemCount", "TableSizeBytes", "BillingModeSummary"]
    {
        assert!(description.contains_key(present), "{present}");
    }
    assert_eq!(description["TableStatus"], "DELETING");
}

#[tokio::test(start_paused = true)]
async fn a_malformed_stream_or_shard_name_is_a_validation_error() {
    let emulator = started(Config::default()).await;
    let listed = call(&emulator, "ListStreams", json!({"TableName": "rows"})).await.unwrap();
    let arn = listed["Streams"][0]["StreamArn"].as_str().unwrap();
    let described = call(&emulator, "DescribeStream", json!({"StreamArn": arn})).await.unwrap();
    let shard = described["StreamDescription"]["Shards"][0]["ShardId"].clone();
    let long = format!("{arn}{}", "x".repeat(1024));
    let wrong = [
        ("short", "greater than or equal to 37"),
        (long.as_str(), "less than or equal to 1024"),
        ("sdfadfsdfnlfkajakfgjalksfgklasjklasdjfklasdfasdfgasf", "Invalid StreamArn"),
        ("arn:aws:dynamodb:us-east-1:000000000000:table/rows", "Invalid StreamArn"),
        ("arn:aws:dynamodb:us-east-1:000000000000:table/rows/stream/", "Invalid StreamArn"),
        ("arn:aws:kinesis:us-east-1:000000000000:table/rows/stream/2024", "Invalid StreamArn"),
    ];
    for (arn, words) in wrong {
        invalid(&emulator, "DescribeStream", json!({"StreamArn": arn}), words).await;
        invalid(&emulator, "ListStreams", json!({"ExclusiveStartStreamArn": arn}), words).await;
        let iterator = json!({"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "LATEST"});
        invalid(&emulator, "GetShardIterator", iterator, words).await;
    }
    let missing = arn.replace("rows", "none");
    let refused = call(&emulator, "DescribeStream", json!({"StreamArn": missing})).await.unwrap_err();
    assert_eq!(kind(&refused), "ResourceNotFoundException");
    call(&emulator, "ListStreams", json!({"ExclusiveStartStreamArn": missing})).await.unwrap();

    let filtered = |filter: Value| json!({"StreamArn": arn, "ShardFilter": filter});
    for (filter, words) in [
        (json!({}), "shardFilter.type"),
        (json!({"Type": "CHILD_SHARDS"}), "shardFilter.shardId"),
        (json!({"Type": "PARENTS", "ShardId": shard}), "shardFilter.type"),
        (json!({"Type": "CHILD_SHARDS", "ShardId": ""}), "shardFilter.shardId"),
        (json!({"Type": "CHILD_SHARDS", "ShardId": "shardId-1"}), "shardFilter.shardId"),
        (json!({"Type": "CHILD_SHARDS", "ShardId": "x".repeat(37)}), "shardFilter.shardId"),
        (json!({"Type": "CHILD_SHARDS", "ShardId": format!("shardId-{}", "1".repeat(58))}), "shardFilter.shardId"),
    ] {
        invalid(&emulator, "DescribeStream", filtered(filter), words).await;
    }
    call(&emulator, "DescribeStream", filtered(json!({"Type": "CHILD_SHARDS", "ShardId": shard}))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_query_for_one_item_has_one_page() {
    let emulator = started(Config::default()).await;
    for (table, item) in [("hash", json!({"p": {"S": "a"}})), ("rows", json!({"p": {"S": "a"}, "s": {"N": "1"}}))] {
        call(&emulator, "PutItem", json!({"TableName": table, "Item": item})).await.unwrap();
    }
    let of_hash = json!({"TableName": "hash", "KeyConditionExpression": "p = :p", "ConsistentRead": true, "Limit": 1,
        "ExpressionAttributeValues": {":p": {"S": "a"}}});
    let of_both = json!({"TableName": "rows", "KeyConditionExpression": "p = :p AND s = :s", "ConsistentRead": true,
        "Limit": 1, "ExpressionAttributeValues": {":p": {"S": "a"}, ":s": {"N": "1"}}});
    let once = "at most one row and cannot be restarted";
    let outside = "outside query boundaries";
    let invalid_key = "starting key is invalid";
    for (query, start, words) in [
        (&of_hash, json!({"p": {"S": "a"}}), once),
        (&of_hash, json!({"p": {"S": "b"}}), outside),
        (&of_hash, json!({"p": {"N": "1"}}), invalid_key),
        (&of_hash, json!({"p": {"S": "a"}, "s": {"N": "1"}}), invalid_key),
        (&of_hash, json!({}), invalid_key),
        (&of_both, json!({"p": {"S": "a"}, "s": {"N": "1"}}), once),
        (&of_both, json!({"p": {"S": "a"}, "s": {"N": "2"}}), outside),
        (&of_both, json!({"p": {"S": "a"}}), invalid_key),
    ] {
        let found = call(&emulator, "Query", query.clone()).await.unwrap();
        assert_eq!((&found["Count"], found.get("LastEvaluatedKey")), (&json!(1), None), "{query}");
        let mut restarted = query.clone();
        restarted["ExclusiveStartKey"] = start;
        invalid(&emulator, "Query", restarted, words).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_member_is_a_validation_error() {
    let emulator = started(Config::default()).await;
    let with = |member: &str, value: Value| {
        let mut request = table("made", &HASH);
        request[member] = value;
        request
    };
    let batch = |request: Value| json!({"RequestItems": {"hash": [request]}});
    for (operation, request, member) in [
        ("CreateTable", with("TableName", Value::Null), ""),
        ("CreateTable", with("AttributeDefinitions", json!([{"AttributeName": "p"}])), " at 'attributeType'"),
        ("CreateTable", with("AttributeDefinitions", json!([{"AttributeType": "S"}])), " at 'attributeName'"),
        ("CreateTable", with("KeySchema", json!([{"AttributeName": "p"}])), " at 'keyType'"),
        ("CreateTable", with("KeySchema", Value::Null), ""),
        ("CreateTable", with("StreamSpecification", json!({"StreamViewType": "KEYS_ONLY"})), " at 'streamEnabled'"),
        ("CreateTable", with("ProvisionedThroughput", json!({"ReadCapacityUnits": 1})), " at 'writeCapacityUnits'"),
        ("PutItem", json!({"TableName": "hash"}), " at 'item'"),
        ("PutItem", json!({"TableName": null, "Item": {"p": {"S": "a"}}}), ""),
        ("GetItem", json!({"TableName": "hash"}), " at 'key'"),
        ("BatchWriteItem", batch(json!({"PutRequest": {}})), " at 'item'"),
        ("BatchWriteItem", batch(json!({"DeleteRequest": {"Key": null}})), ""),
        (
            "UpdateTimeToLive",
            json!({"TableName": "hash", "TimeToLiveSpecification": {"Enabled": true}}),
            " at 'attributeName'",
        ),
        ("DescribeStream", json!({}), " at 'streamArn'"),
    ] {
        let words = format!("Value null{member} failed to satisfy constraint: Member must not be null");
        invalid(&emulator, operation, request, &words).await;
    }
    let refused = call(&emulator, "PutItem", json!({"TableName": 5, "Item": {}})).await.unwrap_err();
    assert_eq!(kind(&refused), "SerializationException", "another type is not an absent member");
}

#[tokio::test(start_paused = true)]
async fn unsupported_parameters_are_refused_by_name() {
    let emulator = started(Config::default()).await;
    let put = |sort: &str| json!({"PutRequest": {"Item": {"p": {"S": "a"}, "s": {"N": sort}}}});
    let twice = json!({"RequestItems": {"rows": [put("1000"), put("1e3")]}});
    invalid(&emulator, "BatchWriteItem", twice, "contains duplicates").await;
    let mut encrypted = table("made", &HASH);
    encrypted["SSESpecification"] = json!({"Enabled": true});
    invalid(&emulator, "CreateTable", encrypted, "The parameter SSESpecification is not supported").await;
    let refused = call(&emulator, "DescribeEndpoints", json!({})).await.unwrap_err();
    assert_eq!(kind(&refused), "UnknownOperationException");
}

#[tokio::test(start_paused = true)]
async fn only_the_root_path_is_served_and_a_long_head_is_refused() {
    let emulator = started(Config::default()).await;
    let status = async |path: &str, padding: usize| {
        let request = Request::post(format!("http://localhost{path}"))
            .header("x-amz-target", "DynamoDB_20120810.ListTables")
            .header("authorization", "any")
            .header("x-padding", "x".repeat(padding));
        emulator.handle(request.body(Bytes::from_static(b"{}")).unwrap()).await.unwrap().status().as_u16()
    };
    for (path, padding, expected) in [("/", 0, 200), ("/", 16_000, 200), ("", 0, 200), ("/?x=1", 0, 200)] {
        assert_eq!(status(path, padding).await, expected, "{path} {padding}");
    }
    for path in ["/x", "//", "/dynamodb/", "/_control/stats"] {
        assert_eq!(status(path, 0).await, 404, "{path}");
    }
    assert_eq!(status("/", 17_000).await, 400);
    assert_eq!(status(&format!("/?{}", "x".repeat(17_000)), 0).await, 400);
}
