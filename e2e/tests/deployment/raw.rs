//! Requests by the wire protocol alone.

use bytes::Bytes;
use serde_json::Value;
use tally_emulator::Emulator;

pub(crate) async fn call(emulator: &Emulator, operation: &str, body: Value) -> Value {
    let request = http::Request::post("http://in-process.invalid/")
        .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
        .header("authorization", "test")
        .body(Bytes::from(body.to_string()))
        .unwrap();
    let response = emulator.handle(request).await.ok().unwrap();
    let (status, body) = (response.status(), response.into_body());
    assert!(status.is_success(), "{operation}: {body:?}");
    serde_json::from_slice(&body).unwrap()
}
