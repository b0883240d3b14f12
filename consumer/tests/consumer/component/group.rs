//! Partitions that come and go, a group that refuses, and an orderly end.

use std::sync::Arc;
use std::time::Duration;

use tally_core::event::Action::{Like, Unlike};
use tally_core::fault::Fault;
use tally_core::fence::Commit;
use tokio::sync::Notify;

use super::common::{self, Answer, World, eventually, stop};

#[tokio::test(start_paused = true)]
async fn a_revoked_partition_is_drained_before_it_is_given_back() {
    let mut world = World::new(2);
    world.say(1, "a", Like);
    let held = Arc::new(Notify::new());
    let hold = Arc::clone(&held);
    let mut first = true;
    world.table.script(move |asked| {
        let holds = asked.partition == 1 && std::mem::take(&mut first);
        if holds { Answer::Hold(Arc::clone(&hold)) } else { Answer::Truth }
    });
    let one = world.consumer();
    eventually("a transaction is under way", async || !world.table.asked().is_empty()).await;
    let two = world.consumer();
    world.say(1, "b", Like);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.table.asked().len(), 1, "the other has to wait for the drain");
    held.notify_one();
    world.reaches(1, 2).await;
    let steps: Vec<_> = world.table.asked().iter().map(|asked| (asked.from, asked.to)).collect();
    assert_eq!(steps, [(0, 1), (1, 2)], "no transaction was sent twice");
    assert_eq!(world.rows().await, *world.expected());
    stop(one).await;
    stop(two).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_too_long_is_dropped_and_its_late_write_is_harmless() {
    let mut world = World::new(2);
    world.say(1, "a", Like);
    let never = Arc::new(Notify::new());
    let hold = Arc::clone(&never);
    let mut first = true;
    world.table.script(move |asked| {
        let holds = asked.partition == 1 && std::mem::take(&mut first);
        let lost = Commit::Unknown("no answer".to_owned());
        if holds { Answer::SayAndDoLater(lost, Arc::clone(&hold)) } else { Answer::Truth }
    });
    let one = world.consumer();
    eventually("a transaction is under way", async || !world.table.asked().is_empty()).await;
    let two = world.consumer();
    world.reaches(1, 1).await;
    world.say(1, "a", Unlike);
    world.reaches(1, 2).await;
    never.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.rows().await, *world.expected());
    stop(one).await;
    stop(two).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_partition_is_dropped_at_once_and_its_zombie_is_refused_by_the_fence() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    let held = Arc::new(Notify::new());
    let hold = Arc::clone(&held);
    let mut first = true;
    world.table.script(move |_| {
        let lost = Commit::Unknown("no answer".to_owned());
        if std::mem::take(&mut first) { Answer::SayAndDoLater(lost, Arc::clone(&hold)) } else { Answer::Truth }
    });
    let consumer = world.consumer();
    eventually("a transaction is under way", async || !world.table.asked().is_empty()).await;
    world.broker.expire(common::GROUP);
    world.say(0, "a", Unlike);
    world.reaches(0, 2).await;
    held.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.rows().await, *world.expected());
    assert!(world.rows().await.is_empty());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_writes_what_was_gathered_and_ends_clean() {
    let mut world = World::new(3);
    world.settings.limits.age = Duration::from_secs(60);
    for partition in 0..3 {
        world.say(partition, "a", Like);
    }
    let consumer = world.consumer();
    let readiness = consumer.host().readiness().clone();
    eventually("it has joined", async || readiness.report().ready).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.table.asked().len(), 0, "nothing is due yet");
    stop(consumer).await;
    assert_eq!(world.rows().await, *world.expected());
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_store_is_silent_ends_clean_inside_the_grace() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    let never = Arc::new(Notify::new());
    world.table.script(move |_| Answer::Hold(Arc::clone(&never)));
    let consumer = world.consumer();
    eventually("a transaction is under way", async || !world.table.asked().is_empty()).await;
    let began = tokio::time::Instant::now();
    stop(consumer).await;
    assert!(began.elapsed() < Duration::from_secs(25));
    assert_eq!(world.fence(0).await, Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_login_that_is_refused_for_a_while_shows_and_ends_nothing() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    let (consumer, kafka) = world.consumer_under_a_moody_kafka();
    world.reaches(0, 1).await;
    let readiness = consumer.host().readiness().clone();
    eventually("it has joined", async || readiness.report().ready).await;
    kafka.says(Fault::Fatal("login refused".to_owned()));
    eventually("it shows", async || !readiness.report().ready).await;
    world.say(0, "b", Like);
    world.reaches(0, 2).await;
    eventually("ready again", async || readiness.report().ready).await;
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_be_left_does_not_keep_the_process() {
    let mut world = World::new(1);
    let (consumer, kafka) = world.consumer_under_a_moody_kafka();
    let readiness = consumer.host().readiness().clone();
    eventually("it has joined", async || readiness.report().ready).await;
    kafka.keeps_its_members();
    let began = tokio::time::Instant::now();
    stop(consumer).await;
    assert!(began.elapsed() < Duration::from_secs(25));
}
