//! The surroundings of most tests of recounts: emulated tables, a log of two partitions in memory, and a relay and
//! folds that a test may stop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};
use tally_adapters::dynamodb::changes::{Changes, Config};
use tally_adapters::dynamodb::counters::{Counters, Update, Written};
use tally_adapters::dynamodb::{Checkpoints, Consistency, Rows, Streams};
use tally_adapters::memory::log::Broker;
use tally_batch_recount::settle::Recount;
use tally_batch_recount::{LogPorts, Ports, Rules};
use tally_core::cached::StandingAt;
use tally_core::changes::{Body, DeploymentId, Entry, LossNumber, Lost, Message, Opened, Opening, Place, Section};
use tally_core::fold::{self, Counter, Mark, Position};
use tally_core::ids::{CounterId, RowKey, Sequence, ShardCount, StreamShard, StreamShardId, UserId};
use tally_core::ports::log::{self, Outgoing, Producer, TopicReader as _};
use tally_core::ports::{ChangeStream, Iterator, Outcome, Position as At};
use tally_core::tally::Record;
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition, TopicId};
use tally_service::{Chance, Clock, Patience, Switch};
use tally_testkit::{BEGAN, Store, every, post, user};
use tokio::sync::Mutex;

pub(crate) const PARTITIONS: u32 = 2;
const TOPIC: &str = "changes";
/// When the store deletes tombstones, in seconds: later than any test lasts.
pub(crate) const GONE: u64 = 1_800_000_000;

/// Rules by which a recount soon looks once more at what it corrected.
pub(crate) fn rules() -> Rules {
    Rules { segments: 3, recheck: Duration::from_secs(5), ..Rules::default() }
}

pub(crate) fn shards() -> ShardCount {
    ShardCount::new(4).unwrap()
}

pub(crate) fn key(post: &CounterId, user: &UserId) -> RowKey {
    RowKey::of(post, user, shards())
}

/// Returns every row key of a counter.
pub(crate) fn keys(counter: &CounterId) -> Vec<RowKey> {
    shards().all().map(|shard| RowKey { counter: counter.clone(), shard }).collect()
}

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) changes: Changes,
    pub(crate) counters: Counters,
    pub(crate) log: Log,
    pub(crate) clock: Clock,
    config: Config,
    pub(crate) relays: AtomicBool,
    pub(crate) folds: AtomicBool,
    /// Whether the folds store positions, as they do seldom; they always store standings.
    pub(crate) stores_positions: AtomicBool,
    /// The relay stands still at a record of this row key, in its stream shard.
    pub(crate) stalled: Mutex<Option<RowKey>>,
    relay: Mutex<Relay>,
    partitions: Mutex<Vec<fold::Partition>>,
    seeds: AtomicU32,
}

/// The log, which states when each record was appended. It may lose what a recount sends.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) broker: Broker,
    pub(crate) clock: Clock,
    /// How many more messages are acknowledged and lost.
    pub(crate) losing: Arc<AtomicU32>,
}

struct Relay {
    streams: Streams,
    shards: Vec<Line>,
}

/// A stream shard that is relayed.
struct Line {
    shard: StreamShard,
    next: Iterator,
    /// The records that were read from the stream and not taken yet.
    read: VecDeque<Record>,
    taken: Option<Sequence>,
    /// Up to where each partition has the stream shard.
    sent: [Option<Sequence>; PARTITIONS as usize],
}

