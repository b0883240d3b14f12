//! Recounts by the log `changes`: a look reads the rows of many row keys, follows the log until everything that happened to
//! them before is in what it has read, and compares with the counters as of their places in the log. What differs is sent
//! to the log as a correction.
//!
//! A row key is settled when a look finds its counter equal, and never because a correction was sent. So a correction that is
//! lost, sent twice, or overtaken by another recount does no harm.

mod audit;
mod look;
mod losses;
mod moved;
mod pass;
mod rounds;
mod sums;
mod tails;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tally_adapters::dynamodb::changes::{Changes, Config};
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{self, Connection};
use tally_core::audit::Summary;
use tally_core::changes::{Body, Message, Nonce, Place, partition_of};
use tally_core::ids::{RowKey, ShardCount};
use tally_core::ports::log::{Outgoing, Producer, TopicReader};
use tally_core::ports::{Outcome, Page};
use tally_service::{Chance, Clock, Patience, Stop};

use crate::budget::Budget;
use crate::calls::Calls;
use crate::cost::{ITEM, Spent};
use crate::findings::Findings;
use crate::metrics;

/// What a recount works on. Clones are the same.
#[derive(Clone)]
pub struct Stores {
    pub rows: dynamodb::Rows,
    pub markers: dynamodb::Markers,
    pub counters: Counters,
    /// Where the folds of the log stand, and the losses.
    pub changes: Changes,
    /// How far an audit has come.
    pub progress: dynamodb::Recounts,
    /// The topic of the log, and what reads and writes it.
    pub topic: Box<str>,
    pub reader: Arc<dyn TopicReader>,
    pub producer: Arc<dyn Producer>,
}

/// How things are recounted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// Find and report what differs, and write nothing.
    pub dry_run: bool,
    /// Make large corrections, too.
    pub force: bool,
    /// How far two changes of one row key may be out of order in the stream.
    pub guard: Duration,
    /// How long a look waits for its markers, and for the folds, before it is given up.
    pub patience: Duration,
    /// How long after its correction a row key is looked at once more.
    pub recheck: Duration,
    /// Row keys of one look.
    pub keys: usize,
    /// Rows that a look holds at once. A row key of more has them all.
    pub rows: usize,
    /// Looks at one row key that may come to nothing before it is left as it is.
    pub looks: u32,
    /// Segments of a table that are scanned at once.
    pub segments: u32,
    /// Row keys whose sums an audit holds at once. A table of more is scanned several times.
    pub held: usize,
    /// Read units a second.
    pub read_units: Option<u32>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            dry_run: false,
            force: false,
            guard: Duration::from_secs(2),
            patience: Duration::from_secs(300),
            recheck: Duration::from_secs(60),
            keys: 4_096,
            rows: 4_000_000,
            looks: 12,
            segments: 16,
            held: 2_000_000,
            read_units: None,
        }
    }
}

/// What a recount has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Row keys that may be wrong still.
    pub left: u64,
    /// Row keys that are settled, and whose counters say that a weight cannot be read.
    pub doubtful: u64,
}

impl Ended {
    fn add(&mut self, other: Self) {
        self.left += other.left;
        self.doubtful += other.doubtful;
    }
}

/// A recount of one process. Clones are the same.
#[derive(Clone)]
pub struct Recount {
    stores: Stores,
    config: Config,
    shards: ShardCount,
    rules: Rules,
    calls: Calls,
    budget: Arc<Budget>,
    spent: Arc<Spent>,
    findings: Arc<Findings>,
    /// The row keys that were left.
    left: Arc<Mutex<Vec<RowKey>>>,
    chance: Chance,
}

/// How often something that others bring about is looked at.
const POLL: Duration = Duration::from_millis(200);

impl Recount {
    /// Over `stores`, in a deployment of so many shards, until `stop` is requested.
    ///
    /// # Errors
    /// The configuration of the log cannot be read, or there is none.
    pub async fn new(
        stores: Stores,
        shards: ShardCount,
        rules: Rules,
        (clock, chance): (Clock, Chance),
        stop: Stop,
    ) -> anyhow::Result<Self> {
        let budget = Arc::new(Budget::new(rules.read_units, clock));
        let throttled = Arc::clone(&budget);
        let patience = Patience::new(clock, chance.clone()).on_fault(move |_, fault, _| {
            metrics::faulted(fault);
            throttled.failed(fault);
        });
        let calls = Calls::new(patience, stop);
        let config = calls.persist("read the configuration of the log", || stores.changes.config()).await?;
        let config = config.context("there is no log of changes yet: start a change-streamer")?;
        let (spent, findings, left) = (Arc::default(), Arc::default(), Arc::default());
        Ok(Self { stores, config, shards, rules, calls, budget, spent, findings, left, chance })
    }

    /// What was found and spent so far.
    pub fn summary(&self) -> Summary {
        Summary { cost: self.spent.so_far(), ..self.findings.so_far() }
    }

    /// The partition of the log that everything about a row key is in.
    fn partition(&self, key: &RowKey) -> u32 {
        partition_of(key, self.config.partitions)
    }

    /// A number that no other marker has.
    fn nonce(&self) -> Nonce {
        Nonce(u128::from(self.chance.token()) << 64 | u128::from(self.chance.token()))
    }

    /// One page of a long answer, inside the budget.
    async fn page<T, Fut>(&self, what: &str, call: impl FnMut() -> Fut) -> anyhow::Result<Page<T>>
    where
        Fut: Future<Output = Outcome<Page<T>>>,
    {
        self.calls.unless_stopped(self.budget.ready()).await?;
        let page = self.calls.persist(what, call).await?;
        self.paid(page.half_units);
        Ok(page)
    }

    /// Takes note of `items` that were read one by one.
    fn read_items(&self, items: usize) {
        self.paid(ITEM * items as u64);
    }

    fn paid(&self, half_units: u64) {
        self.budget.spend(half_units);
        self.spent.read(half_units);
    }

    /// Puts a marker beside the rows of a key. Safe to repeat, as [`Markers::mark`](dynamodb::Markers::mark) is.
    async fn mark(&self, key: &RowKey, nonce: Nonce) -> anyhow::Result<()> {
        self.calls.persist("put a marker", || self.stores.markers.mark(key, nonce)).await?;
        self.spent.wrote(1);
        Ok(())
    }

    /// Appends a message to a partition of the log; where it stands. What is sent is safe to repeat: a correction holds once,
    /// and a loss that is repaired stays so.
    async fn append(&self, partition: u32, body: Body) -> anyhow::Result<Place> {
        let value = Message { read: self.calls.clock().now(), body }.write(&self.config.deployment);
        let (topic, partition) = (&*self.stores.topic, Some(partition));
        let send = || {
            let record = Outgoing { topic, partition, key: None, value: Some(&value), headers: &[] };
            self.stores.producer.send(record)
        };
        let written = self.calls.persist("append to the log", send).await?;
        Ok(Place::new(self.config.generation, written.offset))
    }
}

impl Stores {
    /// The tables of `connection`, and a topic.
    pub fn over(
        connection: &Connection,
        topic: &str,
        reader: Arc<dyn TopicReader>,
        producer: Arc<dyn Producer>,
    ) -> Self {
        Self {
            rows: dynamodb::Rows::new(connection),
            markers: dynamodb::Markers::new(connection),
            counters: Counters::new(connection),
            changes: Changes::new(connection),
            progress: dynamodb::Recounts::new(connection),
            topic: topic.into(),
            reader,
            producer,
        }
    }
}
