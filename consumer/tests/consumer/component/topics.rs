//! Tests of which topics consumers read. The events of all counters whose definition names no topic come from one
//! topic, and consumers of a second one stand still. A topic that a definition names is read beside it.

use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::Checkpoints;
use tally_core::definitions::Direction::{Add as Like, Remove as Unlike};
use tally_core::definitions::{Definitions, Entry};
use tally_core::ports::TopicReader;
use tally_core::ports::log::Outgoing;
use tally_core::topic::{Offset, Partition};
use tally_testkit::{BEGAN, eventually};

use super::world::{TOPIC, World, is_ready, names};

const OTHER: &str = "others";

/// Produces a record to the other topic.
fn put(world: &World, value: &serde_json::Value) {
    let value = value.to_string();
    let record = Outgoing { topic: OTHER, partition: Some(0), key: None, value: Some(value.as_bytes()), headers: &[] };
    world.broker.append(record, BEGAN).unwrap();
}

fn unlike(world: &World, user: &str) {
    put(world, &json!({"post_id": world.post(0).as_str(), "user_id": user, "action": "unlike"}));
}

async fn named(world: &World) -> Option<String> {
    Checkpoints::new(&world.store.connection).usual().await.unwrap().topic
}

/// The offsets of the other topic are those of the rows, so its events would be taken for old ones and dropped.
#[tokio::test(start_paused = true)]
async fn a_second_topic_of_the_same_counters_stands_still_and_the_first_goes_on() {
    let mut world = World::new(1).await;
    world.broker.create_topic(OTHER, 1);
    let first = world.consumer();
    world.say(0, "u", Like);
    world.say(0, "v", Like);
    world.reaches_ends().await;
    assert_eq!(named(&world).await.as_deref(), Some(TOPIC));
    unlike(&world, "u");
    let second = world.consumer_of_topic(OTHER);
    names(&second, "the rows are of `likes`").await;
    world.say(0, "v", Unlike);
    world.reaches_ends().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.is_right().await;
    assert!(is_ready(&first) && !is_ready(&second));
    assert_eq!(world.claims().topic(OTHER).await, Ok(None), "it is not begun");
    let of_other = Partition { topic: OTHER.into(), index: 0 };
    let committed = world.broker.reader("others", OTHER).bookmark(&of_other).await.unwrap();
    assert!(committed.is_none_or(|committed| committed == Offset(0)), "its events wait");
    world.stop(first).await;
    world.stop(second).await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_that_a_definition_names_is_read_beside_the_other_one() {
    let mut world = World::new(1).await;
    world.broker.create_topic(OTHER, 1);
    let views = Entry { topic: Some(OTHER.to_owned()), ..Entry::sum("views", "view", None) };
    let to = Definitions::new(&[views]).unwrap();
    assert!(Checkpoints::new(&world.store.connection).define(&Definitions::likes_alone(), &to).await.unwrap());
    let of_views = world.consumer_of_topic(OTHER);
    put(&world, &json!({"post_id": world.post(0).as_str(), "action": "view", "n": 3}));
    let sums = async || world.store.items("likes").await.iter().filter(|item| item["n"]["N"] == "3").count();
    eventually("the view is a row", async || sums().await == 1).await;
    assert_eq!(named(&world).await, None);
    let of_likes = world.consumer();
    world.say(0, "u", Like);
    world.reaches_ends().await;
    assert_eq!(named(&world).await.as_deref(), Some(TOPIC));
    assert!(is_ready(&of_views) && is_ready(&of_likes));
    world.stop(of_views).await;
    world.stop(of_likes).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_topics_that_are_begun_at_once_one_is_read() {
    for seed in 0..8 {
        let mut world = World::seeded(1, seed).await;
        world.broker.create_topic(OTHER, 1);
        let consumers = [world.consumer(), world.consumer_of_topic(OTHER)];
        let stand = || consumers.iter().filter(|consumer| !is_ready(consumer)).count();
        eventually("one stands still", async || named(&world).await.is_some() && stand() == 1).await;
        let named = named(&world).await.unwrap();
        let begun = async |topic| world.claims().topic(topic).await.unwrap().is_some();
        eventually("the named one is begun", async || begun(&named).await).await;
        let other = if named == TOPIC { OTHER } else { TOPIC };
        assert!(!begun(other).await, "{seed}: both are begun");
        for consumer in consumers {
            consumer.kill().await;
        }
    }
}
