//! Tests of counts over two Regions: the change-streamer of one publishes its counters, a mirror copies them, and the
//! change-streamer of the other stores them. Each Region has tables and a Kafka in memory, under paused time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::regions::{NamedRegions, Regions};
use tally_adapters::dynamodb::{Checkpoints, Consistency};
use tally_adapters::memory::log::Broker;
use tally_change_streamer::{Ports, RegionPorts, RemotePorts};
use tally_core::cached::{StandingAt, Value};
use tally_core::changes::{Amend, Body, Correction, Message};
use tally_core::event::partition_of;
use tally_core::fold::Counter;
use tally_core::ids::Region;
use tally_core::ports::log::{Intake, Outgoing, Producer, Rebalance, TopicReader};
use tally_core::topic::{Offset, Partition};
use tally_emulator::{Config as Engine, Fault, Rule};
use tally_service::{Clock, Running};
use tally_testkit::{BEGAN, Store, post, records};
use tokio::time::Instant;

use crate::started::{DEADLINE, eventually, ports, start, stop, waits};
use crate::tables::Tables;

const PARTITIONS: u32 = 2;

fn region(name: &str) -> Region {
    Region::new(name).unwrap()
}

/// One Region.
struct Place {
    name: Region,
    tables: Tables,
    broker: Broker,
    clock: Clock,
}

impl Place {
    async fn new(name: &str, seed: u64, clock: Clock) -> Self {
        let store = Store::with(Engine { seed, shards: 2, ..Engine::default() }).await;
        // The deployment has begun.
        Checkpoints::new(&store.connection).config(None).await.unwrap();
        let broker = Broker::new();
        for topic in ["changes", "counts"] {
            broker.create_topic(topic, PARTITIONS);
        }
        Self { name: region(name), tables: Tables::new(store, seed), broker, clock }
    }

    /// Starts a process that publishes, and reads the topics of others.
    fn run(&self, process: &str, remotes: &[&str]) -> Running {
        let remote = |name: &&str| {
            let (broker, topic) = (self.broker.clone(), format!("{name}.counts"));
            let (reader, at) = (Arc::new(self.broker.reader("test", &topic)), topic.clone());
            let join = Arc::new(move || Ok(Box::new(broker.join("remote", &at)) as _));
            RemotePorts { region: region(name), topic, reader, join }
        };
        let writing = self.broker.clone();
        let regions = RegionPorts {
            name: self.name.clone(),
            topic: "counts".to_owned(),
            usual: "likes".to_owned(),
            reader: Arc::new(self.broker.reader("test", "counts")),
            transactions: Arc::new(move |id| Box::new(writing.transactions(id))),
            remotes: remotes.iter().map(remote).collect(),
        };
        let ports = ports(&self.tables.store, &self.broker, self.clock);
        start(process, self.clock, false, Ports { regions: Some(regions), ..ports })
    }

    /// Sets a counter to its rows, as a recount does.
    async fn correct(&self, p: u64, counter: &Counter) {
        let mut parts: BTreeMap<_, _> = counter.doubt.iter().map(|shard| (*shard, Amend::Add(0))).collect();
        *parts.first_entry().expect("a shard is in doubt").get_mut() = Amend::Add(self.tables.likes(p) - counter.likes);
        let correction = Correction { counter: post(p), parts, seen: counter.corrections, loss: None };
        let message = Message { read: self.clock.now(), body: Body::Correction(correction) };
        let deployment = self.tables.changes().config().await.unwrap().unwrap().deployment;
        let (value, partition) = (message.write(&deployment), partition_of(post(p).post.as_bytes(), PARTITIONS));
        let (partition, value) = (Some(partition), Some(&value[..]));
        let out = Outgoing { topic: "changes", partition, key: None, value, headers: &[] };
        self.broker.send(out).await.unwrap();
    }

    /// Returns what this Region has stored of another Region's counter.
    async fn entry(&self, of: &Region, p: u64) -> Value {
        let id = post(p).in_region(of);
        let read =
            Counters::new(&self.tables.store.repeating(5)).read(std::slice::from_ref(&id), Consistency::Strong).await;
        read.unwrap().counters.remove(&id).map(|counter| Value::from(&counter.unwrap())).unwrap_or_default()
    }

    async fn standings(&self, of: &Region) -> BTreeMap<u32, StandingAt> {
        let named = NamedRegions { remotes: [of.clone()].into(), ..NamedRegions::default() };
        let read = Regions::new(&self.tables.store.repeating(5)).standings(&named, PARTITIONS).await.unwrap();
        read.into_iter().map(|((_, partition), stated)| (partition, stated)).collect()
    }

    /// Returns this Region's own standings.
    async fn own(&self) -> BTreeMap<u32, StandingAt> {
        self.tables.changes().standings(PARTITIONS).await.unwrap()
    }
}

/// Two Regions; `us` reads `eu` through a mirror.
struct Worlds {
    eu: Place,
    us: Place,
    copied: BTreeMap<u32, Offset>,
}

