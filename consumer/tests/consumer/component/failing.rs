//! Tests of a consumer whose events the store refuses: when one event becomes a dead letter, and when the whole
//! partition stands still. Also of a dead-letter topic that is missing, and of events with wrong times.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::HttpConnector as _;
use serde_json::json;
use tally_adapters::dynamodb::{Connection, Settings};
use tally_core::definitions::Direction::{Add as Like, Remove as Unlike};
use tally_testkit::BEGAN;

use super::watched::Watched;
use super::world::{DLQ, World, is_ready, names, report};

/// Makes a member's row an item of almost the maximum size, without room for another attribute.
async fn fill(world: &World, user: &str) {
    world.store.edit("likes", world.key(0, user), "by_hand", json!({"S": "x".repeat(409_517)})).await;
}

fn like_from_a_region(world: &World, user: &str) -> u64 {
    let post = world.post(0);
    let event = json!({"post_id": post.as_str(), "user_id": user, "action": "like", "region": "r".repeat(32)});
    world.put(0, event.to_string().as_bytes())
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_store_refuses_becomes_a_dead_letter_alone() {
    let (world, consumer) = World::with_likes(30).await;
    fill(&world, "u-7").await;
    let before = world.row(0, "u-7").await["v"].clone();
    (0..30).for_each(|n| _ = like_from_a_region(&world, &format!("u-{n}")));
    world.reaches_ends().await;
    assert_eq!(world.letters().await, [(0, 37, "refused_by_store".to_owned())]);
    assert_eq!(world.row(0, "u-7").await["v"], before);
    world.stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn events_of_a_row_whose_version_is_unreadable_are_dead_letters_and_named_and_apply_once_it_is_mended() {
    let watched = Watched::new();
    let mut world = World::new(1).await;
    let consumer = world.consumer();
    let events = [("u-1", Unlike), ("u-2", Like), ("u-3", Like)];
    events.iter().for_each(|(user, _)| world.say(0, user, Like));
    world.reaches_ends().await;
    let damages = [json!({"S": "1"}), json!({"N": "1e30"}), json!(null)];
    for ((user, _), damage) in events.iter().zip(damages) {
        world.store.edit("likes", world.key(0, user), "v", damage).await;
    }
    events.iter().for_each(|(user, event)| world.say(0, user, *event));
    world.reaches_ends().await;
    let mut letters = world.letters().await;
    letters.sort_unstable();
    assert_eq!(letters, [3, 4, 5].map(|offset| (0, offset, "refused_by_store".to_owned())));
    assert_eq!(watched.metric("tally_consumer_dead_letters_total{reason=\"refused_by_store\"}"), Some(3.0));
    assert_eq!((watched.warnings("refused by the store"), watched.warnings("user_id \"u-")), (1, 1));
    for (user, event) in events {
        world.store.edit("likes", world.key(0, user), "v", json!({"N": "0"})).await;
        world.say(0, user, event);
    }
    world.ends_right(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_every_event_stops_the_partition() {
    let watched = Watched::new();
    let (world, consumer) = World::with_likes(40).await;
    for n in 0..40 {
        fill(&world, &format!("u-{n}")).await;
    }
    for n in 0..16 {
        like_from_a_region(&world, &format!("u-{n}"));
        world.reaches_ends().await;
    }
    let letters = world.letters().await.len();
    assert_eq!(letters, 16);
    (16..26).for_each(|n| _ = like_from_a_region(&world, &format!("u-{n}")));
    let named = "store does not take what is written";
    names(&consumer, named).await;
    assert_eq!(world.committed(0).await, Some(56));
    for second in 0..120 {
        assert_eq!(watched.partitions(), [Some(0.0), Some(1.0)], "after {second} s");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!((watched.lag()[0], watched.errors("standing still")), (Some(10.0), 1));
    assert_eq!(world.letters().await.len(), letters, "each look tries, and puts nothing aside");
    assert!(report(&consumer).contains(named));
    for n in 0..40 {
        world.store.edit("likes", world.key(0, &format!("u-{n}")), "by_hand", json!({"S": "x"})).await;
    }
    world.reaches_ends().await;
    assert!(!report(&consumer).contains(named));
    assert_eq!(world.letters().await.len(), letters);
    assert_eq!(watched.partitions(), [Some(1.0), Some(0.0)]);
    world.stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_everything_until_an_operator_acts_stops_the_partition_and_no_event_is_put_aside() {
    let (mut world, denies) = (World::new(1).await, Arc::new(AtomicBool::new(false)));
    let denied = Arc::clone(&denies);
    // Every statement is refused meanwhile, as where a permission was taken away.
    let client = world.store.emulator.http_client_through(move |mut request, store| {
        let is_statement = request.headers().get("x-amz-target").is_some_and(|target| target.ends_with("Statement"));
        if is_statement && denied.load(Ordering::Relaxed) {
            // The store knows no such operation.
            request.headers_mut().insert("x-amz-target", "DynamoDB_20120810.Denied");
        }
        store.call(request)
    });
    let settings = Settings { attempts: 1, ..Settings::local("") };
    world.store.connection = Connection::in_process(&settings, client, BEGAN);
    let consumer = world.consumer();
    world.say(0, "u", Like);
    world.reaches_ends().await;
    denies.store(true, Ordering::Relaxed);
    world.say(0, "w", Like);
    names(&consumer, "store does not take what is written").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!((world.committed(0).await, world.letters().await.len()), (Some(1), 0));
    denies.store(false, Ordering::Relaxed);
    world.ends_right(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_dead_letter_topic_is_named_and_the_consumer_works_but_is_not_ready() {
    let mut world = World::new(1).await;
    // A topic without partitions counts as missing.
    world.broker.create_topic(DLQ, 0);
    let consumer = world.consumer();
    names(&consumer, "there is no topic `likes.dlq`, which is for dead letters").await;
    assert!(!is_ready(&consumer));
    world.say(0, "u", Like);
    world.reaches_ends().await;
    world.is_right().await;
    world.broker.create_topic(DLQ, 1);
    consumer.ready().await.unwrap();
    world.stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_time_in_seconds_is_taken_counted_and_warned_about_once_for_each_partition() {
    let watched = Watched::new();
    let mut world = World::new(1).await;
    let consumer = world.consumer();
    for (user, ts) in [("u-1", 1_700_000_000_u64), ("u-2", 1_700_000_000_000), ("u-3", 1_700_000_001)] {
        let event = json!({"post_id": world.post(0).as_str(), "user_id": user, "action": "like", "ts": ts});
        world.put(0, event.to_string().as_bytes());
    }
    world.reaches_ends().await;
    assert_eq!(world.row(0, "u-1").await["liked_at"], json!({"N": "1700000000"}));
    assert_eq!((world.store.items("likes").await.len(), world.letters().await.len()), (3, 0));
    assert_eq!(watched.metric("tally_consumer_old_times_total"), Some(2.0));
    assert_eq!(watched.warnings("happened at 1970-01-20 16:13:20: `ts` is in milliseconds"), 1);
    assert_eq!(watched.warnings("happened at 1970-01-20"), 1);
    world.stop(consumer).await;
}
