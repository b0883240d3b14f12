//! Writes of counters: repeated, late and failed updates.

use std::time::Duration;

use serde_json::{Value, json};
use tally_adapters::dynamodb::counters::Written;
use tally_core::fault::Fault;
use tally_core::fold::Counter;
use tally_emulator::{Fault as Injected, Rule};

use super::{TABLE, at, gained, key, now, shard, start, stored, update, write};

#[tokio::test(start_paused = true)]
async fn an_update_only_sets_what_differs() {
    let (store, counters) = start().await;
    let before = stored(&counters, "p").await;
    store.edit(TABLE, key("p"), "note", json!({"S": "kept"})).await;
    let mut after = gained(Some(&before), 3, 1, 12);
    (after.gap, after.corrections) = (Some(at(9)), 1);
    after.doubt = [shard(4), shard(7)].into();
    assert_eq!(write(&counters, &update("p", Some(&before), &after)).await, Written::Stored);
    assert_eq!(now(&counters, "p").await, Some(after.clone()));
    let item = store.item(TABLE, key("p")).await;
    assert_eq!((&item["note"]["S"], &item["s4"]["N"]), (&json!("kept"), &json!("2")));
}

#[tokio::test(start_paused = true)]
async fn repeating_an_update_whose_answer_was_lost_changes_nothing() {
    let (store, counters) = start().await;
    let first = gained(None, 3, 5, 10);
    let insert = update("p", None, &first);
    store.faults([Rule::new(Injected::DropReply).on("PartiQLInsert").nth(1)]);
    assert!(matches!(write(&counters, &insert).await, Written::Failed(Fault::Transient(_))));
    assert_eq!(write(&counters, &insert).await, Written::Refused(None));
    assert_eq!(now(&counters, "p").await, Some(first.clone()));

    let second = gained(Some(&first), 3, 1, 11);
    let update = update("p", Some(&first), &second);
    store.faults([Rule::new(Injected::DropReply).on("PartiQLUpdate").nth(1)]);
    assert!(matches!(write(&counters, &update).await, Written::Failed(Fault::Transient(_))));
    let item = store.item(TABLE, key("p")).await;
    assert_eq!(write(&counters, &update).await, Written::Refused(Some(second)));
    assert_eq!(store.item(TABLE, key("p")).await, item);
}

#[tokio::test(start_paused = true)]
async fn an_update_that_arrives_after_a_later_one_is_refused() {
    let (store, counters) = start().await;
    let before = stored(&counters, "p").await;
    let ghost = Injected::Ghost { max_delay_ms: 60_000, hang_ms: 0 };
    store.faults([Rule::new(ghost).on("PartiQLUpdate").nth(1), Rule::new(ghost).on("PartiQLInsert").nth(1)]);
    let late = update("p", Some(&before), &gained(Some(&before), 3, 1, 12));
    assert!(matches!(write(&counters, &late).await, Written::Failed(Fault::Transient(_))));
    let first = gained(None, 0, 1, 1);
    assert!(matches!(write(&counters, &update("q", None, &first)).await, Written::Failed(Fault::Transient(_))));

    let after = gained(Some(&before), 3, 2, 13);
    assert_eq!(write(&counters, &update("p", Some(&before), &after)).await, Written::Stored);
    let second = gained(Some(&first), 0, 1, 2);
    assert_eq!(write(&counters, &update("q", None, &second)).await, Written::Stored);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!((now(&counters, "p").await, now(&counters, "q").await), (Some(after), Some(second)));
    assert_eq!(store.emulator.stats().ghosts_applied, 2);
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

#[tokio::test(start_paused = true)]
async fn an_empty_batch_is_not_sent_and_one_that_is_refused_as_a_whole_writes_nothing() {
    let (store, counters) = start().await;
    assert_eq!(counters.write(&[]).await, Ok(vec![]));
    assert_eq!(store.requests("BatchExecuteStatement"), 0);
    let counter = gained(None, 3, 1, 10);
    let updates = ["p", "q"].map(|post| update(post, None, &counter));
    store.faults([Rule::new(Injected::Throttle).on("BatchExecuteStatement").nth(1)]);
    assert!(matches!(counters.write(&updates).await, Err(Fault::Throttled(_))));
    store.faults([Rule::new(Injected::Outage).on("BatchExecuteStatement").nth(1)]);
    assert!(matches!(counters.write(&updates).await, Err(Fault::Transient(_))));
    assert_eq!(store.items(TABLE).await, [] as [Value; 0]);
    assert_eq!(counters.write(&updates).await, Ok(vec![Written::Stored; 2]));
}

#[tokio::test(start_paused = true)]
async fn the_update_of_a_damaged_item_fails_and_names_it() {
    let (store, counters) = start().await;
    let before = stored(&counters, "p").await;
    store.edit(TABLE, key("p"), "s4", json!({"S": "two"})).await;
    let after = gained(Some(&before), 4, 1, 12);
    let Written::Failed(Fault::Poison(message)) = write(&counters, &update("p", Some(&before), &after)).await else {
        panic!("what is damaged was overwritten")
    };
    assert_eq!(message, "table like_counts, item post_id \"p\": s4: not a number");
}

#[tokio::test(start_paused = true)]
async fn a_counter_with_all_shards_is_written_and_changed_at_once() {
    let (_store, counters) = start().await;
    let every = |before: Option<&Counter>, to| {
        (0..256).fold(before.cloned().unwrap_or_default(), |counter, k| gained(Some(&counter), k, 1, to))
    };
    let sparse = gained(None, 0, 1, 1);
    assert_eq!(write(&counters, &update("p", None, &sparse)).await, Written::Stored);
    let wide = every(Some(&sparse), 2);
    assert_eq!(write(&counters, &update("p", Some(&sparse), &wide)).await, Written::Stored);
    assert_eq!(write(&counters, &update("p", Some(&wide), &every(Some(&wide), 3))).await, Written::Stored);
    assert_eq!(write(&counters, &update("q", None, &wide)).await, Written::Stored);
    assert_eq!(now(&counters, "p").await.map(|counter| (counter.likes, counter.parts.len())), Some((513, 256)));
}
