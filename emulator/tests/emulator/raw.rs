//! The emulator as JSON in, JSON out, without an SDK in between.

use bytes::Bytes;
use http::Request;
use serde_json::Value;
use tally_emulator::Emulator;

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
