//! Tests of a consumer's graceful stop: it writes and commits what it has gathered, and ends within the grace period
//! even if the store is silent or the consumer group cannot be left.

use std::time::Duration;

use async_trait::async_trait;
use tally_core::definitions::Direction::Add as Like;
use tally_core::ports::log::Rebalance;
use tally_core::ports::{Intake, Outcome};
use tally_emulator::{Fault as Injected, Rule};
use tally_testkit::eventually;
use tokio::time::Instant;

use super::world::{GROUP, TOPIC, World, is_ready};

#[tokio::test(start_paused = true)]
async fn a_stop_writes_what_was_gathered_commits_and_stores_it_and_ends_cleanly() {
    let mut world = World::new(3).await;
    world.settings.linger = Duration::from_secs(60);
    (0..3).for_each(|partition| world.say(partition, "a", Like));
    let consumer = world.consumer();
    eventually("it has joined", async || is_ready(&consumer)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.store.items("likes").await.len(), 0, "nothing is due yet");
    world.stop(consumer).await;
    world.is_right().await;
    for partition in 0..3 {
        assert_eq!((world.committed(partition).await, world.safe(partition).await), (Some(1), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_store_is_silent_ends_cleanly_within_the_grace_period() {
    let mut world = World::new(1).await;
    world.say(0, "a", Like);
    let hang = Rule::new(Injected::Latency { min_ms: 3_600_000, max_ms: 3_600_000 });
    world.store.faults([hang.on("BatchExecuteStatement")]);
    let consumer = world.consumer();
    eventually("a request is under way", async || world.store.requests("BatchExecuteStatement") > 0).await;
    let began = Instant::now();
    world.stop(consumer).await;
    assert!(began.elapsed() < Duration::from_secs(25));
    assert_eq!(world.safe(0).await, 0);
}

/// A member of a group that cannot be left.
struct Clinging(Box<dyn Intake>);

#[async_trait]
impl Intake for Clinging {
    async fn next(&mut self) -> Outcome<Rebalance> {
        self.0.next().await
    }

    async fn leave(self: Box<Self>) {
        std::future::pending::<()>().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_be_left_does_not_keep_the_process_from_ending() {
    let mut world = World::new(1).await;
    let broker = world.broker.clone();
    let join = move || Ok(Box::new(Clinging(Box::new(broker.join(GROUP, TOPIC)))) as Box<dyn Intake>);
    let consumer = world.start(Box::new(join));
    eventually("it has joined", async || is_ready(&consumer)).await;
    let began = Instant::now();
    world.stop(consumer).await;
    assert!(began.elapsed() < Duration::from_secs(25));
}
