//! Tests of the change-streamer's relay and fold together, over the emulator through the real SDK and a Kafka in
//! memory, under paused time. Those in this file kill processes at random, trim the stream unread, and silence the
//! store.

mod claims;
mod inputs;
mod others;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tally_adapters::dynamodb::changes::{Changes, Config as LogConfig};
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{Checkpoints, Recounts};
use tally_adapters::memory::PartitionCache;
use tally_adapters::memory::log::{Broker, Stamping};
use tally_change_streamer::Ports;
use tally_core::cached::{Cache, Value as Cached};
use tally_core::changes::{Body, DeploymentId, Message};
use tally_core::ids::{CounterId, RowKey};
use tally_core::milestone::Winner;
use tally_core::ports::Outcome;
use tally_core::ports::log::{Outgoing, Producer, TopicReader, Written};
use tally_core::topic::Partition;
use tally_emulator::{Config, Fault, Rule};
use tally_service::{Clock, Running};
use tally_testkit::{BEGAN, Store, is_fresh, post};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::started::{DEADLINE, TOPIC, eventually, ports, start, stop, waits};
use crate::tables::Tables;

const PARTITIONS: u32 = 3;

/// Tables and a log. The counters must equal the rows when all is quiet.
struct World {
    tables: Tables,
    broker: Broker,
    cache: PartitionCache,
    clock: Clock,
}

fn deployment() -> DeploymentId {
    DeploymentId("test".into())
}

impl World {
    async fn start(config: Config) -> Self {
        let store = Store::with(config).await;
        let broker = Broker::new();
        broker.create_topic(TOPIC, PARTITIONS);
        let log = broker.reader("test", TOPIC).logs().await.unwrap().remove(0).1;
        // Rows come after the configuration: nothing starts over rows without it.
        Checkpoints::new(&store.connection).config(None).await.unwrap();
        let config = LogConfig { deployment: deployment(), partitions: PARTITIONS, topic: log.topic, generation: 1 };
        Changes::new(&store.connection).begin_log(&config).await.unwrap();
        Counters::new(&store.connection).put_reserved().await.unwrap();
        let (cache, clock) = (PartitionCache::bounded(1000), Clock::starting_at(BEGAN));
        Self { tables: Tables::new(store, 7), broker, cache, clock }
    }

    /// Starts a world whose stream has so many shards, and a process.
    async fn running(shards: u32) -> (Self, Running) {
        let world = Self::start(Config { shards, ..Config::default() }).await;
        let running = world.run("a");
        (world, running)
    }

    fn ports(&self) -> Ports {
        let cache: Arc<dyn Cache> = Arc::new(self.cache.clone());
        Ports { cache: Some(cache), ..ports(&self.tables.store, &self.broker, self.clock) }
    }

    fn run(&self, name: &str) -> Running {
        start(name, self.clock, false, self.ports())
    }

    /// Writes a like of a user who has not liked the post.
    async fn like(&mut self, p: u64, u: u64) {
        self.tables.put(p, u, 0, None).await;
    }

    /// Appends a message to the log.
    fn tell(&self, partition: u32, body: Body) {
        let message = Message { read: self.clock.now(), body };
        self.write(partition, Some(&message.write(&deployment())));
    }

    fn write(&self, partition: u32, value: Option<&[u8]>) {
        let record = Outgoing { topic: TOPIC, partition: Some(partition), key: None, value, headers: &[] };
        self.broker.write(record, self.clock.now()).unwrap();
    }

    /// Returns the thresholds that a post has reached, and who reached them.
    async fn milestones(&self, p: u64) -> Vec<(i64, Winner)> {
        let recounts = Recounts::new(&self.tables.store.repeating(5));
        let mut reached = recounts.milestones(&post(p), 100).await.unwrap();
        reached.sort_by_key(|recorded| recorded.milestone.n);
        reached.into_iter().map(|recorded| (recorded.milestone.n, recorded.milestone.by)).collect()
    }

