//! Requests to the emulator that no fault reaches and that are answered at once: what an operator does, or what a test does
//! by hand.

use bytes::Bytes;
use serde_json::{Value, json};
use tally_emulator::Emulator;

/// Sends a request; whether it was carried out.
pub(crate) async fn send(emulator: &Emulator, operation: &str, body: &Value) -> bool {
    ask(emulator, operation, body).await.is_some()
}

/// Sends a request; the answer, if it was carried out.
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

/// Switches the stream of the likes table on or off; whether it was switched.
pub(crate) async fn switch_stream(emulator: &Emulator, on: bool) -> bool {
    let specification = if on {
        json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"})
    } else {
        json!({"StreamEnabled": false})
    };
    send(emulator, "UpdateTable", &json!({"TableName": "likes", "StreamSpecification": specification})).await
}
