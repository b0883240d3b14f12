//! Tests updates of items that do not exist, alone and in a transaction, and how the emulator checks transactions
//! before it executes them.

use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

use crate::raw::{call, codes, invalid, items, kind, put, with_rows};
use crate::reader;

/// An emulator with a table `rows` with the hash key `p`, and its stream.
async fn started() -> (Emulator, String) {
    let config = Config { shards: 1, roll_after: None, ..Config::default() };
    let emulator = with_rows(config, &[("p", "S")]).await;
    let arn = reader::stream_arn(&emulator, "rows").await;
    (emulator, arn)
}

/// The kinds of changes in the stream.
async fn events(emulator: &Emulator, arn: &str) -> Vec<String> {
    let records = reader::everything(emulator, arn, 1000).await.into_iter().flat_map(|(_, records)| records);
    records.map(|record| record["eventName"].as_str().unwrap().to_owned()).collect()
}

fn update(key: &str, expression: &str) -> Value {
    let mut update = json!({"TableName": "rows", "Key": {"p": {"S": key}}, "UpdateExpression": expression});
    if expression.contains(":s") {
        update["ExpressionAttributeValues"] = json!({":s": {"SS": ["a"]}});
    }
    update
}

const TAKES_AWAY: [&str; 6] =
    ["REMOVE x", "REMOVE x.y", "REMOVE x[0], y", "DELETE x :s", "DELETE x.y :s", "REMOVE x DELETE y :s"];

#[tokio::test(start_paused = true)]
async fn an_update_that_only_removes_creates_no_item_and_no_record() {
    let (emulator, arn) = started().await;
    for expression in TAKES_AWAY {
        for returns in ["NONE", "ALL_OLD", "ALL_NEW", "UPDATED_OLD", "UPDATED_NEW"] {
            let mut request = update("absent", expression);
            request["ReturnValues"] = json!(returns);
            request["ReturnConsumedCapacity"] = json!("TOTAL");
            let answer = call(&emulator, "UpdateItem", request).await.unwrap();
            let cost = json!({"ConsumedCapacity": {"TableName": "rows", "CapacityUnits": 1.0}});
            assert_eq!(answer, cost, "{expression} {returns}");
        }
    }
    assert_eq!((items(&emulator, "rows").await, events(&emulator, &arn).await), (vec![], vec![]));
    let mut actions = vec![json!({"Put": {"TableName": "rows", "Item": {"p": {"S": "put"}}}})];
    let absent = TAKES_AWAY.iter().enumerate().map(|(n, expression)| update(&format!("absent{n}"), expression));
    actions.extend(absent.map(|update| json!({"Update": update})));
    call(&emulator, "TransactWriteItems", json!({"TransactItems": actions})).await.unwrap();
    assert_eq!(items(&emulator, "rows").await, [json!({"p": {"S": "put"}})]);
    assert_eq!(events(&emulator, &arn).await, ["INSERT"]);
}

