//! Tests of recounts of chosen counters: how they compare rows with counts, correct what differs, and bear losses, late
//! folds and a log that changes meanwhile. They run over the emulated tables and the log of `world.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use tally_batch_recount::settle::{Ended, Recount, Rules};
use tally_core::audit::Cause;
use tally_core::fault::Fault;
use tally_core::fold::Position;
use tally_core::ids::RowKey;
use tally_core::ports::Outcome;
use tally_core::ports::log::{Records, TopicReader};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};
use tally_emulator::{Fault as Injected, Rule};
use tally_service::{Patience, Switch};
use tally_testkit::{post, user};
use tokio::time::timeout;

use crate::world::{World, key, keys, rules, shards};

/// Returns every row key of so many posts.
fn all(posts: u64) -> Vec<RowKey> {
    (0..posts).flat_map(|n| keys(&post(n))).collect()
}

/// A count that looks exact is marked as doubtful before it is corrected, since a reader may have it in memory for a
/// second. This holds even if the log loses that message.
#[tokio::test(start_paused = true)]
async fn a_number_that_looks_exact_is_doubtful_for_a_second_before_it_is_corrected() {
    for lost in [0, 1] {
        let world = World::filled(1, 12).await;
        world.drift(&key(&post(0), &user(1)), 3).await;
        let before = world.counter(&post(0)).await.unwrap();
        assert!(before.adds_up() && before.doubt.is_empty());
        world.log.losing.store(lost, Ordering::Relaxed);
        let recount = world.recount(rules()).await;
        let watched = async {
            let (mut doubted, mut corrected) = (None, None);
            while corrected.is_none() {
                let counter = world.counter(&post(0)).await.unwrap();
                match counter.likes == before.likes {
                    true if counter.doubt.is_empty() => assert_eq!(doubted, None),
                    true => _ = doubted.get_or_insert(tokio::time::Instant::now()),
                    false => corrected = Some(tokio::time::Instant::now()),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            corrected.unwrap() - doubted.expect("it was called doubtful first")
        };
        let (ended, doubtful) = tokio::join!(world.beside(recount.keys(all(1))), watched);
        assert_eq!(ended.unwrap(), Ended::default());
        assert!(doubtful > Duration::from_secs(1), "{doubtful:?}");
        let summary = recount.summary();
        assert_eq!((summary.corrected, summary.drift), (1, [(Cause::Drift, 1)].into()), "it is told why it differed");
        world.exact(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_differs_a_minute_after_its_correction_raises_an_alarm() {
    let world = World::filled(1, 12).await;
    let edited = key(&post(0), &user(1)).shard;
    let edit = async |n| world.edit(&post(0), &format!("s{edited}"), Some(n)).await;
    edit(100).await;
    let recount = world.recount(Rules::default()).await;
    let again = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(world.difference(&post(0)).await, None);
        edit(50).await;
    };
    let (ended, ()) = world.beside(async { tokio::join!(recount.keys(all(1)), again) }).await;
    assert_eq!((ended.unwrap(), recount.summary().alarms), (Ended::default(), 1));
    world.exact(1).await;
}

#[tokio::test(start_paused = true)]
async fn counters_that_go_on_while_they_are_read_do_not_differ() {
    let world = World::filled(2, 16).await;
    world.store.faults([Rule::new(Injected::Latency { min_ms: 300, max_ms: 900 }).on("BatchGetItem")]);
    let recount = world.recount(rules()).await;
    assert_eq!(world.beside_churn(2, 20, recount.keys(all(2))).await.unwrap(), Ended::default());
    assert_eq!(recount.summary().found(), 0);
    world.exact(2).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_corrected_before_its_line_is_on_the_ledger() {
    let world = World::filled(1, 12).await;
    world.drift(&key(&post(0), &user(1)), 3).await;
    let before = world.counter(&post(0)).await.unwrap().likes;
    world.store.faults([Rule::new(Injected::Throttle).on("BatchWriteItem").table("recounts")]);
    let recount = world.recount(rules()).await;
    let waits = timeout(Duration::from_secs(60), world.beside(recount.keys(all(1)))).await;
    assert!(waits.is_err(), "{waits:?}");
    assert_eq!(world.counter(&post(0)).await.unwrap().likes, before);
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_was_deleted_is_not_taken_for_one_that_is_behind() {
    let world = World::filled(1, 10).await;
    world.stores_positions.store(false, Ordering::Relaxed);
    world.put(&post(1), &user(1), true).await;
    world.quiet().await;
    // The log has the like behind the position where a recount begins, and no counter has it any more.
    world.delete(&post(1)).await;
    let recount = world.recount(rules()).await;
    assert_eq!(world.beside_churn(1, 20, recount.keys(all(2))).await.unwrap(), Ended::default());
    assert_eq!((recount.summary().corrected, recount.summary().alarms), (1, 0));
    world.exact(2).await;
}

#[tokio::test(start_paused = true)]
async fn shards_of_one_counter_are_corrected_together() {
    let world = World::filled(1, 40).await;
    world.delete(&post(0)).await;
    let recount = world.recount(rules()).await;
    assert_eq!(world.beside(recount.keys(all(1))).await.unwrap(), Ended::default());
    let corrections = world.counter(&post(0)).await.unwrap().corrections;
    assert_eq!((recount.summary().corrected, corrections), (4, 2), "one calls it doubtful, and one sets it right");
    world.exact(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_look_that_its_markers_do_not_come_to_leaves_its_keys() {
    let world = World::filled(1, 10).await;
    world.relays.store(false, Ordering::Relaxed);
    let rules = Rules { looks: 2, patience: Duration::from_secs(20), ..rules() };
    let ended = world.beside(world.recount(rules).await.keys(all(1))).await.unwrap();
    assert_eq!(ended, Ended { left: 4, doubtful: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_leaves_its_counter_in_doubt_until_it_can() {
    let world = World::filled(1, 10).await;
    let damaged = key(&post(0), &user(2));
    world.put_row(&damaged, "u-2", ("n", json!({"S": "many"}))).await;
    world.lose().await;
    world.quiet().await;
    assert_eq!(world.counter(&post(0)).await.unwrap().doubt, [].into(), "its record is lost");
    let recount = world.recount(rules()).await;
    assert_eq!(world.beside(recount.keys(all(1))).await.unwrap(), Ended { left: 0, doubtful: 1 });
    assert_eq!(world.counter(&post(0)).await.unwrap().doubt, [damaged.shard].into());
    world.put(&post(0), &user(2), true).await;
    world.quiet().await;
    assert_eq!(world.counter(&post(0)).await.unwrap().doubt, [damaged.shard].into(), "what it weighed is not known");
    assert_eq!(world.beside(recount.keys(all(1))).await.unwrap(), Ended::default());
    world.exact(1).await;
}

#[tokio::test(start_paused = true)]
async fn rows_that_there_is_no_room_for_are_looked_at_later() {
    let world = World::filled(10, 6).await;
    for n in 0..10 {
        world.edit(&post(n), &format!("s{}", key(&post(n), &user(1)).shard), Some(60)).await;
    }
    let recount = world.recount(Rules { rows: 5, ..rules() }).await;
    assert_eq!(world.beside_churn(4, 20, recount.keys(all(10))).await.unwrap(), Ended::default());
    world.exact(10).await;
}

#[tokio::test(start_paused = true)]
async fn a_recount_does_not_begin_before_the_folds_know_every_loss_that_is_open() {
    let world = World::filled(1, 6).await;
    world.relays.store(false, Ordering::Relaxed);
    let number = world.changes.open_new_loss(world.clock.now(), "trimmed", "by a test").await.unwrap();
    let recount = world.recount(Rules { patience: Duration::from_secs(20), ..rules() }).await;
    let error = world.beside(recount.keys(all(1))).await.unwrap_err().to_string();
    assert!(error.contains(&format!("has not read the announcement of loss {number}")), "{error}");
    world.relays.store(true, Ordering::Relaxed);
    assert_eq!(world.beside(recount.keys(all(1))).await.unwrap(), Ended::default());
}

#[tokio::test(start_paused = true)]
async fn a_recount_does_not_begin_behind_a_jump_before_all_stream_shards_are_announced_again() {
    let world = World::filled(1, 6).await;
    world.folds.store(false, Ordering::Relaxed);
    world.beside(tokio::time::sleep(Duration::from_secs(10))).await;
    for index in (0..).take(world.lengths().await.len()) {
        let mut position = world.changes.position(index).await.unwrap().unwrap();
        position.filter.jump(position.at.next(), world.clock.now());
        let jumped = Position { at: position.at.next(), last: None, ..position };
        assert!(world.changes.store_position(index, &jumped).await.unwrap());
    }
    let recount = world.recount(Rules { patience: Duration::from_secs(20), ..rules() }).await;
    let error = world.beside(recount.keys(all(1))).await.unwrap_err().to_string();
    assert!(error.contains("does not know all stream shards"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_correction_is_waited_for_also_where_a_fold_is_in_a_later_generation_than_the_topic() {
    let world = World::folded_in(2).await;
    world.fill(1, 10).await;
    world.edit(&post(0), &format!("s{}", key(&post(0), &user(1)).shard), Some(70)).await;
    world.folds.store(false, Ordering::Relaxed);
    let recount = world.recount(rules()).await;
    let goes_on = async {
        tokio::time::sleep(Duration::from_secs(120)).await;
        world.folds.store(true, Ordering::Relaxed);
    };
    let (ended, ()) = world.beside(async { tokio::join!(recount.keys(all(1)), goes_on) }).await;
    assert_eq!((ended.unwrap(), recount.summary().corrected), (Ended::default(), 1));
    world.exact(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_recount_whose_topic_is_replaced_ends_and_says_so() {
    let world = World::filled(1, 10).await;
    world.edit(&post(0), &format!("s{}", key(&post(0), &user(1)).shard), Some(70)).await;
    world.folds.store(false, Ordering::Relaxed);
    let recount = world.recount(rules()).await;
    let replaces = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        world.replace_topic().await;
    };
    let began = tokio::time::Instant::now();
    let (ended, ()) = world.beside(async { tokio::join!(recount.keys(all(1)), replaces) }).await;
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("the topic of the log of changes was replaced during the recount"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_read_ends_a_recount_and_its_place_is_named() {
    let world = World::filled(1, 10).await;
    world.folds.store(false, Ordering::Relaxed);
    world.garble();
    let recount = world.recount(rules()).await;
    let error = format!("{:#}", world.beside(recount.keys(all(1))).await.unwrap_err());
    assert!(error.contains("changes/") && error.contains(", offset ") && error.contains("EOF"), "{error}");
}

/// A reader whose log loses its end after the first look at it: reads fail until the next look.
struct Losing {
    log: Arc<dyn TopicReader>,
    looks: AtomicU32,
}

#[async_trait]
impl TopicReader for Losing {
    async fn logs(&self) -> Outcome<Vec<(Partition, Log)>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.log.logs().await
    }

    async fn read(&self, partition: &Partition, from: Offset, to: Offset) -> Outcome<Records> {
        match self.looks.load(Ordering::Relaxed) {
            1 => Err(Fault::Transient("there is no such offset".to_owned())),
            _ => self.log.read(partition, from, to).await,
        }
    }

    async fn offset_at(&self, partition: &Partition, at: UnixMillis) -> Outcome<Option<Offset>> {
        self.log.offset_at(partition, at).await
    }

    async fn bookmark(&self, partition: &Partition) -> Outcome<Option<Offset>> {
        self.log.bookmark(partition).await
    }

    async fn mark(&self, partition: &Partition, at: Offset) -> Outcome<()> {
        self.log.mark(partition, at).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_recount_that_begins_while_the_log_loses_its_end_looks_at_the_log_again() {
    let world = World::filled(1, 12).await;
    let mut ports = world.ports();
    ports.log.reader = Arc::new(Losing { log: ports.log.reader, looks: AtomicU32::new(0) });
    let recount = Recount::new(
        ports,
        shards(),
        rules(),
        (Patience::new(world.clock, world.chance()), world.chance()),
        Switch::new().stop(),
    )
    .await
    .unwrap();
    let ended = timeout(Duration::from_secs(300), world.beside(recount.keys(all(1)))).await;
    assert_eq!(ended.expect("it comes to an end").unwrap(), Ended::default());
}