#[async_trait]
impl Producer for Log {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<log::Written> {
        let lose = |left: u32| left.checked_sub(1);
        if self.losing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lose).is_ok() {
            return Ok(log::Written { partition: record.partition.unwrap(), offset: Offset(0) });
        }
        self.broker.write(record, self.clock.now())
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::folded_in(1).await
    }

    /// Starts a world with `users` likes for each of so many posts.
    pub(crate) async fn filled(posts: u64, users: u64) -> Self {
        let world = Self::start().await;
        world.fill(posts, users).await;
        world
    }

    /// Starts a world whose folds are in this generation: after a lost end, it is later than the topic's.
    pub(crate) async fn folded_in(generation: u16) -> Self {
        let (store, clock) = (Store::start().await, Clock::starting_at(BEGAN));
        let changes = Changes::new(&store.connection);
        let broker = Broker::new();
        broker.create_topic(TOPIC, PARTITIONS);
        let logs = broker.reader("any", TOPIC).logs().await.unwrap();
        let deployment = DeploymentId("settled".into());
        let config = Config { deployment, partitions: PARTITIONS, topic: logs[0].1.topic.clone(), generation: 1 };
        changes.begin_log(&config).await.unwrap();
        Checkpoints::new(&store.connection).config(Some(shards())).await.unwrap();
        let log = Log { broker, clock, losing: Arc::default() };
        let relay = Relay::new(Streams::new(&store.connection)).await;
        let begin = Position { at: Place::new(generation, Offset(0)), ..Position::default() };
        let world = Self {
            counters: Counters::new(&store.connection),
            relays: AtomicBool::new(true),
            folds: AtomicBool::new(true),
            stores_positions: AtomicBool::new(true),
            stalled: Mutex::default(),
            relay: Mutex::new(relay),
            partitions: Mutex::new(vec![fold::Partition::new(begin); PARTITIONS as usize]),
            seeds: AtomicU32::new(1),
            store,
            changes,
            log,
            clock,
            config,
        };
        let openings = world.relay.lock().await.shards.iter().map(Line::opening).collect();
        world.tell_all(Body::Opened(Opened { shards: openings, ended: Vec::new() })).await;
        world.quiet().await;
        world
    }

    /// Returns a recount as of a process of its own.
    pub(crate) async fn recount(&self, rules: Rules) -> Recount {
        let by = (Patience::new(self.clock, self.chance()), self.chance());
        Recount::new(self.ports(), shards(), rules, by, Switch::new().stop()).await.unwrap()
    }

    /// Returns the ports of a recount.
    pub(crate) fn ports(&self) -> Ports {
        let (reader, producer) = (Arc::new(self.log.broker.reader("recount", TOPIC)), Arc::new(self.log.clone()));
        Ports::over(&self.store.connection, LogPorts { topic: TOPIC.to_owned(), reader, producer })
    }

    /// Returns a source of random numbers that no other one repeats.
    pub(crate) fn chance(&self) -> Chance {
        Chance::seeded(self.seeds.fetch_add(1, Ordering::Relaxed).into())
    }

    /// Returns the result of `work`, which runs while relay and folds go on.
    pub(crate) fn beside<'a, T: 'a>(&'a self, work: impl Future<Output = T> + 'a) -> LocalBoxFuture<'a, T> {
        let mut work = work.boxed_local();
        let beside = async move {
            loop {
                tokio::select! {
                    biased;
                    done = &mut work => return done,
                    () = tokio::time::sleep(Duration::from_millis(250)) => self.step().await,
                }
            }
        };
        beside.boxed_local()
    }

    /// Lets relay and folds go on, unless they are stopped.
    pub(crate) async fn step(&self) {
        if self.relays.load(Ordering::Relaxed) {
            self.relay().await;
        }
        if self.folds.load(Ordering::Relaxed) {
            self.fold().await;
        }
    }

    /// Relays and folds everything that was written so far.
    pub(crate) async fn quiet(&self) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.relay().await;
        self.fold().await;
    }

    async fn tell(&self, partition: u32, body: Body) {
        let now = self.clock.now();
        let value = Message { read: now, body }.write(&self.config.deployment);
        let partition = Some(partition);
        let record = Outgoing { topic: TOPIC, partition, key: None, value: Some(&value), headers: &[] };
        self.log.broker.write(record, now).unwrap();
    }

    async fn tell_all(&self, body: Body) {
        for partition in 0..PARTITIONS {
            self.tell(partition, body.clone()).await;
        }
    }

    async fn relay(&self) {
        let mut relay = self.relay.lock().await;
        let losses: Vec<LossNumber> = self.changes.losses().await.unwrap().open().map(|(number, _)| number).collect();
        let mut sections: [Vec<Section>; PARTITIONS as usize] = Default::default();
        let (streams, stalled) = (relay.streams.clone(), self.stalled.lock().await.clone());
        for line in &mut relay.shards {
            let (entries, fed) = line.read(&streams, self.clock, stalled.as_ref()).await;
            for (partition, sections) in (0..).zip(&mut sections) {
                let is_here = |entry: &&Entry| tally_core::changes::partition_of(&entry.key, PARTITIONS) == partition;
                let entries = entries.iter().filter(is_here).cloned().collect();
                let sent = &mut line.sent[partition as usize];
                let back = std::mem::replace(sent, line.taken);
                sections.push(Section { shard: line.shard.clone(), back, to: line.taken, fed, entries });
            }
        }
        for (partition, sections) in (0..).zip(sections) {
            self.tell(partition, Body::Sections { sections, losses: losses.clone() }).await;
        }
    }

    /// Loses what was written and is not relayed yet, like a stream that is trimmed unread.
    pub(crate) async fn lose(&self) -> LossNumber {
        let mut relay = self.relay.lock().await;
        let streams = relay.streams.clone();
        let number = self.changes.open_new_loss(self.clock.now(), "trimmed", "by a test").await.unwrap();
        for line in &mut relay.shards {
            line.read(&streams, self.clock, None).await;
            let Some(taken) = line.taken.filter(|taken| line.sent[0] != Some(*taken)) else { continue };
            line.sent = [Some(taken); PARTITIONS as usize];
            let behind: u128 = taken.wire().parse::<u128>().unwrap() + 1;
            let next = Some((line.shard.clone(), behind.to_string().parse().unwrap()));
            self.tell_all(Body::Lost(Lost { number, next })).await;
        }
        number
    }

    /// Appends what is no message to every partition.
    pub(crate) fn garble(&self) {
        for partition in 0..PARTITIONS {
            let partition = Some(partition);
            let record = Outgoing { topic: TOPIC, partition, key: None, value: Some(b"{\"v\":7"), headers: &[] };
            self.log.broker.write(record, self.clock.now()).unwrap();
        }
    }

    /// Goes on in another topic of the same name, as a change-streamer does.
    pub(crate) async fn replace_topic(&self) {
        let topic = TopicId("another".into());
        assert!(self.changes.adopt_topic(&self.config, &topic, PARTITIONS).await.unwrap().is_some());
    }

    /// Trims the log up to its end.
    pub(crate) async fn trim(&self) {
        for (partition, log) in self.log.broker.reader("any", TOPIC).logs().await.unwrap() {
            self.log.broker.trim(TOPIC, partition.index, log.end.0);
        }
    }

    /// Announces a loss, of no part of the stream.
    pub(crate) async fn open_loss(&self, kind: &str) -> LossNumber {
        let number = self.changes.open_new_loss(self.clock.now(), kind, "by a test").await.unwrap();
        self.tell_all(Body::Lost(Lost { number, next: None })).await;
        number
    }

    pub(crate) async fn open_losses(&self) -> Vec<LossNumber> {
        self.changes.losses().await.unwrap().open().map(|(number, _)| number).collect()
    }

    async fn fold(&self) {
        let reader = self.log.broker.reader("fold", TOPIC);
        for (index, fold) in (0..).zip(self.partitions.lock().await.iter_mut()) {
            let partition = Partition { topic: TOPIC.into(), index };
            loop {
                let records = reader.read(&partition, fold.place().offset(), Offset(u64::MAX)).await.unwrap();
                if records.is_empty() {
                    break;
                }
                for record in records.iter() {
                    let message = Message::read(record.value.unwrap(), &self.config.deployment).unwrap();
                    let at = Place::new(fold.place().generation(), record.offset);
                    fold.recognise(at, Mark::of(record.at, record.value.unwrap())).unwrap();
                    let taken = fold.take(at, record.at, &message);
                    assert_eq!(taken.hole, None, "{partition} {} {message:?}", record.offset);
                }
            }
            let flush = fold.flush();
            for (id, pending) in &flush.counters {
                self.apply(&flush, id, pending).await;
            }
            let standing = StandingAt { at: flush.position.at, standing: flush.standing };
            tally_testkit::stand(&self.changes, index, &standing).await;
            if self.stores_positions.load(Ordering::Relaxed) {
                self.changes.store_position(index, &flush.position).await.unwrap();
            }
        }
    }

    async fn apply(&self, flush: &fold::Flush, id: &CounterId, pending: &[fold::Pending]) {
        loop {
            let read = self.counters.read(std::slice::from_ref(id), Consistency::Strong).await.unwrap();
            // Nothing is added to a counter that cannot be read.
            let Ok(before) = read.counters.get(id).cloned().transpose() else { return };
            let Some(after) = flush.apply(before.as_ref(), pending, self.clock.now()) else { return };
            let update = Update { counter: id.clone(), before, after: after.counter };
            if self.counters.write(&[update]).await.unwrap() == [Written::Stored] {
                return;
            }
        }
    }

    pub(crate) async fn counter(&self, id: &CounterId) -> Option<Counter> {
        let read = self.counters.read(std::slice::from_ref(id), Consistency::Strong).await.unwrap();
        read.counters.get(id).cloned().transpose().unwrap()
    }

    /// Returns the sum of the rows of a key; `None` if a weight cannot be read.
    pub(crate) async fn rows(&self, key: &RowKey) -> Option<i64> {
        let rows = Rows::new(&self.store.connection);
        let weights = every(async |after| rows.weights(key, after).await).await.unwrap();
        weights.into_iter().map(|(_, weight)| Some(weight?.get())).sum()
    }

    /// Returns what is wrong with a counter, if anything is.
    pub(crate) async fn difference(&self, id: &CounterId) -> Option<String> {
        let (counter, mut total) = (self.counter(id).await.unwrap_or_default(), 0);
        for key in keys(id) {
            let (rows, part) = (self.rows(&key).await.unwrap(), counter.part(key.shard));
            total += rows;
            if rows != part || counter.doubt.contains(&key.shard) {
                return Some(format!("{key}: {rows} rows, {counter:?}"));
            }
        }
        (counter.likes != total).then(|| format!("{id}: {total} rows, {counter:?}"))
    }

    /// Folds everything, and compares each counter with its rows.
    pub(crate) async fn exact(&self, posts: u64) {
        self.quiet().await;
        for n in 0..posts {
            assert_eq!(self.difference(&post(n)).await, None);
        }
    }

    /// Writes a row, live or as a tombstone.
    pub(crate) async fn put(&self, post: &CounterId, user: &UserId, live: bool) {
        let attribute = if live { ("v", json!({"N": "1"})) } else { ("gone", json!({"N": GONE.to_string()})) };
        self.put_row(&key(post, user), user.as_str(), attribute).await;
    }

    pub(crate) async fn put_row(&self, key: &RowKey, sort: &str, (name, value): (&str, Value)) {
        let mut item = json!({"pk": {"S": key.to_string()}, "user_id": {"S": sort}});
        if name != "gone" {
            item["liked_at"] = json!({"N": "1"});
        }
        item[name] = value;
        self.store.call("PutItem", json!({"TableName": "likes", "Item": item})).await;
    }

    /// Writes `users` likes for each of so many posts, and relays and folds them.
    pub(crate) async fn fill(&self, posts: u64, users: u64) {
        for n in 0..posts {
            for u in 0..users {
                self.put(&post(n), &user(u), true).await;
            }
        }
        self.quiet().await;
    }

    /// Writes likes and unlikes at random, of so many posts and users, without end.
    pub(crate) async fn churn(&self, posts: u64, users: u64) -> ! {
        let chance = Chance::seeded(7);
        loop {
            let (n, u, live) = (chance.token() % posts, chance.token() % users, chance.token().is_multiple_of(2));
            self.put(&post(n), &user(u), live).await;
            tokio::time::sleep(Duration::from_millis(130)).await;
        }
    }

    /// Returns the result of `work`, which runs while relay and folds go on and rows change.
    pub(crate) fn beside_churn<'a, T: 'a>(
        &'a self,
        posts: u64,
        users: u64,
        work: impl Future<Output = T> + 'a,
    ) -> LocalBoxFuture<'a, T> {
        let work = work.boxed_local();
        self.beside(async move {
            tokio::select! {
                biased;
                done = work => done,
                never = self.churn(posts, users) => never,
            }
        })
    }

    /// Edits one attribute of a counter by hand.
    pub(crate) async fn edit(&self, id: &CounterId, attribute: &str, n: Option<i64>) {
        let value = n.map_or(Value::Null, |n| json!({"N": n.to_string()}));
        self.store.edit("like_counts", json!({"post_id": {"S": id.stored()}}), attribute, value).await;
    }

    /// Deletes a counter by hand.
    pub(crate) async fn delete(&self, id: &CounterId) {
        let key = json!({"post_id": {"S": id.stored()}});
        self.store.call("DeleteItem", json!({"TableName": "like_counts", "Key": key})).await;
    }

    /// Returns how many messages each partition has.
    pub(crate) async fn lengths(&self) -> Vec<u64> {
        let logs = self.log.broker.reader("any", TOPIC).logs().await.unwrap();
        logs.into_iter().map(|(_, log)| log.end.0).collect()
    }

    /// Returns the items of `like_counts`, by their keys.
    pub(crate) async fn stored(&self) -> BTreeMap<String, Value> {
        let items = self.store.items("like_counts").await;
        items.into_iter().map(|item| (item["post_id"]["S"].as_str().unwrap().to_owned(), item)).collect()
    }
}

