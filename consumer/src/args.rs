//! The consumer's arguments; what they mean together is the configuration's business.

use std::time::Duration;

use clap::{Parser, Subcommand};
use tally_adapters::kafka::KafkaArgs;
use tally_core::event::KeyScheme;
use tally_service::{CommonArgs, StoreArgs, parse_duration};

/// Turns the likes told to Kafka into rows of the likes table, exactly
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-consumer", version)]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, HOST:PORT separated by commas; required")))]
pub struct Args {
    /// Something to do instead of consuming
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) common: CommonArgs,

    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The topic of likes
    #[arg(long, env = "TALLY_TOPIC", default_value = "likes", value_parser = tally_service::text(), value_name = "TOPIC")]
    pub(crate) topic: String,

    /// Where records that are no events are kept; the topic's name with `.dlq` unless said otherwise
    #[arg(long, env = "TALLY_DEAD_LETTER_TOPIC", value_parser = tally_service::text(), value_name = "TOPIC")]
    pub(crate) dead_letter_topic: Option<String>,

    /// The group whose members share the topic's partitions
    #[arg(long, env = "TALLY_GROUP", default_value = "tally-consumer", value_parser = tally_service::text(), value_name = "GROUP")]
    pub(crate) group: String,

    /// What producers put into the key: `post` or `post-shard`. A record that lies elsewhere is applied and counted
    #[arg(long, env = "TALLY_KEY", default_value_t = KeyScheme::Post, value_name = "SCHEME")]
    pub(crate) key: KeyScheme,

    /// How long a record may wait for others before its batch is written
    #[arg(long, env = "TALLY_LINGER", default_value = "20ms", value_parser = parse_duration, value_name = "SPAN")]
    pub(crate) linger: Duration,

    /// How many rows one transaction changes at most: 1 to 99
    #[arg(long, env = "TALLY_BATCH_ROWS", default_value_t = 99, value_name = "COUNT")]
    pub(crate) batch_rows: usize,

    /// How many bytes of records one batch holds at most
    #[arg(long, env = "TALLY_BATCH_BYTES", default_value_t = 1 << 20, value_name = "BYTES")]
    pub(crate) batch_bytes: usize,

    /// How many transactions are under way at once, over all partitions
    #[arg(long, env = "TALLY_CONCURRENCY", default_value_t = 64, value_name = "COUNT")]
    pub(crate) concurrency: usize,
}

impl AsRef<CommonArgs> for Args {
    fn as_ref(&self) -> &CommonArgs {
        &self.common
    }
}

/// What an operator does beside the running consumer.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Dead letters: what could not be applied, and why
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// Fences: how far each partition has come, and the way past an alarm
    #[command(subcommand)]
    Fence(FenceCommand),
}

/// What is done with dead letters.
#[derive(Subcommand, Clone, Debug)]
pub enum DlqCommand {
    /// Print the dead letters, and how many there are for each reason
    List {
        /// How many are printed one by one
        #[arg(long, default_value_t = 20, value_name = "COUNT")]
        limit: usize,
    },
    /// Put those that are events now back on the topic, as if said now; a replay that was stopped goes on where it was
    Replay {
        /// How many are looked at
        #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
        limit: usize,
    },
}

/// What is done with fences.
#[derive(Subcommand, Clone, Debug)]
pub enum FenceCommand {
    /// Print every fence beside its log
    Show,
    /// Move a fence by hand; every count is then taken for inexact until an audit has gone through
    Reset {
        /// The partition
        #[arg(long, value_name = "NUMBER")]
        partition: u32,
        /// Where reading goes on: `start`, `end` or an offset
        #[arg(long, value_name = "WHERE")]
        to: ResetTo,
    },
}

/// Where a fence is moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// To the first record the log has: everything still there is applied again.
    Start,
    /// Behind the last record: nothing that is there is applied.
    End,
    /// To this offset.
    Offset(u64),
}

impl std::str::FromStr for ResetTo {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "start" => Ok(Self::Start),
            "end" => Ok(Self::End),
            offset => offset.parse().map(Self::Offset).map_err(|_| "write `start`, `end` or an offset"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_the_reference() {
        insta::assert_snapshot!(tally_service::reference::<Args>());
    }

    #[test]
    fn a_fence_is_reset_to_an_end_of_the_log_or_to_an_offset() {
        assert_eq!("start".parse(), Ok(ResetTo::Start));
        assert_eq!("end".parse(), Ok(ResetTo::End));
        assert_eq!("17".parse(), Ok(ResetTo::Offset(17)));
        assert!("-1".parse::<ResetTo>().is_err());
    }
}
