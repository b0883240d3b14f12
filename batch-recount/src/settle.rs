//! Recounts *row keys* by the log `changes`; each is the partition key of the rows of one shard of a counter. A *look*
//! reads the rows of many row keys, follows the log until it has everything that happened to them before, and compares
//! them with the counters as of their places in the log. What differs is sent to the log as a correction. An *audit*
//! settles all row keys by a scan of the tables, and looks at those that the scan does not prove.
//!
//! A row key is settled when a look finds its counter equal to its rows, and never because a correction was sent. So a
//! correction that is lost, sent twice, or overtaken by another recount does no harm.

mod audit;
mod look;
mod named;
mod pass;
mod rounds;
mod tails;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tally_adapters::dynamodb::changes::Config;
use tally_core::audit::{AuditRun, Summary};
use tally_core::changes::{BadMessage, Body, Message, Nonce, partition_of};
use tally_core::ids::{RowKey, ShardCount};
use tally_core::ports::log::Outgoing;
use tally_core::topic::{Offset, Partition};
use tally_service::{Chance, Patience, Stop, within};

use crate::app::Ports;
use crate::calls::Calls;
use crate::findings::Findings;

pub(crate) use audit::Due;
pub use named::chosen;
pub(crate) use named::{Waiting, row_keys};
pub(crate) use pass::Part;
pub(crate) use rounds::Open;

/// How things are recounted.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq)]
#[command(about = None, long_about = None)]
pub struct Rules {
    /// Find and report what differs, and write nothing to rows and counts
    #[arg(long, help_heading = "Mode")]
    pub dry_run: bool,

    /// Also make large corrections: those of at least 1000 likes that are at least 10 % of a row key's count or rows.
    /// Without it they are reported and withheld, unless a loss is open
    #[arg(long, env = "TALLY_FORCE", help_heading = "Mode")]
    pub force: bool,

    /// Read units a second at most; a throttled store slows it down in any case
    #[arg(
        long = "read-units-per-second",
        env = "TALLY_READ_UNITS_PER_SECOND",
        value_parser = within::<u32>(1..),
        value_name = "UNITS",
        help_heading = "Pace"
    )]
    pub read_units: Option<u32>,

    /// By how much two changes of one row key may be out of order in the stream.
    #[arg(skip = Duration::from_secs(2))]
    pub guard: Duration,

    /// How long a look waits for its markers, and for the folds, before it is given up.
    #[arg(skip = Duration::from_secs(300))]
    pub patience: Duration,

    /// How long after its correction a row key is looked at once more.
    #[arg(skip = Duration::from_secs(60))]
    pub recheck: Duration,

    /// How many row keys one look has at most.
    #[arg(skip = 16_384_usize)]
    pub keys: usize,

    /// How many rows a look holds at once. All rows of a row key are held, even if there are more.
    #[arg(skip = 4_000_000_usize)]
    pub rows: usize,

    /// After how many looks without a result a row key is left as it is.
    #[arg(skip = 12_u32)]
    pub looks: u32,

    /// How many segments of a table are scanned at once.
    #[arg(skip = 16_u32)]
    pub segments: u32,

    /// How many sums of row keys an audit holds at once. A table of more is scanned several times.
    #[arg(skip = 2_000_000_usize)]
    pub held: usize,

    /// How often a watching process looks for work.
    #[arg(skip = Duration::from_secs(5))]
    pub watch: Duration,
}

/// The defaults of the command line.
impl Default for Rules {
    fn default() -> Self {
        tally_service::defaults()
    }
}

/// How a recount has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How many row keys may still be wrong.
    pub left: u64,
    /// How many row keys are settled, but have a weight that cannot be read, as their counters say.
    pub doubtful: u64,
}

impl Ended {
    pub(crate) fn add(&mut self, other: Self) {
        self.left += other.left;
        self.doubtful += other.doubtful;
    }
}

/// One run of a recount. Clones share what it finds.
#[derive(Clone)]
pub struct Recount {
    pub(crate) ports: Ports,
    config: Config,
    shards: ShardCount,
    pub(crate) rules: Rules,
    /// The run under which its progress and its corrections are kept.
    pub(crate) run: AuditRun,
    pub(crate) calls: Calls,
    findings: Arc<Findings>,
    /// The row keys that were left, or are in doubt.
    left: Arc<Mutex<Vec<RowKey>>>,
    chance: Chance,
}

/// Why a recount cannot go on. The caller may begin again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Blocked {
    /// The log does not move, or is another one.
    #[error("{0}: is the change-streamer running?")]
    Still(String),
    /// The log has a message that cannot be read, where folds stop, too.
    #[error("{partition}, offset {offset}: a message cannot be read: {bad}")]
    Unreadable {
        /// The partition of the log.
        partition: Partition,
        /// The message's offset.
        offset: Offset,
        /// What is wrong with it.
        bad: BadMessage,
    },
}

/// How often a recount checks for something that other processes do.
const POLL: Duration = Duration::from_millis(200);

impl Recount {
    /// Waits until there is a log. Returns a recount over `ports`, in a deployment of so many shards, until `stop` is
    /// requested.
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

    /// Returns another run with the same budget, of the log as it is now.
    pub(crate) async fn anew(&self, rules: Rules) -> anyhow::Result<Self> {
        let (calls, config) = (self.calls.anew(), configured(&self.ports, &self.calls).await?);
        let run = AuditRun::beginning(calls.now(), self.chance.token());
        let (findings, left) = (Arc::default(), Arc::default());
        Ok(Self { config, rules, run, calls, findings, left, ..self.clone() })
    }

    /// Returns what was found and spent so far.
    pub fn summary(&self) -> Summary {
        Summary { cost: self.calls.cost(), ..self.findings.so_far().clone() }
    }

    /// Returns the partition of the log that has everything about a row key.
    fn partition(&self, key: &RowKey) -> u32 {
        partition_of(key, self.config.partitions)
    }

    /// Returns a number that no other marker has.
    fn nonce(&self) -> Nonce {
        Nonce(u128::from(self.chance.token()) << 64 | u128::from(self.chance.token()))
    }

    /// Puts markers beside the rows of keys. Safe to repeat, as [`Rows::mark`](tally_adapters::dynamodb::Rows::mark)
    /// is.
    async fn mark(&self, markers: &[(RowKey, Nonce)]) -> anyhow::Result<()> {
        self.calls.write("put markers", markers.len() as u64, || self.ports.rows.mark(markers)).await
    }

    /// Appends a message to a partition of the log, and returns its offset. Safe to repeat: a correction holds once,
    /// and a loss that is repaired stays so.
    async fn append(&self, partition: u32, body: Body) -> anyhow::Result<Offset> {
        let value = Message { read: self.calls.now(), body }.write(&self.config.deployment);
        let (topic, partition) = (self.ports.log.topic.as_str(), Some(partition));
        let send = || {
            let record = Outgoing { topic, partition, key: None, value: Some(&value), headers: &[] };
            self.ports.log.producer.send(record)
        };
        Ok(self.calls.persist("append to the log", send).await?.offset)
    }

    /// Fails if the log is in another topic by now: what was read from the former one, or sent to it, is lost.
    async fn require_same_log(&self) -> anyhow::Result<()> {
        if configured(&self.ports, &self.calls).await? == self.config {
            return Ok(());
        }
        Err(Blocked::Still("the topic of the log of changes was replaced during the recount".to_owned()).into())
    }
}

/// Returns the configuration of the log, once there is one.
async fn configured(ports: &Ports, calls: &Calls) -> anyhow::Result<Config> {
    calls.persist("read the configuration of the log", || ports.changes.begun()).await
}
