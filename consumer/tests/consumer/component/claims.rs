//! Tests of claims to partitions: which consumer may write a partition's rows, and from which offset it reads. In them
//! topics are paused, lose their end, are created anew, or are read again from far back.

use std::time::Duration;

use tally_core::definitions::Direction::{Add as Like, Remove as Unlike};
use tally_core::ports::log::Outgoing;
use tally_core::register::Topic;
use tally_emulator::{Fault as Injected, Rule};
use tally_testkit::{BEGAN, eventually};

use super::watched::Watched;
use super::world::{DLQ, TOMBSTONES, TOPIC, World, is_ready, names, report};

#[tokio::test(start_paused = true)]
async fn a_paused_topic_is_no_longer_written_once_its_claims_are_raised_and_shows_what_waits() {
    let watched = Watched::new();
    let (mut world, consumer) = World::with_likes(1).await;
    eventually("nothing waits", async || watched.lag() == [Some(0.0), Some(0.0)]).await;
    let topic = world.topic().await;
    let paused = Topic { is_paused: true, ..topic.clone() };
    assert!(world.claims().replace_topic(TOPIC, &topic, &paused).await.unwrap());
    world.claims().raise_all(TOPIC, 1).await.unwrap();
    eventually("it stands still", async || watched.partitions() == [Some(0.0), Some(1.0)]).await;
    assert!(!is_ready(&consumer) && report(&consumer).contains("paused"), "{}", report(&consumer));
    let sent = world.store.requests("BatchExecuteStatement");
    // Records are stamped with the time at which the test began.
    let began = tokio::time::Instant::now();
    (0..3).for_each(|n| world.say(0, &format!("w-{n}"), Like));
    eventually("what waits is shown", async || watched.lag()[0] == Some(3.0)).await;
    (3..5).for_each(|n| world.say(0, &format!("w-{n}"), Like));
    for second in 0..60 {
        assert_eq!(watched.partitions(), [Some(0.0), Some(1.0)], "after {second} s");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(world.store.requests("BatchExecuteStatement"), sent);
    let [records, seconds] = watched.lag();
    let age = began.elapsed().as_secs_f64();
    assert!(
        records == Some(5.0) && seconds.is_some_and(|seconds| seconds > age - 11.0),
        "{records:?} {seconds:?} {age}"
    );
    assert_eq!(watched.errors("standing still"), 0, "an operator meant it");
    assert_eq!(watched.metric("tally_consumer_alarms_total{alarm=\"paused\"}"), Some(1.0));
    assert!(world.claims().replace_topic(TOPIC, &paused, &topic).await.unwrap());
    world.reaches_ends().await;
    eventually("nothing waits any more", async || watched.lag() == [Some(0.0), Some(0.0)]).await;
    assert_eq!(watched.partitions(), [Some(1.0), Some(0.0)]);
    world.is_right().await;
    assert!(is_ready(&consumer));
    world.stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_set_forward_is_reported_and_nothing_is_skipped() {
    let (mut world, consumer) = World::with_likes(10).await;
    world.stop(consumer).await;
    (10..20).for_each(|n| world.say(0, &format!("u-{n}"), Like));
    world.commit(0, 15).await;
    let consumer = world.consumer();
    names(&consumer, "has committed 15").await;
    assert_eq!(world.safe(0).await, 10);
    world.commit(0, 10).await;
    world.ends_right(consumer).await;
}

/// The partition loses its newest two records, and gets four others in their place.
fn lose_and_grow(world: &mut World, lost: u64) {
    world.broker.lose_tail(TOPIC, 0, lost);
    (0..4).for_each(|n| world.say(0, &format!("other-{n}"), Like));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_lost_its_tail_and_has_grown_again_is_named_whether_or_not_a_consumer_runs() {
    for runs in [true, false] {
        let (mut world, mut consumer) = World::with_likes(10).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        if runs {
            lose_and_grow(&mut world, 8);
        } else {
            world.stop(consumer).await;
            lose_and_grow(&mut world, 8);
            consumer = world.consumer();
        }
        names(&consumer, "lost its tail and has grown again").await;
        let then = world.kept(0).await.safe_at;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let is_named = report(&consumer).contains("lost its tail");
        assert!(is_named && world.kept(0).await.safe_at == then, "until an operator has looked");
        world.stop(consumer).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_deployment_puts_back_for_itself_is_passed_over() {
    let mut world = World::new(1).await;
    let consumer = world.consumer();
    world.say(0, "u", Like);
    let key = world.post(0);
    let value = format!(r#"{{"post_id":"{key}","user_id":"u","action":"unlike"}}"#);
    let (key, value) = (Some(key.as_str().as_bytes()), Some(value.as_bytes()));
    let headers = [(tally_consumer::letter::PUT_BACK_FOR, Some(&b"another"[..]))];
    world.broker.append(Outgoing { topic: TOPIC, partition: Some(0), key, value, headers: &headers }, BEGAN).unwrap();
    world.say(0, "v", Like);
    world.ends_right(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_written_behind_an_unfinished_record_is_a_replay_a_day_later_and_the_claim_says_so_before_the_loss() {
    let mut world = World::new(1).await;
    world.broker.refuse_writes(DLQ, Some(tally_core::fault::Fault::Transient("down".to_owned())));
    world.put(0, b"{");
    world.say(0, "u", Like);
    let consumer = world.consumer();
    eventually("it is written", async || world.store.items("likes").await.len() == 1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.safe(0).await, 0);
    consumer.kill().await;
    tokio::time::advance(TOMBSTONES).await;
    world.broker.refuse_writes(DLQ, None);
    world.store.faults([Rule::new(Injected::Latency { min_ms: 300, max_ms: 900 }).on("UpdateItem")]);
    let consumer = world.consumer();
    eventually("the loss is open", async || !world.losses().await.is_empty()).await;
    assert_eq!(world.losses().await, ["likes/0 is read once more up to 2"]);
    assert!(world.kept(0).await.replay.is_some(), "an audit closes the loss of a partition that does not replay");
    world.ends_right(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn reading_again_becomes_a_replay_if_the_store_accepts_no_rows_for_long() {
    let (mut world, consumer) = World::with_likes(40).await;
    world.stop(consumer).await;
    world.commit(0, 5).await;
    world.store.faults([Rule::new(Injected::Throttle).on("BatchExecuteStatement")]);
    let consumer = world.consumer();
    eventually("it is read once more", async || world.safe(0).await == 5).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.losses().await, [""; 0]);
    tokio::time::advance(TOMBSTONES).await;
    world.store.faults([]);
    world.reaches_ends().await;
    assert_eq!(world.losses().await, ["likes/0 is read once more up to 40"]);
    world.is_right().await;
    world.stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_recreated_topic_stops_its_consumers_and_a_grown_one_does_not() {
    let (mut world, consumer) = World::with_likes(1).await;
    world.broker.add_partitions(TOPIC, 1);
    names(&consumer, "has 2 partitions").await;
    world.say(0, "w", Like);
    world.commits(0, 2).await;
    world.is_right().await;
    let before = world.kept(0).await.safe_at;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.kept(0).await.safe_at, before, "what is acknowledged in the new partition is no row");
    // The new topic has more records than were read of the old one, so its end does not show that it is another.
    world.broker.create_topic(TOPIC, 1);
    (0..5).for_each(|_| _ = world.put(0, b"{"));
    names(&consumer, "created again").await;
    world.say(0, "x", Like);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.store.items("likes").await.len(), 2);
    consumer.kill().await;
}

#[tokio::test(start_paused = true)]
async fn the_marker_at_the_end_of_a_transaction_does_not_delay_a_quiet_topic() {
    let mut world = World::new(1).await;
    let consumer = world.consumer();
    for round in 0..3 {
        world.say(0, &format!("u-{round}"), Like);
        world.broker.end_transaction(TOPIC, 0);
        world.reaches_ends().await;
        let before = world.kept(0).await;
        assert_eq!(before.safe.0, 2 * (round + 1));
        eventually("it is known that all is in", async || world.kept(0).await.safe_at > before.safe_at).await;
    }
    world.broker.end_transaction(TOPIC, 0);
    world.say(0, "u-0", Unlike);
    world.ends_right(consumer).await;
}

/// How long a test waits for a look at Kafka.
const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn nothing_that_kafka_acknowledged_after_the_look_at_its_end_is_said_to_be_in() {
    let mut world = World::new(1).await;
    let mut looks = world.broker.slow_looks(Duration::from_secs(10));
    let consumer = world.consumer();
    world.say(0, "u", Like);
    world.reaches_ends().await;
    let before = world.kept(0).await.safe_at;
    looks.mark_unchanged();
    tokio::time::timeout(MINUTE, looks.changed()).await.unwrap().unwrap();
    // The look has the end, but not yet its answer.
    world.store.faults([Rule::new(Injected::Throttle).on("BatchExecuteStatement")]);
    tokio::time::advance(Duration::from_secs(1)).await;
    let acknowledged = world.clock.now();
    world.say(0, "w", Like);
    tokio::time::timeout(MINUTE, looks.changed()).await.unwrap().unwrap();
    let answered = world.clock.now();
    eventually("a claim of after the answer", async || world.kept(0).await.at > answered).await;
    let kept = world.kept(0).await;
    assert_eq!(kept.safe.0, 1, "the second like is no row");
    assert!(before < kept.safe_at && kept.safe_at < Some(acknowledged), "{kept:?}, acknowledged at {acknowledged}");
    world.store.faults([]);
    world.reaches_ends().await;
    world.stop(consumer).await;
}
