//! What an emulator is made with; leaves flags and environment to the binary.

use std::time::{Duration, SystemTime};

use crate::fault::Rule;
use crate::latency::Latency;
use crate::policies::Policies;

/// How an emulator behaves. [`Config::default`] is a quiet DynamoDB: four shards, a little read lag, no faults.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seeds the only random generator: one seed and one sequence of requests give one run.
    pub seed: u64,
    /// What the clock shows at the start; the machine's time if absent. Fix it for runs that must repeat.
    pub epoch: Option<SystemTime>,
    /// The region in names of resources and in stream records.
    pub region: String,
    /// Open shards of a new stream, at least one.
    pub shards: u32,
    /// How long stream records, and shards that were closed, can be read.
    pub stream_retention: Duration,
    /// An open shard of this age is closed and continued by a child; `None` for never.
    pub roll_after: Option<Duration>,
    /// A shard that took this many records is split; `None` for never.
    pub split_after: Option<u64>,
    /// With this many open shards, a volume rolls a shard instead of splitting it.
    pub max_open_shards: usize,
    /// Whether a split may cut through a collection, in tables without a local index.
    pub split_collections: bool,
    /// A change appears in the stream at some moment within this bound.
    pub stream_delay: Duration,
    /// Within this bound, and only before a reader can have seen them (see `stream_delay`), changes of different items may
    /// change places.
    pub stream_reorder: Duration,
    /// The sequence number before a stream's first, 21 to 40 digits.
    pub first_sequence: u128,
    /// A read without `ConsistentRead` answers with the state of some moment within this bound.
    pub read_lag: Duration,
    /// How long a transaction takes to be answered; `None` for no time.
    pub transaction_latency: Option<Latency>,
    /// How long a batch takes: BatchExecuteStatement, BatchGetItem and BatchWriteItem; `None` for as long as every other request.
    pub batch_latency: Option<Latency>,
    /// How long every other request takes.
    pub latency: Option<Latency>,
    /// Write units that the items of one partition key may use in a second; `None` for no limit.
    pub key_write_units: Option<u32>,
    /// Read units that the items of one partition key may use in a second; `None` for no limit.
    pub key_read_units: Option<u32>,
    /// Faults from the start; [`crate::Emulator::set_faults`] replaces them.
    pub faults: Vec<Rule>,
    /// What the role that a request's access key names may do; without them every key may do everything.
    pub policies: Option<Policies>,
    /// Whether the server answers the control routes.
    pub control: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            epoch: None,
            region: "us-east-1".to_owned(),
            shards: 4,
            stream_retention: Duration::from_secs(24 * 3600),
            roll_after: Some(Duration::from_secs(4 * 3600)),
            split_after: None,
            max_open_shards: 64,
            split_collections: false,
            stream_delay: Duration::ZERO,
            stream_reorder: Duration::ZERO,
            first_sequence: 100_000_000_000_000_000_000,
            read_lag: Duration::from_millis(100),
            transaction_latency: None,
            batch_latency: None,
            latency: None,
            key_write_units: None,
            key_read_units: None,
            faults: Vec::new(),
            policies: None,
            control: false,
        }
    }
}

impl Config {
    /// How long an answer to `operation` takes.
    pub(crate) fn latency_of(&self, operation: &str) -> Option<Latency> {
        match operation {
            "TransactWriteItems" | "TransactGetItems" => self.transaction_latency,
            "BatchExecuteStatement" | "BatchGetItem" | "BatchWriteItem" => self.batch_latency.or(self.latency),
            _ => self.latency,
        }
    }
}