impl Relay {
    async fn new(streams: Streams) -> Self {
        let label = streams.info().await.unwrap().label;
        let mut shards = Vec::new();
        for listed in streams.shards(&label).await.unwrap() {
            let id: &StreamShardId = &listed.id;
            let next = streams.iterator(&label, id, At::Oldest).await.unwrap();
            let shard = StreamShard::new(&label, id);
            shards.push(Line { shard, next, read: VecDeque::new(), taken: None, sent: [None; PARTITIONS as usize] });
        }
        Self { streams, shards }
    }
}

impl Line {
    fn opening(&self) -> Opening {
        Opening { shard: self.shard.clone(), at: None, fed: UnixMillis(0) }
    }

    /// Takes the entries of new records, up to one of the row key that is `stalled`. Without one, also returns up to
    /// when everything is read.
    async fn read(
        &mut self,
        streams: &Streams,
        clock: Clock,
        stalled: Option<&RowKey>,
    ) -> (Vec<Entry>, Option<UnixMillis>) {
        let began = loop {
            let began = clock.now();
            let page = streams.records(&self.next, 1_000).await.unwrap();
            self.next = page.next.expect("no test lasts until a stream shard ends");
            if page.records.is_empty() {
                break began;
            }
            self.read.extend(page.records.iter().map(|raw| tally_core::tally::read(raw).unwrap()));
        };
        let mut entries = Vec::new();
        while let Some(record) = self.read.pop_front() {
            let entry = Entry::of(&record);
            if entry.as_ref().is_some_and(|entry| Some(&entry.key) == stalled) {
                self.read.push_front(record);
                return (entries, None);
            }
            self.taken = Some(record.sequence);
            entries.extend(entry);
        }
        (entries, Some(began))
    }
}
