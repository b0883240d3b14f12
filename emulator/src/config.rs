//! How an emulator behaves: its seed, clock, stream shards, delays, limits, faults and policies. The fields are also
//! flags of the program `tally-emulator`.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use clap::Args;
use tally_service::parse_duration;

use crate::clock::{Millis, millis};
use crate::fault::Rule;
use crate::policies::Policies;

/// The behaviour of an emulator. [`Config::default`] is a quiet DynamoDB: four shards, a short read lag, no faults.
#[derive(Args, Clone, Debug)]
#[command(about = None, long_about = None)]
pub struct Config {
    /// Seed of the only random generator: one seed and one sequence of requests give one run.
    #[arg(long, env = "TALLY_EMULATOR_SEED", default_value_t = 0)]
    pub seed: u64,

    /// What the clock shows at the start, in seconds since the Unix epoch; the machine's time if absent. Fix it for runs that must repeat.
    #[arg(long, env = "TALLY_EMULATOR_EPOCH", value_parser = epoch)]
    pub epoch: Option<SystemTime>,

    /// Region in names of resources and in stream records.
    #[arg(long, env = "TALLY_EMULATOR_REGION", default_value = "us-east-1")]
    pub region: String,

    /// Open shards of a new stream.
    #[arg(long, env = "TALLY_EMULATOR_SHARDS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub shards: u32,

    /// How long stream records, and shards that were closed, can be read.
    #[arg(long, env = "TALLY_EMULATOR_STREAM_RETENTION", default_value = "24h", value_parser = parse_duration)]
    pub stream_retention: Duration,

    /// Age at which an open shard is closed and continued by a child; 0 is never.
    #[arg(long, env = "TALLY_EMULATOR_ROLL_AFTER", default_value = "4h", value_parser = parse_duration)]
    pub roll_after: Option<Duration>,

    /// Records after which a shard is split.
    #[arg(long, env = "TALLY_EMULATOR_SPLIT_AFTER", value_parser = clap::value_parser!(u64).range(1..))]
    pub split_after: Option<u64>,

    /// With this many open shards, a volume rolls a shard instead of splitting it.
    #[arg(skip = 64_usize)]
    pub max_open_shards: usize,

    /// A change appears in the stream at some moment within this bound.
    #[arg(long, env = "TALLY_EMULATOR_STREAM_DELAY", default_value = "0ms", value_parser = parse_duration)]
    pub stream_delay: Duration,

    /// Changes of different items may change places in the stream within this bound, and only before a reader can have seen them; at most the stream delay.
    #[arg(long, env = "TALLY_EMULATOR_STREAM_REORDER", default_value = "0ms", value_parser = parse_duration)]
    pub stream_reorder: Duration,

    /// Reads without ConsistentRead answer with the state of some moment within this bound.
    #[arg(long, env = "TALLY_EMULATOR_READ_LAG", default_value = "100ms", value_parser = parse_duration)]
    pub read_lag: Duration,

    /// How long a transaction takes to be answered, each time within these bounds: 20ms..40ms is what the real store takes.
    #[arg(long, env = "TALLY_EMULATOR_TRANSACTION_LATENCY", value_name = "SPAN..SPAN")]
    pub transaction_latency: Option<Latency>,

    /// How long a batch takes, of statements, reads or writes: 8ms..25ms is what the real store takes; as long as every other request if absent.
    #[arg(long, env = "TALLY_EMULATOR_BATCH_LATENCY", value_name = "SPAN..SPAN")]
    pub batch_latency: Option<Latency>,

    /// How long every other request takes: 3ms..8ms is what the real store takes.
    #[arg(long, env = "TALLY_EMULATOR_LATENCY", value_name = "SPAN..SPAN")]
    pub latency: Option<Latency>,

    /// Write units that the items of one partition key may use in a second; more is throttled, with the reasons that the real store gives, which lets each have 1000.
    #[arg(long, env = "TALLY_EMULATOR_KEY_WRITE_UNITS", value_parser = clap::value_parser!(u32).range(1..))]
    pub key_write_units: Option<u32>,

    /// Read units that the items of one partition key may use in a second; the real store lets each have 3000.
    #[arg(long, env = "TALLY_EMULATOR_KEY_READ_UNITS", value_parser = clap::value_parser!(u32).range(1..))]
    pub key_read_units: Option<u32>,

    /// Faults from the start; [`crate::Emulator::set_faults`] replaces them.
    #[arg(skip)]
    pub faults: Vec<Rule>,

    /// What the role that a request's access key names may do; without them every key may do everything.
    #[arg(skip)]
    pub policies: Option<Policies>,

    /// Answer the control routes under /_control/.
    #[arg(long, env = "TALLY_EMULATOR_CONTROL")]
    pub control: bool,
}

fn epoch(seconds: &str) -> Result<SystemTime, std::num::ParseIntError> {
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.parse()?))
}

impl Default for Config {
    fn default() -> Self {
        tally_service::defaults()
    }
}

impl Config {
    /// The latency of an operation.
    pub(crate) fn latency_of(&self, operation: &str) -> Option<Latency> {
        match operation {
            "TransactWriteItems" | "TransactGetItems" => self.transaction_latency,
            "BatchExecuteStatement" | "BatchGetItem" | "BatchWriteItem" => self.batch_latency.or(self.latency),
            _ => self.latency,
        }
    }
}

/// The latency of an answer: a random duration from `least` to `most`.
///
/// It is written as `20ms..40ms`, or `20ms` if it is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    pub(crate) least: Millis,
    pub(crate) most: Millis,
}

impl FromStr for Latency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let bound = |text| parse_duration(text).map(millis).map_err(|error| error.to_string());
        let latency = Self { least: bound(least)?, most: bound(most)? };
        if latency.most < latency.least {
            return Err("the second duration is shorter than the first".to_owned());
        }
        Ok(latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_one_duration_or_two() {
        let read = |text: &str| text.parse::<Latency>().map(|latency| (latency.least, latency.most));
        assert_eq!(read("20ms..40ms"), Ok((20, 40)));
        assert_eq!(read("1s"), Ok((1000, 1000)));
        assert!(read("40ms..20ms").unwrap_err().contains("shorter"));
        for wrong in ["", "..", "20..40ms", "20ms..", "20ms...40ms", "20ms-40ms"] {
            read(wrong).unwrap_err();
        }
    }
}
