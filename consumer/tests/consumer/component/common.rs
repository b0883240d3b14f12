//! A consumer over the in-memory twins: a broker, tables, a table wrapper whose answers a test scripts, and the fold of
//! the events that the rows have to equal.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tally_adapters::memory::Memory;
use tally_adapters::memory::log::Broker;
use tally_consumer::{App, Mode, Ports, ReadSettings};
use tally_core::batch::Change;
use tally_core::event::{Action as Said, LikeEvent};
use tally_core::fault::Fault;
use tally_core::fence::{Advance, Commit, Fence, Fences, Offset, Partition, Reached};
use tally_core::ids::{CounterId, PostId, Region, ShardCount, UserId};
use tally_core::ports::log::{Outgoing, Rebalance};
use tally_core::ports::{FencedRows, Intake, Outcome, Rows as _, Segment};
use tally_core::time::UnixMillis;
use tally_service::{Chance, Clock, Host, Running};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

pub(crate) const TOPIC: &str = "likes";
pub(crate) const DLQ: &str = "likes.dlq";
pub(crate) const GROUP: &str = "tally-consumer";
pub(crate) const NOW: UnixMillis = UnixMillis(1_700_000_000_000);

/// What the table says to a transaction.
#[derive(Clone)]
pub(crate) enum Answer {
    /// What it has to say.
    Truth,
    /// This, without looking at it.
    Say(Commit),
    /// Does it and says this.
    DoAndSay(Commit),
    /// Says this at once and does it when told.
    SayAndDoLater(Commit, Arc<Notify>),
    /// Waits, then the truth.
    Hold(Arc<Notify>),
}

/// A transaction as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) partition: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) users: Vec<String>,
}

type Script = Box<dyn FnMut(&Asked) -> Answer + Send>;

/// The likes table, with answers scripted and requests kept.
#[derive(Clone)]
pub(crate) struct Table {
    inner: Arc<dyn FencedRows>,
    script: Arc<Mutex<Option<Script>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Table {
    pub(crate) fn new(inner: Arc<dyn FencedRows>) -> Self {
        Self { inner, script: Arc::default(), asked: Arc::default() }
    }

    pub(crate) fn script(&self, script: impl FnMut(&Asked) -> Answer + Send + 'static) {
        *self.script.lock().unwrap() = Some(Box::new(script));
    }

    /// These answers to the next transactions, and the truth from then on.
    pub(crate) fn answers(&self, answers: impl IntoIterator<Item = Answer>) {
        let mut answers: VecDeque<Answer> = answers.into_iter().collect();
        self.script(move |_| answers.pop_front().unwrap_or(Answer::Truth));
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// A change that outlives its batch.
enum Owned {
    Member(CounterId, UserId, bool, UnixMillis, Option<ShardCount>, Option<Region>),
    Cell(CounterId, i64, Offset),
}

impl From<&Change<'_>> for Owned {
    fn from(change: &Change<'_>) -> Self {
        match *change {
            Change::Member { counter, user, present, at, home, region } => {
                Self::Member(counter.clone(), user.clone(), present, at, home, region.cloned())
            }
            Change::Cell { counter, add, from } => Self::Cell(counter.clone(), add, from),
        }
    }
}

impl Owned {
    fn change(&self) -> Change<'_> {
        match self {
            Self::Member(counter, user, present, at, home, region) => {
                let (present, at, home, region) = (*present, *at, *home, region.as_ref());
                Change::Member { counter, user, present, at, home, region }
            }
            Self::Cell(counter, add, from) => Change::Cell { counter, add: *add, from: *from },
        }
    }
}

#[async_trait]
impl FencedRows for Table {
    async fn fence(&self, partition: &Partition) -> Outcome<Option<Fence>> {
        self.inner.fence(partition).await
    }

    async fn lanes(&self, partition: &Partition) -> Outcome<Option<Fences>> {
        self.inner.lanes(partition).await
    }

    async fn first_seen(&self, topic: &str, partitions: u32) -> Outcome<u32> {
        self.inner.first_seen(topic, partitions).await
    }

    async fn create_fence(&self, partition: &Partition, fence: &Fence) -> Outcome<()> {
        self.inner.create_fence(partition, fence).await
    }

    async fn cells(&self, partition: &Partition, counters: &[CounterId]) -> Outcome<Vec<Option<Reached>>> {
        self.inner.cells(partition, counters).await
    }

