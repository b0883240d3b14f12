//! Requests to the emulator without faults or delays, for what operators and tests do by hand.

use serde_json::{Value, json};
use tally_emulator::Emulator;

/// Sends a request, and returns whether it succeeded.
pub(crate) async fn send(emulator: &Emulator, operation: &str, body: &Value) -> bool {
    let rules = emulator.faults();
    emulator.set_faults(Vec::new());
    let answered = emulator.send(operation, body.to_string()).await;
    emulator.set_faults(rules);
    answered.is_ok_and(|response| response.status().is_success())
}

/// Switches the stream of the likes table on or off.
pub(crate) async fn switch_stream(emulator: &Emulator, on: bool) -> anyhow::Result<()> {
    let specification = match on {
        true => json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"}),
        false => json!({"StreamEnabled": false}),
    };
    let switch = json!({"TableName": "likes", "StreamSpecification": specification});
    anyhow::ensure!(send(emulator, "UpdateTable", &switch).await, "the stream could not be switched");
    Ok(())
}
