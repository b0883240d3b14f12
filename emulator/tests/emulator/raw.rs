//! The emulator as JSON in, JSON out, without an SDK in between.

use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

/// One request, which must be answered: with a result, or with the body of a refusal.
pub(crate) async fn call(emulator: &Emulator, operation: &str, body: Value) -> Result<Value, Value> {
    let api = match operation {
        "ListStreams" | "DescribeStream" | "GetShardIterator" | "GetRecords" => "DynamoDBStreams_20120810",
        _ => "DynamoDB_20120810",
    };
    let request = Request::post("http://localhost/")
        .header("x-amz-target", format!("{api}.{operation}"))
        .header("authorization", "any")
        .body(Bytes::from(body.to_string()))
        .unwrap();
    let response = emulator.handle(request).await.expect("no fault may lose this request");
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    if response.status().is_success() { Ok(body) } else { Err(body) }
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

/// What kind of refusal it is.
pub(crate) fn kind(refused: &Value) -> &str {
    refused["__type"].as_str().unwrap().rsplit('#').next().unwrap()
}
