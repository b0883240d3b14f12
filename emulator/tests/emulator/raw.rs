//! Helpers of the emulator's tests that send requests as JSON, without an SDK.

use serde_json::{Value, json};
use tally_emulator::{Config, Emulator, Lost};

/// Sends one request, which may be lost, succeed, or fail with the body of an error.
pub(crate) async fn send(emulator: &Emulator, operation: &str, body: Value) -> Result<Result<Value, Value>, Lost> {
    let response = emulator.send(operation, body.to_string()).await?;
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    Ok(if response.status().is_success() { Ok(body) } else { Err(body) })
}

/// Sends one request, which must be answered.
pub(crate) async fn call(emulator: &Emulator, operation: &str, body: Value) -> Result<Value, Value> {
    send(emulator, operation, body).await.expect("no fault may lose this request")
}

/// A request for a table with a stream and these typed key attributes.
pub(crate) fn table(name: &str, keys: &[(&str, &str)]) -> Value {
    let attribute = |(name, kind): &(&str, &str)| json!({"AttributeName": name, "AttributeType": kind});
    let schema =
        keys.iter().zip(["HASH", "RANGE"]).map(|((name, _), kind)| json!({"AttributeName": name, "KeyType": kind}));
    json!({
        "TableName": name, "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": keys.iter().map(attribute).collect::<Vec<_>>(), "KeySchema": schema.collect::<Vec<_>>(),
        "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    })
}

/// An emulator with such a table `rows`.
pub(crate) async fn with_rows(config: Config, keys: &[(&str, &str)]) -> Emulator {
    let emulator = Emulator::new(config);
    call(&emulator, "CreateTable", table("rows", keys)).await.unwrap();
    emulator
}

/// Puts an item into `rows`.
pub(crate) async fn put(emulator: &Emulator, item: Value) -> Result<Value, Value> {
    call(emulator, "PutItem", json!({"TableName": "rows", "Item": item})).await
}

/// All items of a table.
pub(crate) async fn items(emulator: &Emulator, table: &str) -> Vec<Value> {
    pages(emulator, "Scan", json!({"TableName": table})).await
}

/// All items of a scan or a query, over all pages.
pub(crate) async fn pages(emulator: &Emulator, operation: &str, mut request: Value) -> Vec<Value> {
    request["ConsistentRead"] = json!(true);
    let mut items = Vec::new();
    loop {
        let page = call(emulator, operation, request.clone()).await.unwrap();
        items.extend(page["Items"].as_array().unwrap().iter().cloned());
        match &page["LastEvaluatedKey"] {
            Value::Null => return items,
            last => request["ExclusiveStartKey"] = last.clone(),
        }
    }
}

/// Checks that the request is refused with a `ValidationException` whose message contains `words`.
pub(crate) async fn invalid(emulator: &Emulator, operation: &str, request: Value, words: &str) {
    let refused = call(emulator, operation, request).await.expect_err(words);
    let message = refused["message"].as_str().unwrap();
    assert!(kind(&refused) == "ValidationException" && message.contains(words), "{refused} is not {words:?}");
}

/// The kind of an error.
pub(crate) fn kind(refused: &Value) -> &str {
    refused["__type"].as_str().unwrap().rsplit('#').next().unwrap()
}

/// The cancellation reason of each action of a transaction.
pub(crate) fn codes(refused: &Value) -> Vec<&str> {
    assert_eq!(kind(refused), "TransactionCanceledException", "{refused}");
    let reasons = refused["CancellationReasons"].as_array().unwrap();
    reasons.iter().map(|reason| reason["Code"].as_str().unwrap()).collect()
}
