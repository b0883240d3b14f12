//! Tests what the emulator answers: eventually consistent reads, repeated transactions, reasons of cancelled ones,
//! limits, pages, costs and returned values.

use std::time::Duration;

use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

use crate::raw::{call, codes, invalid, kind, put as put_item, with_rows};

/// An emulator with a table `rows` with the keys `p` and `s`.
async fn started(config: Config) -> Emulator {
    with_rows(config, &[("p", "S"), ("s", "S")]).await
}

fn item(sort: &str, value: u32) -> Value {
    json!({"p": {"S": "p"}, "s": {"S": sort}, "v": {"N": value.to_string()}})
}

async fn put(emulator: &Emulator, sort: &str, value: u32) {
    put_item(emulator, item(sort, value)).await.unwrap();
}

fn key(sort: &str) -> Value {
    json!({"p": {"S": "p"}, "s": {"S": sort}})
}

/// The items that a query returns.
async fn seen(emulator: &Emulator, consistent: bool) -> Vec<Value> {
    seen_in(emulator, consistent, true).await
}

async fn seen_in(emulator: &Emulator, consistent: bool, forward: bool) -> Vec<Value> {
    let query = json!({
        "TableName": "rows", "ConsistentRead": consistent, "KeyConditionExpression": "p = :p",
        "ScanIndexForward": forward, "ExpressionAttributeValues": {":p": {"S": "p"}},
    });
    call(emulator, "Query", query).await.unwrap()["Items"].as_array().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn an_eventual_read_sees_one_point_in_time_within_the_lag_and_a_consistent_one_sees_now() {
    let step = Duration::from_millis(10);
    let emulator = started(Config { read_lag: Duration::from_millis(100), ..Config::default() }).await;
    // The table's states, one every 10 ms, after puts, overwrites and deletes in turn.
    let mut states: Vec<Vec<Value>> = vec![vec![]];
    let (mut late, mut reads) = (0, 0);
    for n in 0..60u32 {
        let sort = format!("s{}", n % 3);
        if n % 4 == 3 {
            call(&emulator, "DeleteItem", json!({"TableName": "rows", "Key": key(&sort)})).await.unwrap();
        } else {
            put(&emulator, &sort, n).await;
        }
        let now = seen(&emulator, true).await;
        states.push(now.clone());
        let possible = &states[states.len().saturating_sub(11)..];
        for forward in [true, false] {
            let mut read = seen_in(&emulator, false, forward).await;
            if !forward {
                read.reverse();
            }
            assert!(possible.contains(&read), "{read:?} was never so in {possible:?}");
            late += usize::from(read != now);
            reads += 1;
        }
        let got = call(&emulator, "GetItem", json!({"TableName": "rows", "Key": key(&sort)})).await.unwrap();
        let was = |state: &Vec<Value>| state.iter().find(|item| item["s"]["S"] == *sort) == got.get("Item");
        assert!(possible.iter().any(was));
        tokio::time::advance(step).await;
    }
    assert!(late > reads / 2, "only {late} of {reads} reads were late");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(seen(&emulator, false).await, seen(&emulator, true).await);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_executed_once_per_token_and_ten_minutes() {
    let emulator = started(Config::default()).await;
    let request = |add: &str| {
        json!({"ClientRequestToken": "token", "TransactItems": [{"Update": {
            "TableName": "rows", "Key": key("s"), "UpdateExpression": "ADD v :v", "ExpressionAttributeValues": {":v": {"N": add}},
        }}]})
    };
    let value = async || seen(&emulator, true).await[0]["v"]["N"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        call(&emulator, "TransactWriteItems", request("1")).await.unwrap();
    }
    assert_eq!(value().await, "1");
    let refused = call(&emulator, "TransactWriteItems", request("2")).await.unwrap_err();
    assert_eq!(kind(&refused), "IdempotentParameterMismatchException");
    emulator.advance_clock(Duration::from_secs(600));
    call(&emulator, "TransactWriteItems", request("1")).await.unwrap();
    assert_eq!(value().await, "1");
    emulator.advance_clock(Duration::from_millis(1));
    call(&emulator, "TransactWriteItems", request("1")).await.unwrap();
    assert_eq!(value().await, "2");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_transaction_changes_nothing_and_gives_each_action_its_reason() {
    let emulator = started(Config::default()).await;
    put(&emulator, "there", 1).await;
    let request = json!({"TransactItems": [
        {"Put": {"TableName": "rows", "Item": item("new", 2)}},
        {"ConditionCheck": {"TableName": "rows", "Key": key("there"), "ConditionExpression": "attribute_not_exists(p)",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}},
        {"Update": {"TableName": "rows", "Key": key("there2"), "UpdateExpression": "SET v = w + :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}},
    ]});
    let refused = call(&emulator, "TransactWriteItems", request).await.unwrap_err();
    assert_eq!(codes(&refused), ["None", "ConditionalCheckFailed", "ValidationError"]);
    assert_eq!(refused["CancellationReasons"][1]["Item"], item("there", 1));
    assert_eq!(seen(&emulator, true).await, [item("there", 1)]);
}

#[tokio::test(start_paused = true)]
async fn every_limit_is_refused_by_name() {
    let emulator = started(Config::default()).await;
    let puts = |count: u32| -> Vec<Value> {
        (0..count).map(|n| json!({"PutRequest": {"Item": item(&n.to_string(), n)}})).collect()
    };
    let keys = |count: u32| -> Vec<Value> { (0..count).map(|n| key(&n.to_string())).collect() };
    let actions = |count: u32| -> Vec<Value> {
        (0..count).map(|n| json!({"Put": {"TableName": "rows", "Item": item(&n.to_string(), n)}})).collect()
    };
    let mut big = item("big", 0);
    big["x"] = json!({"S": "x".repeat(400 * 1024)});
    let twice = json!({"Put": {"TableName": "rows", "Item": item("same", 1)}});
    let of_key = |p: &str, s: &str| json!({"TableName": "rows", "Item": {"p": {"S": p}, "s": {"S": s}}});
    let cases = [
        ("BatchWriteItem", json!({"RequestItems": {"rows": puts(26)}}), "less than or equal to 25"),
        ("BatchGetItem", json!({"RequestItems": {"rows": {"Keys": keys(101)}}}), "Too many items requested"),
        ("TransactWriteItems", json!({"TransactItems": actions(101)}), "less than or equal to 100"),
        ("TransactWriteItems", json!({"TransactItems": [twice, twice]}), "multiple operations on one item"),
        ("BatchWriteItem", json!({"RequestItems": {"rows": [puts(1)[0], puts(1)[0]]}}), "duplicates"),
        ("BatchGetItem", json!({"RequestItems": {"rows": {"Keys": [key("a"), key("a")]}}}), "duplicates"),
        ("PutItem", json!({"TableName": "rows", "Item": big}), "Item size has exceeded"),
        ("PutItem", of_key(&"x".repeat(2049), "s"), "2048 bytes"),
        ("PutItem", of_key("p", &"x".repeat(1025)), "1024 bytes"),
        ("PutItem", of_key("", "s"), "empty string value"),
        ("PutItem", json!({"TableName": "rows", "Item": {"p": {"S": "p"}}}), "Missing the key s"),
        ("PutItem", json!({"TableName": "rows", "Item": {"p": {"N": "1"}, "s": {"S": "s"}}}), "Type mismatch"),
        ("GetItem", json!({"TableName": "rows", "Key": {"p": {"S": "p"}}}), "does not match the schema"),
        ("PutItem", json!({"TableName": "rows", "Item": item("a", 1), "Expected": {}}), "Expected is not supported"),
        ("Query", json!({"TableName": "rows", "KeyConditions": {}}), "KeyConditions is not supported"),
        ("Scan", json!({"TableName": "rows", "Segment": 2, "TotalSegments": 2}), "zero-based"),
        ("Query", json!({"TableName": "rows", "IndexName": "none"}), "IndexName is not supported"),
    ];
    for (operation, request, words) in cases {
        invalid(&emulator, operation, request, words).await;
    }
    assert_eq!(seen(&emulator, true).await.len(), 0, "what was refused left no trace");
    call(&emulator, "BatchWriteItem", json!({"RequestItems": {"rows": puts(25)}})).await.unwrap();
    call(&emulator, "TransactWriteItems", json!({"TransactItems": actions(100)})).await.unwrap();
    call(&emulator, "BatchGetItem", json!({"RequestItems": {"rows": {"Keys": keys(100)}}})).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pages_end_at_a_megabyte_and_limits_count_what_was_read() {
    let emulator = started(Config::default()).await;
    for n in 0..5 {
        let mut item = item(&n.to_string(), n);
        item["x"] = json!({"S": "x".repeat(300_000)});
        put_item(&emulator, item).await.unwrap();
    }
    let query = json!({
        "TableName": "rows", "KeyConditionExpression": "p = :p", "FilterExpression": "v > :v", "Select": "COUNT", "ConsistentRead": true,
        "ExpressionAttributeValues": {":p": {"S": "p"}, ":v": {"N": "0"}}, "ReturnConsumedCapacity": "TOTAL",
    });
    let first = call(&emulator, "Query", query.clone()).await.unwrap();
    assert_eq!((&first["Count"], &first["ScannedCount"]), (&json!(2), &json!(3)));
    assert_eq!(first["LastEvaluatedKey"], key("2"));
    assert_eq!(first["ConsumedCapacity"]["CapacityUnits"], 220.0);
    let mut rest = query;
    rest["ExclusiveStartKey"] = first["LastEvaluatedKey"].clone();
    let second = call(&emulator, "Query", rest).await.unwrap();
    assert_eq!((&second["Count"], second.get("LastEvaluatedKey")), (&json!(2), None));
}

/// The table has one small item.
#[tokio::test(start_paused = true)]
async fn a_scan_costs_at_least_half_a_unit_for_each_partition_that_it_touches() {
    let emulator = started(Config::default()).await;
    put(&emulator, "a", 1).await;
    let scan = json!({"TableName": "rows", "ReturnConsumedCapacity": "TOTAL"});
    let cost = async |more: Value| {
        let mut scan = scan.clone();
        scan.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call(&emulator, "Scan", scan).await.unwrap()["ConsumedCapacity"]["CapacityUnits"].as_f64().unwrap()
    };
    assert_eq!(cost(json!({})).await, 2.0);
    assert_eq!(cost(json!({"ConsistentRead": true})).await, 4.0);
    for segment in 0..4 {
        // A segment is a partition, or half of one.
        for total in [4, 8] {
            let cost = cost(json!({"Segment": segment, "TotalSegments": total})).await;
            assert_eq!(cost, 0.5, "segment {segment} of {total}");
        }
    }
    // A page ends at its last item, and the next one begins there.
    let first = cost(json!({"Limit": 1})).await;
    let rest = cost(json!({"ExclusiveStartKey": key("a")})).await;
    assert_eq!(first + rest, 2.5, "the partition of the item is paid for twice");

    let few = json!({"ReadCapacityUnits": 3000, "WriteCapacityUnits": 1});
    let provisioned = json!({"TableName": "rows", "BillingMode": "PROVISIONED", "ProvisionedThroughput": few});
    call(&emulator, "UpdateTable", provisioned).await.unwrap();
    assert_eq!(cost(json!({})).await, 1.0, "3000 read units and one write unit take two partitions");
}

#[tokio::test(start_paused = true)]
async fn return_values_are_those_that_were_asked_for() {
    let emulator = started(Config::default()).await;
    put(&emulator, "a", 1).await;
    let update = |returns: &str, value: u32| {
        json!({"TableName": "rows", "Key": key("a"), "UpdateExpression": "SET v = :v", "ReturnValues": returns,
            "ExpressionAttributeValues": {":v": {"N": value.to_string()}}})
    };
    let attributes = async |request| call(&emulator, "UpdateItem", request).await.unwrap()["Attributes"].clone();
    assert_eq!(attributes(update("ALL_OLD", 2)).await, item("a", 1));
    assert_eq!(attributes(update("ALL_NEW", 3)).await, item("a", 3));
    assert_eq!(attributes(update("UPDATED_OLD", 4)).await, json!({"v": {"N": "3"}}));
    assert_eq!(attributes(update("UPDATED_NEW", 5)).await, json!({"v": {"N": "5"}}));
    assert_eq!(attributes(update("NONE", 6)).await, Value::Null);
    let refused = json!({"TableName": "rows", "Item": item("a", 1), "ConditionExpression": "v = :v",
        "ExpressionAttributeValues": {":v": {"N": "9"}}, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"});
    let refused = call(&emulator, "PutItem", refused).await.unwrap_err();
    assert_eq!((kind(&refused), &refused["Item"]), ("ConditionalCheckFailedException", &item("a", 6)));
}