impl Worlds {
    async fn new() -> Self {
        let clock = Clock::starting_at(BEGAN);
        let (eu, us) = (Place::new("eu", 3, clock).await, Place::new("us", 5, clock).await);
        us.broker.create_topic("eu.counts", PARTITIONS);
        Self { eu, us, copied: BTreeMap::new() }
    }

    /// Starts a process in each, likes and unlikes at random in `eu`, and waits until `us` has the same.
    async fn running(changes: usize, posts: u64, users: u64) -> (Self, Vec<Running>) {
        let mut worlds = Self::new().await;
        let running = vec![worlds.eu.run("eu-a", &[]), worlds.us.run("us-a", &["eu"])];
        worlds.eu.tables.churn(changes, posts, users).await;
        worlds.equal(posts).await;
        (worlds, running)
    }

    /// Copies what is new in the topic of `eu`.
    async fn mirror(&mut self) {
        for (index, run) in records(&self.eu.broker.reader("mirror", "counts")).await.unwrap() {
            let next = self.copied.entry(index).or_default();
            for record in run.between(*next, Offset(u64::MAX)) {
                let (topic, partition, headers) = ("eu.counts", Some(index), &[][..]);
                let out = Outgoing { topic, partition, key: record.key, value: record.value, headers };
                self.us.broker.send(out).await.unwrap();
                *next = record.offset.next();
            }
        }
    }

