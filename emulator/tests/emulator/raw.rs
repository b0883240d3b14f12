//! The emulator as JSON in, JSON out, without an SDK in between.

use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator, Lost};

/// One request, which may be lost, or answered: with a result, or with the body of a refusal.
pub(crate) async fn send(emulator: &Emulator, operation: &str, body: Value) -> Result<Result<Value, Value>, Lost> {
    let api = match operation {
        "ListStreams" | "DescribeStream" | "GetShardIterator" | "GetRecords" => "DynamoDBStreams_20120810",
        _ => "DynamoDB_20120810",
    };
    let request = Request::post("http://localhost/")
        .header("x-amz-target", format!("{api}.{operation}"))
        .header("authorization", "any")
        .body(Bytes::from(body.to_string()))
        .unwrap();
    let response = emulator.handle(request).await?;
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    Ok(if response.status().is_success() { Ok(body) } else { Err(body) })
}

/// One request, which must be answered.
pub(crate) async fn call(emulator: &Emulator, operation: &str, body: Value) -> Result<Value, Value> {
    send(emulator, operation, body).await.expect("no fault may lose this request")
}

/// A request for a table with a stream, whose keys are these attributes, each of its type.
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

/// Stores an item in `rows`.
pub(crate) async fn put(emulator: &Emulator, item: Value) -> Result<Value, Value> {
    call(emulator, "PutItem", json!({"TableName": "rows", "Item": item})).await
}

/// Everything in a table, now.
pub(crate) async fn items(emulator: &Emulator, table: &str) -> Vec<Value> {
    pages(emulator, "Scan", json!({"TableName": table})).await
}

/// Everything that a scan or a query finds, over all of its pages.
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

/// What kind of refusal it is.
pub(crate) fn kind(refused: &Value) -> &str {
    refused["__type"].as_str().unwrap().rsplit('#').next().unwrap()
}

/// Why each action of a transaction cancelled it.
pub(crate) fn codes(refused: &Value) -> Vec<&str> {
    assert_eq!(kind(refused), "TransactionCanceledException", "{refused}");
    let reasons = refused["CancellationReasons"].as_array().unwrap();
    reasons.iter().map(|reason| reason["Code"].as_str().unwrap()).collect()
}
