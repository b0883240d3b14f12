//! Tests of the table with the counters, over the emulator: conditional writes, reads, and crossings (updates that
//! reach milestones).

mod crossing;
mod properties;
mod reading;

use serde_json::{Value, json};
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::counters::{Counters, Update, Written};
use tally_core::changes::Place;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, PostId, Shard};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_testkit::{BEGAN, Store};

const TABLE: &str = "like_counts";

pub(crate) fn likes(post: &str) -> CounterId {
    CounterId::likes(PostId::new(post).unwrap())
}

pub(crate) fn key(post: &str) -> Value {
    json!({"post_id": {"S": post}})
}

pub(crate) fn shard(k: u16) -> Shard {
    Shard::new(k).unwrap()
}

pub(crate) fn at(offset: u64) -> Place {
    Place::new(1, Offset(offset))
}

/// The counter after shard `k` has gained `gain`, with everything before the offset `to`.
pub(crate) fn gained(before: Option<&Counter>, k: u16, gain: i64, to: u64) -> Counter {
    let mut counter = before.cloned().unwrap_or_default();
    counter.likes += gain;
    *counter.parts.entry(shard(k)).or_default() += gain;
    counter.reach(at(to));
    counter.updated_at = UnixMillis(BEGAN.0 + to);
    counter
}

pub(crate) fn update(post: &str, before: Option<&Counter>, after: &Counter) -> Update {
    Update { counter: likes(post), before: before.cloned(), after: after.clone() }
}

/// Writes one update, and returns its outcome.
pub(crate) async fn write(counters: &Counters, update: &Update) -> Written {
    let [written] = <[Written; 1]>::try_from(counters.write(std::slice::from_ref(update)).await.unwrap()).unwrap();
    written
}

/// A stored counter of the post with parts in two shards.
pub(crate) async fn stored(counters: &Counters, post: &str) -> Counter {
    let counter = gained(Some(&gained(None, 3, 5, 10)), 4, 2, 11);
    assert_eq!(write(counters, &update(post, None, &counter)).await, Written::Stored);
    counter
}

/// The current counter.
pub(crate) async fn now(counters: &Counters, post: &str) -> Option<Counter> {
    let read = counters.read(&[likes(post)], Consistency::Strong).await.unwrap();
    read.counters.get(&likes(post)).cloned().transpose().unwrap()
}

/// An empty store and its counters.
pub(crate) async fn start() -> (Store, Counters) {
    let store = Store::start().await;
    let counters = Counters::new(&store.connection);
    (store, counters)
}

#[tokio::test(start_paused = true)]
async fn an_update_of_a_deleted_counter_is_refused_and_the_counter_is_inserted_again() {
    let (store, counters) = start().await;
    let before = stored(&counters, "p").await;
    store.call("DeleteItem", json!({"TableName": TABLE, "Key": key("p")})).await;
    let after = gained(Some(&before), 3, 1, 12);
    assert_eq!(write(&counters, &update("p", Some(&before), &after)).await, Written::Refused(None));
    assert_eq!(write(&counters, &update("p", None, &after)).await, Written::Stored);
    assert_eq!(write(&counters, &update("p", None, &after)).await, Written::Refused(None));
}
