//! A recount while views of one post pour in and drift stands in three of its counters. `TALLY_TEST_LONG=1` pours in 1,000
//! views a second; without it there are fewer, so that it takes seconds.

use std::time::Duration;

use serde_json::json;
use tally_core::definitions::{Definitions, Entry};
use tally_core::ids::{CounterId, CounterKind, Shard, ShardCount};
use tally_core::ports::{DeploymentConfig as _, Ledger as _, Runs as _};
use tally_core::time::UnixMillis;
use tally_emulator::Emulator;
use tally_service::Exit;
use tokio::time::{Instant, MissedTickBehavior};

use super::raw;
use super::stack::{Stack, TOPIC, counter};

const BEGAN: UnixMillis = UnixMillis(1_700_000_000_000);
const PARTITIONS: u32 = 12;
const TICK: Duration = Duration::from_millis(100);

fn views_a_second() -> u64 {
    if std::env::var_os("TALLY_TEST_LONG").is_some() { 1_000 } else { 100 }
}

fn definitions() -> Definitions {
    let retweets = Entry::set("retweets", "retweet", Some("unretweet"));
    Definitions::new(&[retweets, Entry::sum("views", "view", None)]).unwrap()
}

/// Views that are said all the time, each by another partition, and what they come to.
struct Pouring {
    said: u64,
    amount: i64,
}

impl Pouring {
    fn tick(&mut self, stack: &Stack) {
        for _ in 0..views_a_second() * u64::try_from(TICK.as_millis()).unwrap() / 1_000 {
            let n = 1 + i64::try_from(self.said % 5).unwrap();
            let partition = u32::try_from(self.said % u64::from(PARTITIONS)).unwrap();
            let view = json!({"post_id": "hot", "action": "view", "n": n});
            assert_eq!(stack.send("hot", Some(partition), &view).partition, partition);
            (self.said, self.amount) = (self.said + 1, self.amount + n);
        }
    }

    /// Says views until `work` is done.
    async fn during<T>(&mut self, stack: &Stack, work: impl Future<Output = T>) -> (T, Duration) {
        let (began, mut work) = (Instant::now(), std::pin::pin!(work));
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => self.tick(stack),
                done = &mut work => return (done, began.elapsed()),
            }
        }
    }
}

/// Adds `by` to one shard of a counter, and to its total.
async fn drift(emulator: &Emulator, counter: &CounterId, shard: Shard, by: i64) {
    let names = json!({"#s": format!("s{shard}"), "#l": "likes", "#v": "version"});
    let values = json!({":by": {"N": by.to_string()}, ":one": {"N": "1"}});
    let body = json!({
        "TableName": "like_counts",
        "Key": {"post_id": {"S": counter.stored()}},
        "UpdateExpression": "ADD #s :by, #l :by, #v :one",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    });
    raw::call(emulator, "UpdateItem", body).await;
}

#[tokio::test(start_paused = true)]
async fn a_recount_while_views_pour_in_is_exact_and_writes_the_ledger() {
    let shards = ShardCount::new(4).unwrap();
    let stack = Stack::at(BEGAN, shards, 2).await;
    stack.broker.create_topic(TOPIC, PARTITIONS);
    stack.broker.create_topic("likes.dlq", 1);
    stack.checkpoints.config(Some(shards)).await.unwrap();
    assert_eq!(stack.checkpoints.define(&Definitions::likes_alone(), &definitions()).await, Ok(true));
    let (_consumer, _streamer) = (stack.consumer(), stack.streamer());
    for (action, users) in [("like", 40), ("retweet", 25)] {
        (0..users).for_each(|user| _ = stack.say("hot", &format!("u-{user}"), action));
    }
    let mut pouring = Pouring { said: 0, amount: 0 };
    pouring.during(&stack, tokio::time::sleep(Duration::from_secs(2))).await;
    stack.quiet().await;

    let of = |name, kind| counter("hot", name, kind);
    let wrong = [
        (of("likes", CounterKind::Set), 7),
        (of("retweets", CounterKind::Set), -5),
        (of("views", CounterKind::Sum), 333),
    ];
    let drifted = Shard::new(1).unwrap();
    for (counter, by) in &wrong {
        drift(&stack.emulator, counter, drifted, *by).await;
    }
    let said = pouring.said;
    let (exit, took) = pouring.during(&stack, stack.recount(&[])).await;
    assert_eq!(exit, Exit::CLEAN, "{:?}", stack.recounts.runs(1).await);
    let poured = pouring.said - said;
    assert!(poured >= views_a_second() * took.as_secs(), "{poured} views in {took:?}");
    println!("{poured} views in the {took:?} of the recount");
    stack.quiet().await;

    assert_eq!(stack.exact(&wrong[0].0).await, 40);
    assert_eq!(stack.exact(&wrong[1].0).await, 25);
    assert_eq!(stack.exact(&wrong[2].0).await, pouring.amount);
    for (counter, by) in &wrong {
        let ledger = stack.recounts.ledger(counter, 100).await.unwrap();
        let corrections = ledger.iter().map(|line| (line.shard, line.after - line.before));
        let corrections: Vec<_> = corrections.filter(|(_, by)| *by != 0).collect();
        assert_eq!(corrections, [(Some(drifted), -by)], "{counter}: {ledger:?}");
    }
    assert_eq!(stack.recount(&[]).await, Exit::CLEAN);
    assert_eq!(stack.recounts.runs(1).await.unwrap()[0].summary.found(), 0);
    let shown = stack.ask("/v1/posts/hot/counters").await;
    for (name, value) in [("likes", 40), ("retweets", 25), ("views", pouring.amount)] {
        assert_eq!(
            (&shown["counters"][name]["value"], &shown["counters"][name]["exact"]),
            (&json!(value), &json!(true))
        );
    }
}
