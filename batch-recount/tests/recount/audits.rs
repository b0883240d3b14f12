//! Tests of audits, the recounts of all counters: what they prove without a closer look, what they correct, and which
//! losses they close. They run over the emulated tables and the log of `world.rs`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tally_batch_recount::settle::{Ended, Rules};
use tally_core::ids::RowKey;
use tally_testkit::{post, user};

use crate::jobs::views;
use crate::world::{PARTITIONS, World, key, keys, rules, shards};

/// Returns the row key of a cell with so large an amount that a recount does not correct it unasked.
async fn many_views(world: &World) -> RowKey {
    let key = RowKey { counter: views(), shard: shards().shard_of_cell(0) };
    world.put_row(&key, "\u{1}cell/likes/0", ("n", json!({"N": "5000"}))).await;
    world.quiet().await;
    key
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_is_closed_but_whose_repair_a_fold_missed_is_repaired_once_more() {
    let world = World::filled(3, 4).await;
    let number = world.open_loss("trimmed").await;
    world.quiet().await;
    world.changes.close_loss(number, world.clock.now()).await.unwrap();
    let open = async || {
        let standings = world.changes.standings(PARTITIONS).await.unwrap();
        standings.into_values().flat_map(|stated| stated.standing.open).collect::<Vec<_>>()
    };
    assert_eq!((world.open_losses().await, open().await), (vec![], vec![number; PARTITIONS as usize]));
    let recount = world.recount(rules()).await;
    assert_eq!(world.beside(recount.audit()).await.unwrap(), Ended::default());
    world.quiet().await;
    assert_eq!(open().await, []);
    world.exact(3).await;
}

/// Runs an audit beside `meanwhile`, and expects that it corrects one row key.
async fn corrects_one(world: &World, meanwhile: impl Future<Output = ()>) {
    let recount = world.recount(rules()).await;
    let (ended, ()) = world.beside(async { tokio::join!(recount.audit(), meanwhile) }).await;
    assert_eq!((ended.unwrap(), recount.summary().corrected), (Ended::default(), 1));
    world.exact(6).await;
}

#[tokio::test(start_paused = true)]
async fn many_row_keys_are_corrected_after_one_look_at_each_and_found_equal_by_passes() {
    let world = World::filled(20, 12).await;
    for n in 0..20 {
        world.delete(&post(n)).await;
    }
    // After a loss nothing is called exact, so no row key is marked as doubtful first.
    world.lose().await;
    let keys = (0..20).flat_map(|n| keys(&post(n))).count() as u64;
    let before = world.store.requests("Query");
    let recount = world.recount(Rules { keys: 16, ..rules() }).await;
    assert_eq!(world.beside_churn(20, 12, recount.audit()).await.unwrap(), Ended::default());
    let (summary, looks) = (recount.summary(), world.store.requests("Query") - before);
    assert_eq!((summary.corrected, summary.settled, summary.alarms), (keys, summary.doubted, 0), "{summary:?}");
    assert!(looks < keys * 2, "{looks} looks at {keys} row keys");
    world.exact(20).await;
}

#[tokio::test(start_paused = true)]
async fn an_audit_proves_what_agrees_without_a_look_and_finds_all_that_differs() {
    let world = World::filled(5, 12).await;
    world.put(&post(0), &user(3), false).await;
    world.quiet().await;
    let before = world.lengths().await;
    let recount = world.recount(rules()).await;
    assert_eq!(world.beside(recount.audit()).await.unwrap(), Ended::default());
    let (summary, keys) = (recount.summary(), 5 * 4);
    assert_eq!((summary.proved, summary.counters, summary.rows, summary.found()), (keys, 5, 60, 0), "{summary:?}");
    assert!(world.store.items("likes").await.len() <= 61, "one marker is put behind the scan");
    assert!(world.lengths().await > before);
    // One count has no rows, one lacks rows, and rows of one have no count.
    let [one, two, three] = [0, 1, 2].map(post);
    world.edit(&one, "s3", Some(9)).await;
    let left_out = key(&two, &user(1)).shard;
    world.edit(&two, &format!("s{left_out}"), None).await;
    world.delete(&three).await;
    let ghost = post("ghost");
    let item = json!({"post_id": {"S": ghost.stored()}, "likes": {"N": "4"}, "s1": {"N": "4"}, "version": {"N": "1"}});
    world.store.call("PutItem", json!({"TableName": "like_counts", "Item": item})).await;
    let recount = world.recount(rules()).await;
    assert_eq!(world.beside_churn(5, 12, recount.audit()).await.unwrap(), Ended::default());
    assert_eq!(recount.summary().alarms, 0);
    world.exact(5).await;
    assert_eq!(world.difference(&ghost).await, None);
    assert_eq!(world.counter(&ghost).await.unwrap().likes, 0);
}

#[tokio::test(start_paused = true)]
async fn a_count_that_agrees_by_accident_while_its_stream_shard_is_late_is_not_proved() {
    let world = World::filled(6, 10).await;
    let late = key(&post(0), &user(50));
    *world.stalled.lock().await = Some(late.clone());
    world.put(&post(0), &user(50), true).await;
    world.drift(&late, 1).await;
    corrects_one(&world, async {
        tokio::time::sleep(Duration::from_secs(50)).await;
        *world.stalled.lock().await = None;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_count_that_comes_to_agree_with_rows_of_before_is_not_proved() {
    let world = World::filled(6, 10).await;
    world.drift(&key(&post(0), &user(50)), -1).await;
    let scans = world.store.requests("Scan");
    corrects_one(&world, async {
        // By now the rows are scanned, and the counters are not.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let segments = u64::from(rules().segments);
        assert_eq!(world.store.requests("Scan") - scans, segments, "a page of each segment of the rows");
        world.put(&post(0), &user(50), true).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_has_moved_before_an_audit_begins_needs_no_look() {
    let world = World::start().await;
    // No later position is stored, so everything that is counted is behind the stored one.
    world.stores_positions.store(false, Ordering::Relaxed);
    world.fill(6, 10).await;
    let recount = world.recount(rules()).await;
    assert_eq!(world.beside(recount.audit()).await.unwrap(), Ended::default());
    assert_eq!(recount.summary().proved, 6 * 4);
    assert_eq!(world.store.items("likes").await.len(), 6 * 10 + 1, "one marker is put behind the scan");
}

#[tokio::test(start_paused = true)]
async fn a_count_that_agrees_by_accident_while_its_fold_is_late_is_not_proved() {
    let world = World::filled(6, 10).await;
    let late = key(&post(0), &user(50));
    world.put(&post(0), &user(50), true).await;
    world.drift(&late, 1).await;
    world.folds.store(false, Ordering::Relaxed);
    world.step().await;
    corrects_one(&world, async {
        tokio::time::sleep(Duration::from_secs(50)).await;
        world.folds.store(true, Ordering::Relaxed);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_closed_only_by_an_audit_that_began_after_it() {
    let world = World::filled(3, 10).await;
    world.put(&post(0), &user(20), true).await;
    let first = world.lose().await;
    world.quiet().await;
    assert!(world.difference(&post(0)).await.is_some());
    let recount = world.recount(rules()).await;
    let loses = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        world.relays.store(false, Ordering::Relaxed);
        world.put(&post(1), &user(21), true).await;
        let second = world.lose().await;
        world.relays.store(true, Ordering::Relaxed);
        second
    };
    let (ended, second) = world.beside(async { tokio::join!(recount.audit(), loses) }).await;
    assert_eq!(ended.unwrap(), Ended::default());
    assert!(first < second);
    assert_eq!(world.open_losses().await, [second]);
    for partition in 0..PARTITIONS {
        world.quiet().await;
        let standing = world.changes.stated(partition).await.unwrap().unwrap().standing.standing;
        assert_eq!(standing.open, [second].into());
    }
    assert_eq!(world.beside(world.recount(rules()).await.audit()).await.unwrap(), Ended::default());
    assert_eq!(world.open_losses().await, []);
    world.exact(3).await;
    for partition in 0..PARTITIONS {
        let standing = world.changes.stated(partition).await.unwrap().unwrap().standing.standing;
        assert!(standing.open.is_empty() && standing.loss.is_some(), "{standing:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn like_counts_that_was_deleted_is_exact_again() {
    let world = World::filled(6, 15).await;
    let views_of = many_views(&world).await;
    // Positions are stored seldom, so much of what is folded is behind the stored ones.
    world.stores_positions.store(false, Ordering::Relaxed);
    world.put(&post(2), &user(40), true).await;
    world.put(&post(7), &user(1), true).await;
    world.quiet().await;
    for id in world.stored().await.into_keys().filter_map(|id| id.parse().ok()) {
        world.delete(&id).await;
    }
    world.open_loss("table").await;
    world.quiet().await;
    world.stores_positions.store(true, Ordering::Relaxed);
    let recount = world.recount(rules()).await;
    assert_eq!(world.beside_churn(6, 20, recount.audit()).await.unwrap(), Ended::default());
    assert_eq!((recount.summary().withheld, recount.summary().alarms), (0, 0), "a loss explains a large correction");
    assert_eq!(world.open_losses().await, []);
    world.exact(8).await;
    assert_eq!(world.counter(&views()).await.unwrap().part(views_of.shard), 5_000);
}
