//! Tests what the table `checkpoints` stores about the log of changes, the Kafka topic `changes`: its configuration,
//! the positions of its readers, which only move forward, stream shards and losses.

mod config;
mod losses;
mod partitions;
mod shards;

use serde_json::{Value, json};
use tally_adapters::dynamodb::changes::Changes;
use tally_core::changes::LossNumber;
use tally_core::ids::StreamLabel;
use tally_core::relay::Fed;
use tally_testkit::{BEGAN, Store};

pub(crate) const TABLE: &str = "checkpoints";

/// An empty store, and access to what it stores about the log.
pub(crate) async fn start() -> (Store, Changes) {
    let store = Store::start().await;
    let changes = Changes::new(&store.connection);
    (store, changes)
}

pub(crate) fn key(id: &str) -> Value {
    json!({"id": {"S": id}})
}

#[tokio::test(start_paused = true)]
async fn items_of_different_kinds_never_have_the_same_key() {
    let (store, changes) = start().await;
    changes.begin_log(&config::topic("t-1", 12)).await.unwrap();
    changes.state(3, &partitions::stated(1, 1)).await.unwrap().unwrap();
    changes.store_position(3, &partitions::position(1)).await.unwrap();
    changes.begin(&"2026/a".into(), None, Fed::default()).await.unwrap();
    changes.open_loss(LossNumber(7), "trimmed", "2026/a").await.unwrap();
    let mut ids: Vec<_> = store.items(TABLE).await.iter().map(|item| item["id"]["S"].to_string()).collect();
    ids.sort();
    assert_eq!(
        ids.join(" "),
        r#""changes/config" "changes/losses" "changes/position/3" "changes/shard/2026/a" "changes/standing/3""#
    );
    assert_eq!(changes.shards(&StreamLabel::from("2026")).await.unwrap().len(), 1);
    assert_eq!(changes.standings(12).await.unwrap().len(), 1);
    assert_eq!(changes.losses().await.unwrap().next(BEGAN), LossNumber(BEGAN.0));
}
