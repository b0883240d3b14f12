//! Recounts by the log `changes`: a look reads the rows of many row keys, follows the log until everything that happened to
//! them before is in what it has read, and compares with the counters as of their places in the log. What differs is sent
//! to the log as a correction.
//!
//! A row key is settled when a look finds its counter equal, and never because a correction was sent. So a correction that is
//! lost, sent twice, or overtaken by another recount does no harm.

mod audit;
mod look;
mod named;
mod pass;
mod rounds;
mod sums;
mod tails;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tally_adapters::dynamodb::changes::Config;
use tally_core::audit::{AuditRun, Summary};
use tally_core::changes::{Body, Message, Nonce, partition_of};
use tally_core::ids::{RowKey, ShardCount};
use tally_core::ports::log::Outgoing;
use tally_core::topic::Offset;
use tally_service::{Chance, Patience, Stop};

use crate::calls::Calls;
use crate::findings::Findings;
use crate::ports::Ports;

pub(crate) use audit::Due;
pub use named::chosen;
pub(crate) use named::{Waiting, row_keys};
pub(crate) use rounds::Open;
pub(crate) use sums::Part;

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
    /// How often a watching process looks at what is asked for.
    pub watch: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            dry_run: false,
            force: false,
            guard: Duration::from_secs(2),
            patience: Duration::from_secs(300),
            recheck: Duration::from_secs(60),
            keys: 16_384,
            rows: 4_000_000,
            looks: 12,
            segments: 16,
            held: 2_000_000,
            read_units: None,
            watch: Duration::from_secs(5),
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
    pub(crate) fn add(&mut self, other: Self) {
        self.left += other.left;
        self.doubtful += other.doubtful;
    }
}

/// One run of a recount. Clones are the same.
#[derive(Clone)]
pub struct Recount {
    pub(crate) ports: Ports,
    config: Config,
    shards: ShardCount,
    pub(crate) rules: Rules,
    /// Under which its progress and its corrections are kept.
    pub(crate) run: AuditRun,
    pub(crate) calls: Calls,
    findings: Arc<Findings>,
    /// The row keys that were left, or are in doubt.
    left: Arc<Mutex<Vec<RowKey>>>,
    chance: Chance,
}

/// Why a recount cannot go on: the log stands still, or is another one. The caller may begin again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}: is the change-streamer running?")]
pub(crate) struct Behind(String);

/// How often something that others bring about is looked at.
const POLL: Duration = Duration::from_millis(200);

impl Recount {
    /// Over `ports`, in a deployment of so many shards, until `stop` is requested. Waits until there is a log.
    ///
    /// # Errors
    /// The configuration of the log cannot be read.
    pub async fn new(
        ports: Ports,
        shards: ShardCount,
        rules: Rules,
        (patience, chance): (Patience, Chance),
        stop: Stop,
    ) -> anyhow::Result<Self> {
        let calls = Calls::new(rules.read_units, patience, stop);
        let config = configured(&ports, &calls).await?;
        let run = AuditRun::beginning(calls.now(), chance.token());
        let (findings, left) = (Arc::default(), Arc::default());
        Ok(Self { ports, config, shards, rules, run, calls, findings, left, chance })
    }

    /// Another run, by the same budget, of the log as it is now.
    pub(crate) async fn anew(&self, rules: Rules) -> anyhow::Result<Self> {
        let (calls, config) = (self.calls.anew(), configured(&self.ports, &self.calls).await?);
        let run = AuditRun::beginning(calls.now(), self.chance.token());
        let (findings, left) = (Arc::default(), Arc::default());
        Ok(Self { config, rules, run, calls, findings, left, ..self.clone() })
    }

    /// The same as a continuation of `run`.
    #[must_use]
    pub fn continuing(self, run: AuditRun) -> Self {
        Self { run, ..self }
    }

    /// What was found and spent so far.
    pub fn summary(&self) -> Summary {
        Summary { cost: self.calls.cost(), ..self.findings.so_far().clone() }
    }

    /// The partition of the log that everything about a row key is in.
    fn partition(&self, key: &RowKey) -> u32 {
        partition_of(key, self.config.partitions)
    }

    /// A number that no other marker has.
    fn nonce(&self) -> Nonce {
        Nonce(u128::from(self.chance.token()) << 64 | u128::from(self.chance.token()))
    }

    /// Puts markers beside the rows of keys. Safe to repeat, as [`Rows::mark`](tally_adapters::dynamodb::Rows::mark) is.
    async fn mark(&self, markers: &[(RowKey, Nonce)]) -> anyhow::Result<()> {
        self.calls.write("put markers", markers.len() as u64, || self.ports.rows.mark(markers)).await
    }

    /// Appends a message to a partition of the log; its offset. What is sent is safe to repeat: a correction holds once, and a
    /// loss that is repaired stays so.
    async fn append(&self, partition: u32, body: Body) -> anyhow::Result<Offset> {
        let value = Message { read: self.calls.now(), body }.write(&self.config.deployment);
        let (topic, partition) = (self.ports.log.topic.as_str(), Some(partition));
        let send = || {
            let record = Outgoing { topic, partition, key: None, value: Some(&value), headers: &[] };
            self.ports.log.producer.send(record)
        };
        Ok(self.calls.persist("append to the log", send).await?.offset)
    }

    /// Fails if the log is in another topic by now: what was read of the one before, and sent to it, is lost with it.
    async fn require_same_log(&self) -> anyhow::Result<()> {
        if configured(&self.ports, &self.calls).await? == self.config {
            return Ok(());
        }
        Err(Behind("the topic of the log of changes was replaced during the recount".to_owned()).into())
    }
}

/// The configuration of the log, once there is one.
async fn configured(ports: &Ports, calls: &Calls) -> anyhow::Result<Config> {
    calls.persist("read the configuration of the log", || ports.changes.begun()).await
}
