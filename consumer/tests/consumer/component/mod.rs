//! Tests of the whole consumer over the emulated store and the in-memory broker, under paused time. They compare rows,
//! sums, dead letters and committed offsets with what the events say. The tests in this file are about events in wrong
//! partitions, and about sums behind unknown actions. Crashes and faults at random are the simulation's.

mod claims;
mod failing;
mod group;
mod topics;
mod watched;
mod world;

use std::time::Duration;

use serde_json::json;
use tally_core::definitions::Direction::Add as Like;
use tally_testkit::eventually;

use self::watched::Watched;
use self::world::{DLQ, World, is_ready, names};

#[tokio::test(start_paused = true)]
async fn a_burst_of_misrouted_events_is_told_a_minute_after_the_first_one_even_if_none_follows() {
    let watched = Watched::new();
    let told = || watched.warnings("events lie in another partition");
    let mut world = World::new(2).await;
    let consumer = world.consumer();
    world.say_in(0, 0, "a", Like);
    world.say_in(1, 0, "u", Like);
    eventually("the first one is told", async || told() == 1).await;
    for user in ["v", "w", "x"] {
        world.say_in(1, 0, user, Like);
    }
    world.reaches_ends().await;
    assert_eq!(told(), 1, "once a minute");
    tokio::time::advance(Duration::from_secs(61)).await;
    eventually("what came since is told", async || told() == 2).await;
    assert_eq!(watched.warnings("events=3 partition=likes/1 offset=3 "), 1, "all of them, and the last one");
    assert_eq!(watched.metric("tally_consumer_misrouted_records_total"), Some(4.0));
    let marked = [world.kept(0).await.misrouted, world.kept(1).await.misrouted];
    assert_eq!(marked, [false, true], "a number of the post is as of what partition 1 has, too");
    world.stop(consumer).await;
}

/// The consumer may die before the dead letter is acknowledged, and the next one may know the action.
#[tokio::test(start_paused = true)]
async fn an_event_of_a_sum_waits_for_the_dead_letters_of_unknown_actions_before_it() {
    for dies in [false, true] {
        let mut world = World::new(1).await;
        world.broker.refuse_writes(DLQ, Some(tally_core::fault::Fault::Transient("down".to_owned())));
        let mut consumer = world.consumer();
        if dies {
            world.view(0, 3);
        } else {
            world.put(0, json!({"post_id": "p", "action": "view", "n": 3}).to_string().as_bytes());
        }
        names(&consumer, "takes no dead letters").await;
        world.define_views().await;
        world.view(0, 5);
        tokio::time::sleep(Duration::from_secs(30)).await;
        if dies {
            consumer.kill().await;
            consumer = world.consumer();
        }
        world.broker.refuse_writes(DLQ, None);
        world.reaches_ends().await;
        world.is_right().await;
        assert!(is_ready(&consumer));
        let letters: &[_] = if dies { &[] } else { &[(0, 0, "bad_action".to_owned())] };
        assert_eq!(world.letters().await, letters);
        world.stop(consumer).await;
    }
}
