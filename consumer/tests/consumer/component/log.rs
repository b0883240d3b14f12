//! Which log a fence counts in, and where it is read from.

use std::time::Duration;

use tally_core::event::Action::{Like, Unlike};
use tally_core::fence::{Fence, Offset, Partition, TopicId};
use tally_core::ports::FencedRows;

use super::common::{self, World, eventually, stop};

#[tokio::test(start_paused = true)]
async fn a_log_that_does_not_fit_its_fence_stops_that_partition_with_an_alarm_and_no_other() {
    type Damage = fn(&World);
    let damages: [(&str, Damage); 2] = [
        ("deleted unread", |world| {
            world.broker.trim(common::TOPIC, 0, 2);
        }),
        ("lost its tail", |world| world.broker.lose_tail(common::TOPIC, 0, 0)),
    ];
    for (said, damage) in damages {
        let mut world = World::new(2);
        world.say(0, "a", Like);
        world.say(1, "b", Like);
        let first = world.consumer();
        world.reaches(0, 1).await;
        world.reaches(1, 1).await;
        stop(first).await;
        world.say(0, "lost", Like);
        world.forget(0, "lost");
        world.say(1, "c", Like);
        damage(&world);
        let second = world.consumer();
        world.reaches(1, 2).await;
        let readiness = second.host().readiness().clone();
        eventually("the alarm shows", async || readiness.report().conditions.contains_key("partition-0")).await;
        let condition = format!("{:?}", readiness.report().conditions["partition-0"]);
        assert!(condition.contains(said), "{condition}");
        assert_eq!(world.fence(0).await, Some(1));
        assert_eq!(world.rows().await, *world.expected());
        stop(second).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_created_again_is_never_read_by_the_old_fence() {
    let mut world = World::new(1);
    for user in ["a", "b"] {
        world.say(0, user, Like);
    }
    let first = world.consumer();
    world.reaches(0, 2).await;
    stop(first).await;
    world.broker.create_topic(common::TOPIC, 1);
    for user in ["c", "d", "e"] {
        world.say(0, user, Like);
        world.forget(0, user);
    }
    let second = world.consumer();
    let readiness = second.host().readiness().clone();
    eventually("the alarm shows", async || readiness.report().conditions.contains_key("partition-0")).await;
    let condition = format!("{:?}", readiness.report().conditions["partition-0"]);
    assert!(condition.contains("re-created"), "{condition}");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.fence(0).await, Some(2));
    assert_eq!(world.rows().await, *world.expected());
    stop(second).await;
}

#[tokio::test(start_paused = true)]
async fn a_replay_of_the_whole_topic_changes_nothing() {
    let mut world = World::new(2);
    for n in 0..200 {
        world.say(n % 2, &format!("u{}", n % 17), if n % 3 == 0 { Unlike } else { Like });
    }
    let first = world.consumer();
    world.reaches(0, 100).await;
    world.reaches(1, 100).await;
    stop(first).await;
    let (rows, asked) = (world.rows().await, world.table.asked().len());
    world.broker.expire(common::GROUP);
    let second = world.consumer();
    let readiness = second.host().readiness().clone();
    eventually("it has joined", async || readiness.report().ready).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((world.rows().await, world.table.asked().len()), (rows, asked));
    stop(second).await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_created_again_under_a_running_consumer_is_noticed_and_left_alone() {
    let mut world = World::new(1);
    for user in ["a", "b"] {
        world.say(0, user, Like);
    }
    let consumer = world.consumer();
    world.reaches(0, 2).await;
    // As many records as were read before, so that the position is there again; what comes behind it is taken for new
    // until the log is looked at.
    world.broker.create_topic(common::TOPIC, 1);
    for user in ["c", "d"] {
        world.say(0, user, Like);
        world.forget(0, user);
    }
    let readiness = consumer.host().readiness().clone();
    tokio::time::sleep(Duration::from_secs(11)).await;
    let condition = format!("{:?}", readiness.report().conditions.get("partition-0"));
    assert!(condition.contains("re-created"), "{condition}");
    world.say(0, "e", Like);
    world.forget(0, "e");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.fence(0).await, Some(2));
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_loses_its_tail_under_a_running_consumer_is_noticed() {
    let mut world = World::new(1);
    for user in ["a", "b", "c"] {
        world.say(0, user, Like);
    }
    let consumer = world.consumer();
    world.reaches(0, 3).await;
    world.broker.lose_tail(common::TOPIC, 0, 1);
    let readiness = consumer.host().readiness().clone();
    eventually("the alarm shows", async || readiness.report().conditions.contains_key("partition-0")).await;
    assert_eq!(world.fence(0).await, Some(3));
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_fence_from_before_the_broker_told_topic_ids_takes_the_id_and_goes_on() {
    let mut world = World::new(1);
    for user in ["a", "b"] {
        world.say(0, user, Like);
    }
    let partition = Partition { topic: common::TOPIC.into(), index: 0 };
    let named = Fence::new(Offset(1), 4, TopicId(common::TOPIC.into()));
    world.table.create_fence(&partition, &named).await.unwrap();
    world.forget(0, "a");
    let consumer = world.consumer();
    world.reaches(0, 2).await;
    let fence = world.table.fence(&partition).await.unwrap().unwrap();
    assert_eq!((fence.cfg, fence.topic == named.topic), (5, false));
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn records_of_an_added_partition_that_were_deleted_before_they_were_read_are_an_alarm() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    // What was deleted before the deployment was there was never promised.
    world.broker.trim(common::TOPIC, 0, 1);
    world.forget(0, "a");
    world.say(0, "b", Like);
    let first = world.consumer();
    world.reaches(0, 2).await;
    stop(first).await;

    world.broker.add_partitions(common::TOPIC, 2);
    for user in ["c", "d", "e"] {
        world.say(1, user, Like);
        world.say(2, user, Like);
    }
    world.broker.trim(common::TOPIC, 1, 2);
    for user in ["c", "d", "e"] {
        world.forget(1, user);
    }
    let second = world.consumer();
    world.reaches(2, 3).await;
    let readiness = second.host().readiness().clone();
    eventually("the alarm shows", async || readiness.report().conditions.contains_key("partition-1")).await;
    let condition = format!("{:?}", readiness.report().conditions["partition-1"]);
    assert!(condition.contains("2 events were deleted unread"), "{condition}");
    assert_eq!(world.rows().await, *world.expected());
    stop(second).await;
}
