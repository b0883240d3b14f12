//! Requests to the emulator without faults or delays, for what operators and tests do by hand.

use bytes::Bytes;
use serde_json::{Value, json};
use tally_emulator::Emulator;

/// Sends a request, and returns whether it succeeded.
pub(crate) async fn send(emulator: &Emulator, operation: &str, body: &Value) -> bool {
    ask(emulator, operation, body).await.is_some()
}

/// Sends a request, and returns the answer if it succeeded.
pub(crate) async fn ask(emulator: &Emulator, operation: &str, body: &Value) -> Option<Value> {
    let request = http::Request::post("http://in-process.invalid/")
        .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
        .header("authorization", "observer")
        .body(Bytes::from(body.to_string()))
        .expect("every part is valid");
    let rules = emulator.faults();
    emulator.set_faults(Vec::new());
    let answered = emulator.handle(request).await;
    emulator.set_faults(rules);
    let response = answered.ok().filter(|response| response.status().is_success())?;
    serde_json::from_slice(response.body()).ok()
}

/// Switches the stream of the likes table on or off, and returns whether that succeeded.
pub(crate) async fn switch_stream(emulator: &Emulator, on: bool) -> bool {
    let specification = if on {
        json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"})
    } else {
        json!({"StreamEnabled": false})
    };
    send(emulator, "UpdateTable", &json!({"TableName": "likes", "StreamSpecification": specification})).await
}