#[tokio::test(start_paused = true)]
async fn the_condition_of_such_an_update_is_evaluated_nevertheless() {
    let (emulator, _) = started().await;
    let mut request = update("absent", "REMOVE x");
    request["ConditionExpression"] = json!("attribute_exists(p)");
    let refused = call(&emulator, "UpdateItem", request.clone()).await.unwrap_err();
    assert_eq!(kind(&refused), "ConditionalCheckFailedException");
    request["ConditionExpression"] = json!("attribute_not_exists(p)");
    call(&emulator, "UpdateItem", request).await.unwrap();
    assert!(items(&emulator, "rows").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn any_other_update_creates_the_item() {
    let (emulator, arn) = started().await;
    call(&emulator, "UpdateItem", json!({"TableName": "rows", "Key": {"p": {"S": "bare"}}})).await.unwrap();
    call(&emulator, "UpdateItem", update("added", "ADD x :s REMOVE y")).await.unwrap();
    let mut found = items(&emulator, "rows").await;
    found.sort_by_key(Value::to_string);
    assert_eq!(found, [json!({"p": {"S": "added"}, "x": {"SS": ["a"]}}), json!({"p": {"S": "bare"}})]);
    assert_eq!(events(&emulator, &arn).await, ["INSERT", "INSERT"]);
}

#[tokio::test(start_paused = true)]
async fn an_item_whose_last_attribute_is_removed_stays() {
    let (emulator, arn) = started().await;
    call(&emulator, "UpdateItem", update("kept", "ADD x :s")).await.unwrap();
    call(&emulator, "UpdateItem", update("kept", "REMOVE x")).await.unwrap();
    assert_eq!(items(&emulator, "rows").await, [json!({"p": {"S": "kept"}})]);
    assert_eq!(events(&emulator, &arn).await, ["INSERT", "MODIFY"]);
    let refused = call(&emulator, "UpdateItem", update("kept", "REMOVE x.y")).await.unwrap_err();
    assert_eq!(kind(&refused), "ValidationException", "the path is looked at where there is an item");
}

#[tokio::test(start_paused = true)]
async fn an_invalid_key_cancels_the_transaction_before_any_condition_is_evaluated() {
    let (emulator, _) = started().await;
    let put = |item: Value| json!({"Put": {"TableName": "rows", "Item": item}});
    let mut unmet = put(json!({"p": {"S": "new"}}));
    unmet["Put"]["ConditionExpression"] = json!("attribute_exists(p)");
    let wrong = put(json!({"p": {"N": "7"}}));
    for (first, reason) in [
        (wrong.clone(), "Type mismatch for key p"),
        (put(json!({"x": {"S": "no key"}})), "Missing the key p"),
        (put(json!({"p": {"S": "big"}, "x": {"S": "x".repeat(400 * 1024)}})), "Item size has exceeded"),
        (json!({"Update": update("u", "REMOVE p")}), "part of the key"),
        (json!({"Delete": {"TableName": "rows", "Key": {"p": {"N": "7"}}}}), "does not match the schema"),
    ] {
        let request = json!({"TransactItems": [put(json!({"p": {"S": "fine"}})), first, wrong, unmet]});
        let refused = call(&emulator, "TransactWriteItems", request).await.unwrap_err();
        assert_eq!(codes(&refused), ["None", "ValidationError", "None", "None"], "{reason}");
        let message = refused["CancellationReasons"][1]["Message"].as_str().unwrap();
        assert!(message.contains(reason), "{message:?} does not say {reason:?}");
    }
    assert!(items(&emulator, "rows").await.is_empty());
    let get = |key: Value| json!({"Get": {"TableName": "rows", "Key": key}});
    let request = json!({"TransactItems": [get(json!({"p": {"S": "a"}})), get(json!({"p": {"N": "1"}}))]});
    let refused = call(&emulator, "TransactGetItems", request).await.unwrap_err();
    assert_eq!(codes(&refused), ["None", "ValidationError"]);
}

#[tokio::test(start_paused = true)]
async fn the_size_of_a_transaction_is_that_of_its_request() {
    let (emulator, _) = started().await;
    let big = |n: usize| json!({"p": {"S": n.to_string()}, "x": {"S": "x".repeat(100_000)}});
    for n in 0..50 {
        put(&emulator, big(n)).await.unwrap();
    }
    let puts: Vec<Value> = (0..50).map(|n| json!({"Put": {"TableName": "rows", "Item": big(n)}})).collect();
    invalid(&emulator, "TransactWriteItems", json!({"TransactItems": puts}), "size cannot exceed").await;
    let key = |n: usize| json!({"TableName": "rows", "Key": {"p": {"S": n.to_string()}}});
    let deletes: Vec<Value> = (0..50).map(|n| json!({"Delete": key(n)})).collect();
    call(&emulator, "TransactWriteItems", json!({"TransactItems": deletes})).await.unwrap();
    assert!(items(&emulator, "rows").await.is_empty());
}
