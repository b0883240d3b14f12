//! Tests of the whole consumer over the emulated store and the in-memory broker, under paused time. They compare rows,
//! sums, dead letters and committed offsets with what the events say. The tests in this file are about crashes
//! and a second owner of a partition, events in wrong partitions, and sums behind unknown actions.

mod claims;
mod failing;
mod group;
mod topics;
mod watched;
mod world;

use std::time::Duration;

use serde_json::json;
use tally_core::definitions::Direction::{Add as Like, Remove as Unlike};
use tally_emulator::{Fault as Injected, Rule};
use tally_testkit::eventually;

use self::watched::Watched;
use self::world::{DLQ, World, is_ready, names};

#[tokio::test(start_paused = true)]
async fn crashes_at_any_moment_and_failed_requests_leave_the_same_rows_and_sums() {
    for seed in 0..12 {
        let mut world = World::seeded(2, seed).await;
        world.define_views().await;
        world.store.faults(disorder());
        let mut unfinished = 0;
        for n in 0..400u32 {
            match n % 5 {
                0 | 1 => world.view(n % 2, i64::from(n % 7 + 1)),
                2 => world.say(n % 2, &format!("u-{}", n % 23), Unlike),
                _ => world.say(n % 2, &format!("u-{}", n % 23), Like),
            }
        }
        for crash in 1..6 {
            let consumer = world.consumer();
            tokio::time::sleep(Duration::from_millis(40 + 37 * crash * (seed % 4 + 1))).await;
            unfinished += u32::from(world.committed(0).await != Some(200));
            consumer.kill().await;
        }
        assert!(unfinished > 0, "{seed}: every crash came too late");
        let consumer = world.consumer();
        world.reaches_ends().await;
        world.stop(consumer).await;
        world.ghosts_are_gone().await;
        world.is_right().await;
    }
}

/// Faults: requests and statements that are throttled, lost, unanswered or late.
fn disorder() -> Vec<Rule> {
    let faults = [
        Injected::Throttle,
        Injected::DropReply,
        Injected::InternalError { applied: None },
        Injected::Ghost { max_delay_ms: 60_000, hang_ms: 0 },
    ];
    let operations = ["PartiQLInsert", "PartiQLUpdate", "BatchExecuteStatement", "UpdateItem"];
    let of = |operation| faults.map(|fault| Rule::new(fault).on(operation).chance(0.04));
    let slow = Rule::new(Injected::Latency { min_ms: 5, max_ms: 250 }).on("BatchExecuteStatement");
    operations.into_iter().flat_map(of).chain([slow]).collect()
}

#[tokio::test(start_paused = true)]
async fn two_consumers_that_both_own_a_partition_do_no_harm() {
    let mut world = World::new(1).await;
    world.define_views().await;
    let (one, zombie) = (world.consumer(), world.consumer_of("zombies"));
    for n in 0..300u32 {
        world.view(0, 1);
        world.say(0, &format!("u-{}", n % 13), if n % 3 == 0 { Unlike } else { Like });
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    zombie.kill().await;
    world.ends_right(one).await;
}

/// A request of a consumer that died may arrive once the next one has read the sum.
#[tokio::test(start_paused = true)]
async fn a_sum_that_a_late_request_has_changed_gets_the_rest() {
    let mut world = World::new(1).await;
    world.define_views().await;
    world.view(0, 1);
    let consumer = world.consumer();
    world.reaches_ends().await;
    let items = world.store.items("likes").await;
    let cell = items.iter().find(|item| item.get("to").is_some()).unwrap();
    let (key, to) = (json!({"pk": cell["pk"], "user_id": cell["user_id"]}), cell["to"]["N"].as_str().unwrap());
    let next = to.parse::<u64>().unwrap() + 1;
    for (name, value) in [("n", 3), ("to", next)] {
        world.store.edit("likes", key.clone(), name, json!({"N": value.to_string()})).await;
    }
    world.view(0, 2);
    world.view(0, 4);
    world.ends_right(consumer).await;
}

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
