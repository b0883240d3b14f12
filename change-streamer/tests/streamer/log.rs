//! Tests of relay and fold together, over the emulator through the real SDK and a Kafka in memory, under paused time.

mod claims;
mod inputs;
mod others;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tally_adapters::dynamodb;
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::changes::{Changes, Config as LogConfig};
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::memory::PartitionCache;
use tally_adapters::memory::log::Broker;
use tally_change_streamer::Rules;
use tally_change_streamer::fold::Folding;
use tally_change_streamer::relay::Relaying;
use tally_core::cached::{Cache, Value as Cached};
use tally_core::changes::{Body, DeploymentId, Message};
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, PostId, RowKey};
use tally_core::milestone::{Ladder, Winner};
use tally_core::ports::log::{Outgoing, Producer, TopicReader, Written};
use tally_core::ports::{ChangeStream, Intake, Outcome};
use tally_core::topic::Partition;
use tally_emulator::{Config, Fault, Rule};
use tally_service::{Chance, Clock, Host, Patience, Running};
use tally_testkit::{BEGAN, Store};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::rows::churn;

const TOPIC: &str = "changes";
const PARTITIONS: u32 = 3;
const DEADLINE: Duration = Duration::from_secs(3600);

/// Tables, a log, and the rows that the counters must equal when all is quiet.
struct World {
    store: Store,
    broker: Broker,
    cache: PartitionCache,
    clock: Clock,
    rows: BTreeMap<(u64, u64), ()>,
    chance: Chance,
    ladder: watch::Sender<Ladder>,
}

/// A producer that states when each record was appended to the topic.
struct Stamping(Broker, Clock);

#[async_trait]
impl Producer for Stamping {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.0.write(record, self.1.now())
    }
}

/// A process with both roles.
struct Both {
    relaying: Relaying,
    folding: Folding,
    intake: Box<dyn Intake>,
}

impl tally_service::App for Both {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let patience = Patience::new(host.clock(), host.chance().clone());
        self.relaying.spawn(&host, &patience);
        self.folding.spawn(self.intake, &host, &patience);
        Ok(())
    }
}

fn post(n: u64) -> CounterId {
    CounterId::likes(PostId::new(&format!("p-{n}")).unwrap())
}

impl World {
    async fn start(config: Config) -> Self {
        let store = Store::with(config).await;
        let broker = Broker::new();
        broker.create_topic(TOPIC, PARTITIONS);
        let log = broker.reader("test", TOPIC).logs().await.unwrap().remove(0).1;
        let changes = Changes::new(&store.connection);
        let deployment = DeploymentId("test".into());
        let config = LogConfig { deployment, partitions: PARTITIONS, topic: log.topic, generation: 1 };
        changes.begin_log(&config).await.unwrap();
        Counters::new(&store.connection).put_reserved().await.unwrap();
        let (cache, clock) = (PartitionCache::bounded(1000), Clock::starting_at(BEGAN));
        let (chance, ladder) = (Chance::seeded(7), watch::Sender::default());
        Self { store, broker, cache, clock, rows: BTreeMap::new(), chance, ladder }
    }

    /// Starts a process; `lease: None` has it read every stream shard.
    fn run(&self, name: &str, lease: Option<Duration>) -> Running {
        self.run_with(name, lease, Box::new(self.broker.join("fold", TOPIC)))
    }

    fn run_with(&self, name: &str, lease: Option<Duration>, intake: Box<dyn Intake>) -> Running {
        self.run_over(name, lease, intake, Arc::new(Stamping(self.broker.clone(), self.clock)))
    }

    fn run_over(
        &self,
        name: &str,
        lease: Option<Duration>,
        intake: Box<dyn Intake>,
        producer: Arc<dyn Producer>,
    ) -> Running {
        let connection = self.store.repeating(1);
        let stream: Arc<dyn ChangeStream> = Arc::new(dynamodb::Streams::new(&connection));
        let store = Arc::new(Changes::new(&connection));
        let (poll_idle, discover) = (Duration::from_millis(200), Duration::from_secs(5));
        let rules = Rules { poll_idle, discover, no_leases: lease.is_none(), ..Rules::default() };
        let rules = Rules { lease: lease.unwrap_or(rules.lease), ..rules };
        let relaying = Relaying {
            stream,
            store: Arc::clone(&store),
            producer,
            topic: TOPIC.into(),
            partitions: PARTITIONS,
            deployment: DeploymentId("test".into()),
            rules,
            ladder: self.ladder.subscribe(),
        };
        let folding = Folding {
            counters: Arc::new(Counters::new(&connection)),
            cache: Some(Arc::new(self.cache.clone())),
            store,
            deployment: DeploymentId("test".into()),
            rules,
            publishing: None,
        };
        let seed = name.bytes().fold(7u64, |seed, byte| seed.wrapping_mul(131).wrapping_add(u64::from(byte)));
        let host = Host::new(name).with_clock(self.clock).with_chance(Chance::seeded(seed));
        Running::start(Both { relaying, folding, intake }, host)
    }

