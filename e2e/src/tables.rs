//! What the tests do by hand to the emulated DynamoDB, past all simulated faults and delays: send a request as an
//! operator would, trim the stream of the likes table, or switch it off and on.

use std::future::Future;

use serde_json::{Value, json};
use tally_adapters::dynamodb::Stores;
use tally_core::ports::ChangeStream as _;
use tally_emulator::Emulator;

/// Removes all records of the stream shards that appear in the log, and returns their number. DynamoDB trims no record
/// younger than a day, and a loss in a shard of that age that does not appear in the log would be noticed by its age alone.
pub(crate) async fn trim(tables: &Stores, emulator: &Emulator) -> anyhow::Result<usize> {
    let label = tables.stream.info().await?.label;
    let logged = tables.changes.shards(&label).await?.into_iter().filter(|stored| stored.fed.to.is_some());
    // A shard that is gone has no records.
    Ok(logged.map(|stored| emulator.trim("likes", Some(stored.shard.id().as_str()), None).unwrap_or(0)).sum())
}

/// Runs `look` while no request fails and none is late, so that no time passes meanwhile.
pub(crate) async fn calmly<T>(emulator: &Emulator, look: impl Future<Output = T>) -> T {
    let rules = emulator.faults();
    emulator.set_faults(Vec::new());
    let found = look.await;
    emulator.set_faults(rules);
    found
}

/// Sends a request without faults, and returns whether it succeeded.
pub(crate) async fn send(emulator: &Emulator, operation: &str, body: &Value) -> bool {
    let answered = calmly(emulator, emulator.send(operation, body.to_string())).await;
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