    /// Mirrors until every entry equals the rows of its Region, and the standings beside the entries have a time and no
    /// open loss.
    async fn equal(&mut self, posts: u64) {
        let began = Instant::now();
        loop {
            self.mirror().await;
            let (name, mut wrong) = (self.eu.name.clone(), Vec::new());
            for p in 0..posts {
                let value = self.us.entry(&name, p).await;
                if value.likes != self.eu.tables.likes(p) {
                    wrong.push((p, value, self.eu.tables.likes(p)));
                }
            }
            let standings = self.us.standings(&name).await;
            if wrong.is_empty() && standings.len() == PARTITIONS as usize {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{wrong:?}; {standings:?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_taken_back_before_its_reader_has_begun_is_let_go() {
    let worlds = Worlds::new().await;
    let us = worlds.us.run("us-a", &["ap"]);
    waits(&us, "ap", &["there is no topic `ap.counts`"]).await;
    // Nothing begins while the store is away.
    worlds.us.tables.store.emulator.set_faults(vec![Rule::new(Fault::Outage)]);
    worlds.us.broker.create_topic("ap.counts", PARTITIONS);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let mut other = worlds.us.broker.join("remote", "ap.counts");
    tokio::time::sleep(Duration::from_secs(1)).await;
    worlds.us.tables.store.emulator.set_faults(Vec::new());
    let given = tokio::time::timeout(DEADLINE, other.next()).await;
    assert!(matches!(given, Ok(Ok(Rebalance::Assigned(partitions))) if partitions.len() == 1));
    stop(vec![us]).await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_had_counts_before_it_had_a_name_publishes_them() {
    let mut worlds = Worlds::new().await;
    let before = worlds.eu.run("eu-a", &[]);
    worlds.eu.tables.churn(100, 12, 20).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    stop(vec![before]).await;
    // The topic is created anew, so it has no message of these counters.
    worlds.eu.broker.create_topic("counts", PARTITIONS);
    worlds.copied.clear();
    let running = vec![worlds.eu.run("eu-b", &[]), worlds.us.run("us-a", &["eu"])];
    worlds.equal(12).await;
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn counters_that_a_lost_table_had_are_published_as_none_before_a_standing_without_the_loss() {
    let (mut worlds, running) = Worlds::running(60, 6, 20).await;
    // The counter of a post vanishes without a change in the log, as in a table that was restored.
    let likes = worlds.eu.tables.likes(0);
    assert!(likes > 0);
    worlds.eu.tables.delete_counter(0).await;
    let changes = worlds.eu.tables.changes();
    changes.open_new_loss(worlds.eu.clock.now(), "lost", "a table").await.unwrap();
    let (name, began) = (worlds.eu.name.clone(), Instant::now());
    while worlds.us.entry(&name, 0).await.likes != 0 {
        assert!(began.elapsed() < DEADLINE, "the entry stays: {:?}", worlds.us.entry(&name, 0).await);
        worlds.mirror().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (gap, standings) = (worlds.us.entry(&name, 0).await.gap, worlds.us.standings(&name).await);
    let is_told = |stated: &StandingAt| stated.standing.open.len() == 1;
    assert!(standings.values().all(is_told), "the loss is told beside the entries: {standings:?}");
    let knows = |stated: &StandingAt| gap.is_some() && gap == stated.standing.loss;
    assert!(standings.values().any(knows), "beside an earlier standing it is not exact: {gap:?}");
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn counters_in_another_table_are_published_in_doubt_until_the_standing_knows_of_the_loss() {
    let (mut worlds, running) = Worlds::running(60, 6, 20).await;
    let (name, counters) = (worlds.eu.name.clone(), Counters::new(&worlds.eu.tables.store.repeating(5)));
    let before = worlds.us.entry(&name, 0).await;
    assert!(before.likes > 0 && !before.doubtful);
    // A table that was adopted lacks the counter. For some time the log does not know of the loss.
    worlds.eu.tables.delete_counter(0).await;
    let began = Instant::now();
    counters.put_reserved_since(worlds.eu.clock.now().plus(Duration::from_secs(20))).await.unwrap();
    worlds.eu.tables.churn(20, 1, 40).await;
    let (partition, mut before_it_knows) = (partition_of(b"p-0", PARTITIONS), None);
    loop {
        worlds.mirror().await;
        let (entry, standings) = (worlds.us.entry(&name, 0).await, worlds.us.standings(&name).await);
        assert!(entry.version == before.version || entry.doubtful, "{entry:?}");
        let (at, elapsed) = (standings[&partition].at, began.elapsed());
        if (10..18).contains(&elapsed.as_secs()) {
            assert!(entry.doubtful && *before_it_knows.get_or_insert(at) == at, "a standing does not know of the loss");
        } else if before_it_knows.is_some_and(|before| at > before) {
            break;
        }
        assert!(elapsed < DEADLINE, "{entry:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // The counter itself is in doubt until a correction.
    let read = counters.read(&[post(0)], Consistency::Strong).await.unwrap();
    worlds.eu.correct(0, read.counters[&post(0)].as_ref().unwrap()).await;
    while worlds.us.entry(&name, 0).await.doubtful {
        assert!(began.elapsed() < DEADLINE, "it stays in doubt");
        worlds.mirror().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    worlds.equal(6).await;
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_the_topic_lost_is_named_in_other_regions_and_remembered_over_restarts() {
    let mut worlds = Worlds::new().await;
    let (eu, us) = (worlds.eu.run("eu-a", &[]), worlds.us.run("us-a", &["eu"]));
    worlds.eu.tables.churn(60, 6, 20).await;
    worlds.equal(6).await;
    // The fold has stored its position some time ago, so that only what it published last is lost.
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    eu.kill().await;
    let (regions, reader) =
        (Regions::new(&worlds.eu.tables.store.repeating(5)), worlds.eu.broker.reader("test", "counts"));
    for partition in 0..PARTITIONS {
        let log = reader.log(&Partition { topic: "counts".into(), index: partition }).await.unwrap();
        let end = log.end.0 - 1;
        worlds.eu.broker.lose_tail("counts", partition, end);
        worlds.copied.insert(partition, Offset(end));
    }
    for process in ["eu-b", "eu-c"] {
        let eu = worlds.eu.run(process, &[]);
        eventually("the lost end is known", async || {
            regions.published(0).await.unwrap().is_some_and(|published| published.cuts == 1 && !published.torn)
        })
        .await;
        worlds.mirror().await;
        waits(&us, "eu", &["published in another topic"]).await;
        stop(vec![eu]).await;
    }
    stop(vec![us]).await;
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_changes_all_the_time_is_written_once_in_five_seconds_in_another_region() {
    let (mut worlds, running) = Worlds::running(20, 1, 40).await;
    let (mut written, began) = (BTreeSet::new(), Instant::now());
    while began.elapsed() < Duration::from_secs(60) {
        worlds.eu.tables.churn(2, 1, 40).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        worlds.mirror().await;
        written.insert(worlds.us.entry(&region("eu"), 0).await.version);
    }
    assert!((6..=13).contains(&written.len()), "{} times in a minute", written.len());
    stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn an_alien_topic_is_named_and_nothing_of_it_is_counted_while_own_counts_go_on() {
    let mut worlds = Worlds::new().await;
    let us = worlds.us.run("us-a", &["ap", "eu"]);
    waits(&us, "ap", &["there is no topic `ap.counts`"]).await;
    worlds.us.broker.create_topic("ap.counts", PARTITIONS + 1);
    waits(&us, "ap", &["3 partitions"]).await;
    // What this Region publishes comes back as another Region's.
    worlds.us.tables.churn(40, 6, 20).await;
    let reader = worlds.us.broker.reader("test", "counts");
    let published = async || records(&reader).await.unwrap().into_iter().find(|(partition, _)| *partition == 0);
    eventually("counts are published", async || published().await.is_some()).await;
    let (_, run) = published().await.unwrap();
    let record = run.iter().next().unwrap();
    let (key, value) = (record.key, record.value);
    let out = Outgoing { topic: "eu.counts", partition: Some(0), key, value, headers: &[] };
    worlds.us.broker.send(out).await.unwrap();
    waits(&us, "eu", &["of this deployment itself"]).await;
    assert!(!worlds.us.own().await.is_empty(), "its own counts go on");
    assert_eq!(worlds.us.standings(&region("eu")).await.len(), 0);
    stop(vec![us]).await;
}