    async fn commit(&self, partition: &Partition, advance: &Advance, changes: &[Change<'_>]) -> Commit {
        let users = changes.iter().filter_map(|change| Some(change.user()?.to_string())).collect();
        let asked = Asked { partition: partition.index, from: advance.from.offset.0, to: advance.to.0, users };
        let answer = self.script.lock().unwrap().as_mut().map_or(Answer::Truth, |script| script(&asked));
        self.asked.lock().unwrap().push(asked);
        match answer {
            Answer::Truth => self.inner.commit(partition, advance, changes).await,
            Answer::Say(commit) => commit,
            Answer::DoAndSay(commit) => {
                assert_eq!(self.inner.commit(partition, advance, changes).await, Commit::Done);
                commit
            }
            Answer::Hold(notify) => {
                notify.notified().await;
                self.inner.commit(partition, advance, changes).await
            }
            Answer::SayAndDoLater(commit, when) => {
                let (inner, partition, advance) = (Arc::clone(&self.inner), partition.clone(), advance.clone());
                let owned: Vec<_> = changes.iter().map(Owned::from).collect();
                let host = Host::new("ghost");
                host.worker(tally_service::Stage::Work, "ghost", move |_: tally_service::Stop| async move {
                    when.notified().await;
                    let changes: Vec<Change<'_>> = owned.iter().map(Owned::change).collect();
                    inner.commit(&partition, &advance, &changes).await;
                    Ok(())
                });
                commit
            }
        }
    }

    async fn fences(&self, topic: &str) -> Outcome<Vec<(Partition, Fence)>> {
        self.inner.fences(topic).await
    }

    async fn replace_fences(&self, partition: &Partition, seen: &Fences, to: &Fences) -> Outcome<bool> {
        self.inner.replace_fences(partition, seen, to).await
    }
}

type Join = Box<dyn FnOnce() -> Outcome<Box<dyn Intake>> + Send>;

/// What a test makes a group say and do.
pub(crate) struct Kafka {
    faults: mpsc::UnboundedSender<Fault>,
    keeps: watch::Sender<bool>,
}

struct Mood {
    faults: mpsc::UnboundedReceiver<Fault>,
    keeps: watch::Receiver<bool>,
}

impl Kafka {
    fn new() -> (Self, Mood) {
        let (faults, said) = mpsc::unbounded_channel();
        let (keeps, kept) = watch::channel(false);
        (Self { faults, keeps }, Mood { faults: said, keeps: kept })
    }

    /// Reports an error to the member.
    pub(crate) fn says(&self, fault: Fault) {
        self.faults.send(fault).unwrap();
    }

    /// From now on leaving takes for ever.
    pub(crate) fn keeps_its_members(&self) {
        self.keeps.send_replace(true);
    }
}

struct MoodyIntake {
    inner: Box<dyn Intake>,
    mood: Mood,
}

#[async_trait]
impl Intake for MoodyIntake {
    async fn next(&mut self) -> Outcome<Rebalance> {
        tokio::select! {
            Some(fault) = self.mood.faults.recv() => Err(fault),
            rebalance = self.inner.next() => rebalance,
        }
    }

    async fn leave(self: Box<Self>) {
        if *self.mood.keeps.borrow() {
            std::future::pending::<()>().await;
        }
        self.inner.leave().await;
    }
}

/// A broker, tables, and what the events amount to.
pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) memory: Memory,
    pub(crate) table: Table,
    pub(crate) settings: ReadSettings,
    expected: BTreeMap<(String, String), UnixMillis>,
    seed: u64,
}

impl World {
    pub(crate) fn new(partitions: u32) -> Self {
        let (broker, memory) = (Broker::new(), Memory::new(NOW));
        broker.create_topic(TOPIC, partitions);
        broker.create_topic(DLQ, 1);
        let table = Table::new(Arc::new(memory.likes(ShardCount::DEFAULT)));
        Self { broker, memory, table, settings: ReadSettings::default(), expected: BTreeMap::new(), seed: 11 }
    }

    /// Starts a consumer of its own; all of them share the group and the tables.
    pub(crate) fn consumer(&mut self) -> Running {
        self.consumer_over(Arc::new(self.table.clone()))
    }

    pub(crate) fn consumer_over(&mut self, rows: Arc<dyn FencedRows>) -> Running {
        let broker = self.broker.clone();
        self.start(rows, Box::new(move || Ok(Box::new(broker.join(GROUP, TOPIC)))))
    }

    fn start(&mut self, rows: Arc<dyn FencedRows>, join: Join) -> Running {
        let readers = self.broker.clone();
        let ports = Ports {
            checkpoints: Arc::new(self.memory.checkpoints()),
            rows: Box::new(move |_| rows),
            maps: Arc::new(self.memory.maps()),
            join,
            producer: Arc::new(self.broker.clone()),
            reader: Box::new(move |topic| Ok(Arc::new(readers.reader("replay", topic)))),
        };
        self.seed += 1;
        let host = Host::new("consumer").with_clock(Clock::starting_at(NOW)).with_chance(Chance::seeded(self.seed));
        Running::start(App::with_ports(Mode::Consume, self.settings.clone(), ports), host)
    }

