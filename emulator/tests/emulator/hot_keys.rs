//! Tests the emulator's limit of capacity units per second and partition key: requests for hot keys are throttled, and
//! no others.

use std::time::Duration;

use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

use crate::raw::{call, codes, kind, put as put_item, table};

const ON_DEMAND: &str = "PAY_PER_REQUEST";

/// An emulator with ten read and ten write units per second and key.
async fn started(billing: &str) -> Emulator {
    let emulator = Emulator::new(Config { key_write_units: Some(10), key_read_units: Some(10), ..Config::default() });
    let mut request = table("rows", &[("p", "S"), ("s", "S")]);
    if billing != ON_DEMAND {
        request["BillingMode"] = json!(billing);
        request["ProvisionedThroughput"] = json!({"ReadCapacityUnits": 9, "WriteCapacityUnits": 9});
    }
    call(&emulator, "CreateTable", request).await.unwrap();
    emulator
}

fn item(p: &str, s: &str) -> Value {
    json!({"p": {"S": p}, "s": {"S": s}})
}

async fn put(emulator: &Emulator, p: &str, s: &str) -> Result<Value, Value> {
    put_item(emulator, item(p, s)).await
}

/// Writes under `p` until a write is throttled, and returns the number of successful ones and the error.
async fn heat(emulator: &Emulator, p: &str) -> (usize, Value) {
    for taken in 0.. {
        if let Err(refused) = put(emulator, p, &format!("s{taken}")).await {
            return (taken, refused);
        }
    }
    unreachable!("a key takes a write")
}

fn puts(keys: &[&str]) -> Value {
    let puts = keys.iter().map(|p| json!({"Put": {"TableName": "rows", "Item": item(p, "t")}}));
    json!({"TransactItems": puts.collect::<Vec<_>>()})
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_throttled_by_name_until_its_units_are_back() {
    for (billing, exception, member) in [
        (ON_DEMAND, "ThrottlingException", "throttlingReasons"),
        ("PROVISIONED", "ProvisionedThroughputExceededException", "ThrottlingReasons"),
    ] {
        let emulator = started(billing).await;
        let (taken, refused) = heat(&emulator, "hot").await;
        assert_eq!((taken, kind(&refused)), (10, exception), "{refused}");
        let reason = &refused[member][0];
        assert_eq!(reason["reason"], "TableWriteKeyRangeThroughputExceeded", "{refused}");
        assert!(reason["resource"].as_str().unwrap().ends_with(":table/rows"), "{refused}");
        put(&emulator, "cold", "s").await.unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        put(&emulator, "hot", "s").await.expect("a hundredth of a unit is there");
        tokio::time::advance(Duration::from_millis(99)).await;
        put(&emulator, "hot", "s").await.expect_err("it was overdrawn by all but that");
        tokio::time::advance(Duration::from_millis(1)).await;
        put(&emulator, "hot", "s").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_with_hot_keys_names_their_positions_and_does_nothing() {
    let emulator = started(ON_DEMAND).await;
    heat(&emulator, "hot").await;
    let refused = call(&emulator, "TransactWriteItems", puts(&["a", "hot", "b"])).await.unwrap_err();
    assert_eq!(codes(&refused), ["None", "ThrottlingError", "None"]);
    let get = json!({"TableName": "rows", "Key": item("a", "t"), "ConsistentRead": true});
    assert_eq!(call(&emulator, "GetItem", get).await.unwrap(), json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_transaction_costs_two_units_per_item_and_half_of_that_if_it_is_cancelled() {
    let emulator = started(ON_DEMAND).await;
    let mut paid = puts(&["paid"]);
    paid["ReturnConsumedCapacity"] = json!("TOTAL");
    for _ in 0..5 {
        let answer = call(&emulator, "TransactWriteItems", paid.clone()).await.unwrap();
        assert_eq!(answer["ConsumedCapacity"][0]["WriteCapacityUnits"], 2.0);
    }
    call(&emulator, "TransactWriteItems", puts(&["paid"])).await.unwrap_err();
    let mut request = puts(&["cancelled"]);
    request["TransactItems"][0]["Put"]["ConditionExpression"] = json!("attribute_exists(p)");
    for _ in 0..10 {
        let refused = call(&emulator, "TransactWriteItems", request.clone()).await.unwrap_err();
        assert_eq!(codes(&refused), ["ConditionalCheckFailed"]);
    }
    let refused = call(&emulator, "TransactWriteItems", request).await.unwrap_err();
    assert_eq!(codes(&refused), ["ThrottlingError"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_leaves_hot_keys_out_and_is_throttled_if_it_has_no_others() {
    let emulator = started(ON_DEMAND).await;
    heat(&emulator, "hot").await;
    let write = |keys: &[&str]| {
        let puts = keys.iter().map(|p| json!({"PutRequest": {"Item": item(p, "b")}}));
        json!({"RequestItems": {"rows": puts.collect::<Vec<_>>()}})
    };
    let answer = call(&emulator, "BatchWriteItem", write(&["hot", "cold"])).await.unwrap();
    assert_eq!(answer["UnprocessedItems"], json!({"rows": [{"PutRequest": {"Item": item("hot", "b")}}]}));
    assert_eq!(kind(&call(&emulator, "BatchWriteItem", write(&["hot"])).await.unwrap_err()), "ThrottlingException");
}

#[tokio::test(start_paused = true)]
async fn reads_have_a_limit_of_their_own() {
    let emulator = started(ON_DEMAND).await;
    put(&emulator, "hot", "s").await.unwrap();
    let get = json!({"TableName": "rows", "Key": item("hot", "s"), "ConsistentRead": true});
    for _ in 0..10 {
        call(&emulator, "GetItem", get.clone()).await.unwrap();
    }
    let query = json!({
        "TableName": "rows", "KeyConditionExpression": "p = :p", "ExpressionAttributeValues": {":p": {"S": "hot"}},
    });
    let transaction = json!({"TransactItems": [
        {"Get": {"TableName": "rows", "Key": item("cold", "s")}}, {"Get": {"TableName": "rows", "Key": item("hot", "s")}},
    ]});
    for (operation, request) in [("GetItem", &get), ("Query", &query)] {
        let refused = call(&emulator, operation, request.clone()).await.unwrap_err();
        assert_eq!(refused["throttlingReasons"][0]["reason"], "TableReadKeyRangeThroughputExceeded", "{operation}");
    }
    let refused = call(&emulator, "TransactGetItems", transaction).await.unwrap_err();
    assert_eq!(codes(&refused), ["None", "ThrottlingError"]);
    let batch = |keys: &[&str]| {
        let keys: Vec<Value> = keys.iter().map(|p| item(p, "s")).collect();
        json!({"RequestItems": {"rows": {"Keys": keys}}})
    };
    let answer = call(&emulator, "BatchGetItem", batch(&["hot", "cold"])).await.unwrap();
    assert_eq!(answer["UnprocessedKeys"]["rows"]["Keys"], json!([item("hot", "s")]));
    call(&emulator, "BatchGetItem", batch(&["hot"])).await.unwrap_err();
    put(&emulator, "hot", "other").await.expect("writes are not reads");
    call(&emulator, "Scan", json!({"TableName": "rows"})).await.expect("a scan has no limit");
}