    /// Waits until every counter equals its rows.
    async fn exact(&self, posts: u64) {
        let began = Instant::now();
        while let Some(wrong) = self.tables.wrong(posts).await {
            assert!(began.elapsed() < DEADLINE, "{wrong}; losses {:?}", self.tables.losses().await);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Likes and unlikes at random, and waits until every counter equals its rows.
    async fn count(&mut self, changes: usize, posts: u64, users: u64) {
        self.tables.churn(changes, posts, users).await;
        self.exact(posts).await;
    }

    /// Fills the cache as a reader does. Returns how many values it has then.
    async fn fill(&self, posts: u64) -> usize {
        let mut fills = Vec::new();
        for id in (0..posts).map(post) {
            fills.extend(self.cache.begin_fill(partition_of(&id), &id).await.unwrap().map(|token| (id, token)));
        }
        let counters = self.tables.counters(posts).await;
        for (id, token) in fills {
            let value = counters.get(&id).map(Cached::from).unwrap_or_default();
            self.cache.fill(partition_of(&id), &id, &token, &value).await.unwrap();
        }
        self.cached(posts).await.len()
    }

    /// Waits until the cache has a standing of this moment or later for every partition.
    async fn cache_is_fresh(&self) {
        let now = self.clock.now();
        eventually("the cache is fresh", async || {
            for partition in 0..PARTITIONS {
                let stated = self.cache.get(partition, &[]).await.unwrap().stated;
                if stated.is_none_or(|stated| stated.standing.as_of < Some(now)) {
                    return false;
                }
            }
            true
        })
        .await;
    }

    /// Returns the values of the cache that count.
    async fn cached(&self, posts: u64) -> BTreeMap<CounterId, Cached> {
        let mut cached = BTreeMap::new();
        for id in (0..posts).map(post) {
            let got = self.cache.get(partition_of(&id), std::slice::from_ref(&id)).await.unwrap();
            cached.extend(got.values[0].map(|value| (id, value)));
        }
        cached
    }

    /// Waits until every partition has a standing of this moment or later.
    async fn fresh(&self) {
        let (changes, now) = (self.tables.changes(), self.clock.now());
        eventually("all partitions are fresh", async || is_fresh(&changes, PARTITIONS, now).await).await;
    }

    /// Returns the partitions of the log, each with the offset where it ends.
    async fn ends(&self) -> Vec<(u32, u64)> {
        let logs = self.broker.reader("test", TOPIC).logs().await.unwrap();
        logs.into_iter().map(|(Partition { index, .. }, log)| (index, log.end.0)).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn processes_killed_at_random_are_exact() {
    let splitting = Config { seed: 3, shards: 4, split_after: Some(300), max_open_shards: 12, ..Config::default() };
    let mut world = World::start(splitting).await;
    let mut running = vec![world.run("a"), world.run("b")];
    for nth in 0..12 {
        world.tables.churn(150, 20, 40).await;
        let wait = world.tables.chance.up_to(Duration::from_millis(2500));
        tokio::time::sleep(wait).await;
        let victim = usize::try_from(world.tables.chance.token() % 2).unwrap();
        running.swap_remove(victim).kill().await;
        running.push(world.run(&format!("after-{nth}")));
    }
    let killed = Instant::now();
    world.exact(20).await;
    world.fresh().await;
    // A lease is taken over within seconds; a change waits for it.
    assert!(killed.elapsed() < Duration::from_secs(60), "caught up only after {:?}", killed.elapsed());
    assert_eq!(world.tables.losses().await, [""; 0]);
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_trimmed_unread_is_a_loss_that_every_partition_knows() {
    let (mut world, running) = World::running(2).await;
    world.count(50, 6, 20).await;
    world.fresh().await;
    // The stored position of what is fed is behind. Everything after it is trimmed before another process reads it.
    tokio::time::sleep(tally_core::relay::Rules::default().store * 2).await;
    running.kill().await;
    world.tables.churn(50, 6, 20).await;
    world.tables.store.emulator.trim("likes", None, None).unwrap();
    let running = world.run("b");
    world.tables.churn(5, 6, 20).await;
    eventually("every partition knows of the loss", async || {
        let standings = world.tables.changes().standings(PARTITIONS).await.unwrap();
        standings.values().filter(|stored| !stored.standing.open.is_empty()).count() == PARTITIONS as usize
    })
    .await;
    assert!(world.tables.losses().await.contains(&"trimmed".to_owned()), "{:?}", world.tables.losses().await);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_stopped_while_the_store_is_silent_ends_within_its_grace() {
    let (mut world, running) = World::running(8).await;
    world.count(100, 5, 20).await;
    world.tables.store.faults([Rule::new(Fault::Ghost { max_delay_ms: 1, hang_ms: 3_600_000 })]);
    stop(vec![running]).await;
}

fn partition_of(id: &CounterId) -> u32 {
    tally_core::changes::partition_of(&RowKey::first(id), PARTITIONS)
}

fn number(n: i64) -> Value {
    json!({"N": n.to_string()})
}