    /// Likes and unlikes at random, each of some user and some post.
    async fn churn(&mut self, changes: usize, posts: u64, users: u64) {
        churn(&self.store, &self.chance, &mut self.rows, (changes, posts, users)).await;
    }

    /// Writes a like of a user who has not liked the post.
    async fn like(&mut self, p: u64, u: u64) {
        self.rows.insert((p, u), ());
        let item = json!({
            "pk": {"S": format!("p-{p}#0")}, "user_id": {"S": format!("u-{u}")},
            "post_id": {"S": format!("p-{p}")}, "liked_at": number(1),
        });
        self.store.call("PutItem", json!({"TableName": "likes", "Item": item})).await;
    }

    /// Appends a message to the log.
    async fn tell(&self, partition: u32, body: Body) {
        let message = Message { read: self.clock.now(), body };
        self.write(partition, &message.write(&DeploymentId("test".into()))).await;
    }

    async fn write(&self, partition: u32, value: &[u8]) {
        let outgoing =
            Outgoing { topic: TOPIC, partition: Some(partition), key: None, value: Some(value), headers: &[] };
        Stamping(self.broker.clone(), self.clock).send(outgoing).await.unwrap();
    }

    /// Returns the thresholds that a post has reached, and who reached them.
    async fn milestones(&self, p: u64) -> Vec<(i64, Winner)> {
        let recounts = dynamodb::Recounts::new(&self.store.repeating(5));
        let mut reached = recounts.milestones(&post(p), 100).await.unwrap();
        reached.sort_by_key(|recorded| recorded.milestone.n);
        reached.into_iter().map(|recorded| (recorded.milestone.n, recorded.milestone.by)).collect()
    }

    async fn counters(&self, posts: u64) -> BTreeMap<CounterId, Counter> {
        let ids: Vec<_> = (0..posts).map(post).collect();
        let read = Counters::new(&self.store.repeating(5)).read(&ids, Consistency::Strong).await.unwrap();
        read.counters.into_iter().map(|(id, counter)| (id, counter.unwrap())).collect()
    }

    fn likes(&self, p: u64) -> i64 {
        i64::try_from(self.rows.keys().filter(|(post, _)| *post == p).count()).unwrap()
    }