    /// The same with a group whose errors and whose leaving are a test's to say.
    pub(crate) fn consumer_under_a_moody_kafka(&mut self) -> (Running, Kafka) {
        let (kafka, mood) = Kafka::new();
        let broker = self.broker.clone();
        let join = move || Ok(Box::new(MoodyIntake { inner: Box::new(broker.join(GROUP, TOPIC)), mood }) as _);
        (self.start(Arc::new(self.table.clone()), Box::new(join)), kafka)
    }

    /// Says an event in a partition, and takes it into the fold.
    pub(crate) fn say(&mut self, partition: u32, user: &str, action: Said) -> Offset {
        let at = UnixMillis(NOW.0 + self.expected.len() as u64);
        let (post, id) = (PostId::new(&format!("p-{partition}")).unwrap(), UserId::new(user).unwrap());
        let value = LikeEvent::new(&post, &id, action, at).encode();
        let key = (post.to_string(), user.to_owned());
        match action {
            Said::Like => _ = self.expected.insert(key, at),
            Said::Unlike => _ = self.expected.remove(&key),
        }
        self.put(partition, post.as_str().as_bytes(), Some(&value))
    }

    /// Writes a record that is not in the fold.
    pub(crate) fn put(&mut self, partition: u32, key: &[u8], value: Option<&[u8]>) -> Offset {
        let record = Outgoing { topic: TOPIC, partition: Some(partition), key: Some(key), value, headers: &[] };
        self.broker.append(record, NOW).unwrap().offset
    }

    /// Takes a user's like out of the fold, where its event will not be applied.
    pub(crate) fn forget(&mut self, partition: u32, user: &str) {
        self.expected.remove(&(format!("p-{partition}"), user.to_owned()));
    }

    /// Every row there is.
    pub(crate) async fn rows(&self) -> BTreeMap<(String, String), UnixMillis> {
        let table = self.memory.rows();
        let mut rows = BTreeMap::new();
        let mut after = None;
        loop {
            let page = table.scan(Segment { index: 0, of: 1 }, after.as_ref()).await.unwrap();
            for row in page.items {
                let key = row.pk.parse().unwrap();
                let user = UserId::new(&row.sort).unwrap();
                let like = table.like(&key, &user).await.unwrap().unwrap();
                let twice = rows.insert((key.counter.post.to_string(), row.sort), like.liked_at);
                assert_eq!(twice, None, "a member has two rows, one in {}", row.pk);
            }
            after = page.next;
            if after.is_none() {
                return rows;
            }
        }
    }

    pub(crate) fn expected(&self) -> &BTreeMap<(String, String), UnixMillis> {
        &self.expected
    }

    /// Where the least lane of a partition stands.
    pub(crate) async fn fence(&self, index: u32) -> Option<u64> {
        let partition = Partition { topic: TOPIC.into(), index };
        self.table.lanes(&partition).await.unwrap().map(|fences| fences.least().offset.0)
    }

    /// Waits until the fence of `partition` stands at `offset`.
    pub(crate) async fn reaches(&self, partition: u32, offset: u64) {
        eventually(&format!("fence {partition} at {offset}"), async || self.fence(partition).await == Some(offset))
            .await;
    }

    /// The dead letters: where each came from, and why.
    pub(crate) async fn letters(&self) -> Vec<(u32, u64, String)> {
        use tally_core::ports::TopicReader;
        let reader = self.broker.reader("test", DLQ);
        let mut letters = Vec::new();
        for (partition, log) in reader.logs().await.unwrap() {
            let mut at = log.start;
            while at < log.end {
                let read = reader.read(&partition, at, log.end).await.unwrap();
                at = read.last_offset().unwrap().next();
                letters.extend(read.iter().map(|record| {
                    let text = |name: &str| {
                        let header = record.header(&format!("__connect.errors.{name}")).unwrap();
                        String::from_utf8(header.to_vec()).unwrap()
                    };
                    (text("partition").parse().unwrap(), text("offset").parse().unwrap(), text("class.name"))
                }));
            }
        }
        letters
    }
}

/// Waits, in whatever time rules, until `holds`.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Stops a consumer in order and checks that it went well.
pub(crate) async fn stop(running: Running) {
    let shutdown = running.stop(Duration::from_secs(25)).await;
    assert_eq!(shutdown.exit(), tally_service::Exit::CLEAN, "{shutdown:?}");
}