    /// Waits until every counter equals its rows.
    async fn exact(&self, posts: u64) {
        let began = Instant::now();
        loop {
            let counters = self.counters(posts).await;
            let wrong = (0..posts).find(|p| {
                let counter = counters.get(&post(*p)).cloned().unwrap_or_default();
                counter.likes != self.likes(*p) || !counter.adds_up()
            });
            let Some(wrong) = wrong else { return };
            assert!(
                began.elapsed() < DEADLINE,
                "p-{wrong} has {} rows and counts {:?}; losses {:?}",
                self.likes(wrong),
                counters.get(&post(wrong)),
                self.losses().await
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Fills the cache as a reader does. Returns how many values it has then.
    async fn fill(&self, posts: u64) -> usize {
        for id in (0..posts).map(post) {
            let partition = partition_of(&id);
            if let Some(token) = self.cache.begin_fill(partition, &id).await.unwrap() {
                let read = Counters::new(&self.store.repeating(5))
                    .read(std::slice::from_ref(&id), Consistency::Strong)
                    .await
                    .unwrap();
                let value = read.counters.get(&id).map(|counter| Cached::from(counter.as_ref().unwrap()));
                self.cache.fill(partition, &id, &token, &value.unwrap_or_default()).await.unwrap();
            }
        }
        self.cached(posts).await.len()
    }

    /// Waits until the cache has a standing of this moment or later for every partition.
    async fn cache_is_fresh(&self) {
        let (now, began) = (self.clock.now(), Instant::now());
        for partition in 0..PARTITIONS {
            while self
                .cache
                .get(partition, &[])
                .await
                .unwrap()
                .stated
                .is_none_or(|stated| stated.standing.as_of < Some(now))
            {
                assert!(began.elapsed() < DEADLINE, "the cache of partition {partition} stands still");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
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

    async fn losses(&self) -> Vec<String> {
        let losses = Changes::new(&self.store.repeating(5)).losses().await.unwrap();
        losses.open().map(|(_, loss)| loss.kind.clone()).collect()
    }

    /// Waits until every partition has a standing of this moment or later.
    async fn fresh(&self) {
        let (now, began) = (self.clock.now(), Instant::now());
        let changes = Changes::new(&self.store.repeating(5));
        loop {
            let standings = changes.standings(PARTITIONS).await.unwrap();
            let fresh = standings.values().filter(|stored| stored.standing.as_of >= Some(now)).count();
            if fresh == PARTITIONS as usize {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{now}: {standings:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

async fn stop(running: Vec<Running>) {
    for running in running {
        let ended = running.stop(Duration::from_secs(20)).await;
        assert!(ended.exit().is_clean(), "{ended:?}");
    }
}

/// Faults in some of all calls that relay and fold make.
fn faults() -> Vec<Rule> {
    let operations = [
        "BatchExecuteStatement",
        "BatchGetItem",
        "UpdateItem",
        "PutItem",
        "GetItem",
        "Query",
        "GetRecords",
        "GetShardIterator",
        "DescribeStream",
    ];
    let rules = operations.into_iter().flat_map(|operation| {
        let table = |rule: Rule| if operation == "PutItem" { rule.table("checkpoints") } else { rule };
        [
            table(Rule::new(Fault::Throttle).on(operation).chance(0.02)),
            table(Rule::new(Fault::DropReply).on(operation).chance(0.02)),
        ]
    });
    let ghost = Fault::Ghost { max_delay_ms: 60_000, hang_ms: 0 };
    rules.chain([Rule::new(ghost).on("BatchExecuteStatement").chance(0.2)]).collect()
}

fn splitting() -> Config {
    Config { seed: 3, shards: 4, split_after: Some(300), max_open_shards: 12, ..Config::default() }
}

#[tokio::test(start_paused = true)]
async fn counts_equal_rows_and_say_as_of_when_also_while_stream_shards_split() {
    let mut world = World::start(splitting()).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    for _ in 0..10 {
        world.churn(200, 20, 40).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.exact(20).await;
    world.fresh().await;
    assert_eq!(world.losses().await, [""; 0]);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn the_cache_has_every_change_before_its_standing_also_after_it_forgot_what_it_was_told() {
    let mut world = World::start(Config { shards: 2, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.churn(200, 20, 40).await;
    world.exact(20).await;
    assert_eq!(world.fill(20).await, 20);
    let before: Vec<_> = (0..PARTITIONS).map(|partition| world.cache.snapshot(partition)).collect();
    world.churn(200, 20, 40).await;
    world.exact(20).await;
    world.fresh().await;
    for (id, value) in world.cached(20).await {
        assert_eq!(value.likes, world.counters(20).await[&id].likes, "{id}");
    }
    // A failover, to a cache replica that lags.
    for (partition, slot) in (0..).zip(before) {
        world.cache.restore(partition, slot);
    }
    world.churn(200, 20, 40).await;
    world.exact(20).await;
    world.cache_is_fresh().await;
    let cached = world.cached(20).await;
    assert!(cached.len() < 20, "the fold took the cache over again, which makes it empty");
    for (id, value) in cached {
        assert_eq!(value.likes, world.counters(20).await[&id].likes, "{id}");
    }
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn two_processes_on_every_stream_shard_are_exact_while_everything_fails_now_and_then() {
    let mut world = World::start(splitting()).await;
    world.store.faults(faults());
    let running = vec![world.run("a", None), world.run("b", None)];
    for _ in 0..12 {
        world.churn(150, 20, 40).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.store.faults([]);
    // The last late request may land a minute later.
    tokio::time::sleep(Duration::from_secs(61)).await;
    world.exact(20).await;
    world.fresh().await;
    assert_eq!(world.losses().await, [""; 0]);
    let stats = world.store.emulator.stats();
    for fault in ["throttle", "drop_reply", "ghost"] {
        assert!(stats.fired(fault) > 0, "{fault} never fired");
    }
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn processes_killed_at_random_are_exact() {
    let mut world = World::start(splitting()).await;
    let lease = Some(Duration::from_secs(6));
    let mut running = vec![world.run("a", lease), world.run("b", lease)];
    for nth in 0..12 {
        world.churn(150, 20, 40).await;
        let wait = world.chance.up_to(Duration::from_millis(2500));
        tokio::time::sleep(wait).await;
        let victim = usize::try_from(world.chance.token() % 2).unwrap();
        running.swap_remove(victim).kill().await;
        running.push(world.run(&format!("after-{nth}"), lease));
    }
    world.exact(20).await;
    world.fresh().await;
    assert_eq!(world.losses().await, [""; 0]);
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_loses_its_end_is_a_loss_and_counting_goes_on() {
    let mut world = World::start(Config { shards: 2, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.churn(100, 6, 20).await;
    world.exact(6).await;
    assert_eq!(world.fill(6).await, 6);
    let reader = world.broker.reader("test", TOPIC);
    for (Partition { index, .. }, log) in reader.logs().await.unwrap() {
        world.broker.lose_tail(TOPIC, index, log.end.0.saturating_sub(3));
    }
    world.churn(100, 6, 20).await;
    let began = Instant::now();
    while world.losses().await.is_empty() {
        assert!(began.elapsed() < DEADLINE, "no loss was found");
        world.churn(10, 6, 20).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // All stream shards are announced again, so the standings have a time again.
    world.fresh().await;
    world.cache_is_fresh().await;
    assert_eq!(world.cached(6).await.len(), 0, "what was cached lacks the changes that the log lost");
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_fold_whose_position_left_the_log_goes_on_behind_a_loss_and_knows_all_stream_shards_again() {
    let mut world = World::start(Config { shards: 2, ..Config::default() }).await;
    let lease = Some(Duration::from_secs(6));
    let running = world.run("a", lease);
    world.churn(100, 6, 20).await;
    world.exact(6).await;
    running.kill().await;
    for (Partition { index, .. }, log) in world.broker.reader("test", TOPIC).logs().await.unwrap() {
        world.broker.trim(TOPIC, index, log.end.0);
    }
    let running = world.run("b", lease);
    world.churn(100, 6, 20).await;
    world.fresh().await;
    let losses = world.losses().await;
    assert!(!losses.is_empty() && losses.iter().all(|kind| kind == "jump"), "{losses:?}");
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_was_trimmed_unread_is_a_loss_that_every_partition_knows() {
    let mut world = World::start(Config { shards: 2, ..Config::default() }).await;
    let lease = Some(Duration::from_secs(6));
    let running = world.run("a", lease);
    world.churn(50, 6, 20).await;
    world.exact(6).await;
    world.fresh().await;
    // The stored position of what is fed is behind. Everything after it is trimmed before another process reads it.
    tokio::time::sleep(tally_core::relay::Rules::default().store * 2).await;
    running.kill().await;
    world.churn(50, 6, 20).await;
    world.store.emulator.trim("likes", None, None).unwrap();
    let running = world.run("b", lease);
    world.churn(5, 6, 20).await;
    let began = Instant::now();
    loop {
        let standings = Changes::new(&world.store.repeating(5)).standings(PARTITIONS).await.unwrap();
        if standings.values().filter(|stored| !stored.standing.open.is_empty()).count() == PARTITIONS as usize {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "{standings:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(world.losses().await.contains(&"trimmed".to_owned()), "{:?}", world.losses().await);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn an_edit_by_hand_is_neither_undone_nor_counted_twice_by_what_follows() {
    let mut world = World::start(Config { shards: 2, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.churn(100, 1, 20).await;
    world.exact(1).await;
    let wrong = number(world.likes(0) + 7);
    world.store.edit("like_counts", json!({"post_id": {"S": "p-0"}}), "likes", wrong).await;
    world.churn(30, 1, 20).await;
    let began = Instant::now();
    while world.counters(1).await[&post(0)].likes != world.likes(0) + 7 {
        assert!(began.elapsed() < DEADLINE, "{:?} and {} rows", world.counters(1).await, world.likes(0));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(!world.counters(1).await[&post(0)].adds_up(), "which no answer calls exact");
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_stopped_while_the_store_is_silent_ends_within_its_grace() {
    let mut world = World::start(Config { shards: 8, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.churn(100, 5, 20).await;
    world.exact(5).await;
    world.store.faults([Rule::new(Fault::Ghost { max_delay_ms: 1, hang_ms: 3_600_000 })]);
    stop(vec![running]).await;
}

fn partition_of(id: &CounterId) -> u32 {
    tally_core::changes::partition_of(&RowKey::first(id), PARTITIONS)
}

fn number(n: i64) -> Value {
    json!({"N": n.to_string()})
}
