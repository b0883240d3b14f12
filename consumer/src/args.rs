//! The consumer's arguments. What they mean together is checked by the configuration.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use tally_adapters::kafka::{self, KafkaArgs};
use tally_core::consume::LanePolicy;
use tally_core::event::KeyScheme;
use tally_service::{CommonArgs, StoreArgs, UnixMillis, parse_duration};

use crate::draw::Drawn;
use crate::fences::Reset;
use crate::import::ImportArgs;

/// Writes the likes in Kafka as rows of the likes table, each exactly once
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-consumer", version)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9091")))]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, HOST:PORT separated by commas; required")))]
pub struct Args {
    /// An operator's command, instead of consuming
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) common: CommonArgs,

    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The topic of likes
    #[arg(long, env = "TALLY_TOPIC", default_value = "likes", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Topic")]
    pub(crate) topic: String,

    /// The topic for records that are not valid events. By default the topic's name followed by `.dlq`
    #[arg(long, env = "TALLY_DEAD_LETTER_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Topic")]
    pub(crate) dead_letter_topic: Option<String>,

    /// The group whose members share the topic's partitions, all of one deployment. By default `tally-consumer` behind the
    /// table prefix
    #[arg(long, env = "TALLY_GROUP", value_parser = tally_service::text(), value_name = "GROUP", help_heading = "Topic")]
    pub(crate) group: Option<String>,

    /// What producers put into the key: `post` or `post-shard`. A record in another partition than its key says is applied, and counted as misrouted
    #[arg(long, env = "TALLY_KEY", default_value_t = KeyScheme::Post, value_name = "SCHEME", help_heading = "Topic")]
    pub(crate) key: KeyScheme,

    /// How long a record may wait in a batch before the batch is written
    #[arg(long, env = "TALLY_LINGER", default_value = "20ms", value_parser = parse_duration, value_name = "SPAN", help_heading = "Batches")]
    pub(crate) linger: Duration,

    /// The most rows one transaction changes: 1 to 99
    #[arg(long, env = "TALLY_BATCH_ROWS", default_value_t = 99, value_name = "COUNT", help_heading = "Batches")]
    pub(crate) batch_rows: usize,

    /// The most bytes of records one batch holds
    #[arg(long, env = "TALLY_BATCH_BYTES", default_value_t = 1 << 20, value_name = "BYTES", help_heading = "Batches")]
    pub(crate) batch_bytes: usize,

    /// The most transactions under way at once, over all partitions
    #[arg(long, env = "TALLY_CONCURRENCY", default_value_t = 64, value_name = "COUNT", help_heading = "Batches")]
    pub(crate) concurrency: usize,

    /// Lanes of a partition: 1, 2, 4, 8 or 16, or `auto`, which follows its batches
    #[arg(long, env = "TALLY_LANES", default_value = "auto", value_name = "COUNT", help_heading = "Batches")]
    pub(crate) lanes: LanePolicy,
}

impl AsRef<CommonArgs> for Args {
    fn as_ref(&self) -> &CommonArgs {
        &self.common
    }
}

#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Dead letters: records that could not be applied, and why
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// Fences: how far each partition is written, and how to move one after an alarm
    #[command(subcommand)]
    Fence(FenceCommand),
    Import(ImportArgs),
    /// Counters: which ones the deployment has, and how to define more
    #[command(subcommand)]
    Counters(CountersCommand),
    /// Draws: whether the winner of a threshold is what the log says
    #[command(subcommand)]
    Draw(DrawCommand),
}

#[derive(Subcommand, Clone, Debug)]
pub enum DrawCommand {
    /// Read the log again and compare: exits with 0 where the record is as it was written and the log says the same, with 1 where it is not, and with 69 where the log is gone or cannot say it
    Verify(Drawn),
}

#[derive(Subcommand, Clone, Debug)]
pub enum CountersCommand {
    /// Print the counters, likes first
    List,
    /// Define the counters of a file, beside those that are there. None that is there can change or go
    Apply {
        /// A TOML file with a table `[[counters]]` for each: `name`, `kind` (`set` or `sum`), `add`, and if need be `remove`, `subject`, `member`, `topic`. `-` is the standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Subcommand, Clone, Debug)]
pub enum DlqCommand {
    /// Print dead letters, and how many there are for each reason and of each other deployment
    List {
        /// The most that are printed one by one
        #[arg(long, default_value_t = 20, value_name = "COUNT")]
        limit: usize,
    },
    /// Send dead letters that decode as events now to the topic again, as if they had just happened. A replay that was stopped continues where it stopped, and none sends a record twice. A letter that names no deployment is taken for one of this deployment
    Replay {
        /// The most that are read
        #[arg(long, default_value_t = 10_000, value_name = "COUNT")]
        limit: usize,
        /// Send what adds to a sum, too. A letter does not prove that its record never counted: where it did, it counts again
        #[arg(long)]
        sums: bool,
        /// Count what would be sent, and send nothing
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Subcommand, Clone, Debug)]
pub enum FenceCommand {
    /// Print each partition's fence and log
    Show,
    /// Move a fence by hand. From then on every count is served as inexact until an audit has finished
    Reset {
        #[command(flatten)]
        to: MoveArgs,
        /// Say what would be moved, and move nothing
        #[arg(long)]
        dry_run: bool,
    },
}

/// Which fences are moved, and to where.
#[derive(clap::Args, Clone, Debug)]
pub struct MoveArgs {
    /// The partition, with all its lanes
    #[arg(long, value_name = "NUMBER", required_unless_present = "all", conflicts_with = "all")]
    partition: Option<u32>,
    /// Every partition of the topic
    #[arg(long)]
    all: bool,
    /// Where reading continues: `start` (the log's, or the fence where that is further; with `--back` the log's), `end` or an offset
    #[arg(long, value_name = "WHERE", required_unless_present = "to_time", conflicts_with = "to_time")]
    to: Option<ResetTo>,
    /// Reading continues with the first record that was written at this time or later, in milliseconds since 1970
    #[arg(long, value_name = "MILLIS")]
    to_time: Option<u64>,
    /// The fence may be moved to before where it is: what lies between is applied again, and no sum counts it twice. A sum has no event that an earlier reset passed over. To where the fence is already: the way on after `cell_ahead`
    #[arg(long)]
    back: bool,
    /// Where offsets begin anew: whether what adds to sums and is in the log by now is left out or counted
    #[arg(long, value_name = "WHAT")]
    sums: Option<SumsAnew>,
}

impl MoveArgs {
    /// What is asked for, or only to be said.
    pub fn reset(self, dry_run: bool) -> Reset {
        let Self { partition, all: _, to, to_time, back, sums } = self;
        let to = to.unwrap_or(ResetTo::Time(UnixMillis(to_time.unwrap_or_default())));
        Reset { partition, to, back, sums, dry_run }
    }
}

/// What becomes of events that add to sums and lie in a log whose offsets begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SumsAnew {
    /// They are left out: they were counted before.
    Skip,
    /// They are counted: they were not.
    Count,
}

/// Where a fence is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// The first record in the log, or the fence where that is behind it.
    Start,
    /// Behind the last record: nothing that is there is applied.
    End,
    /// This offset.
    Offset(u64),
    /// The first record of this time or later; the end where there is none.
    Time(UnixMillis),
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
        assert_eq!(tally_service::unlisted::<Args>(), [""; 0], "the list of all programs' variables is service's");
    }

    #[test]
    fn a_fence_is_reset_to_an_end_of_the_log_or_to_an_offset() {
        assert_eq!("start".parse(), Ok(ResetTo::Start));
        assert_eq!("end".parse(), Ok(ResetTo::End));
        assert_eq!("17".parse(), Ok(ResetTo::Offset(17)));
        assert!("-1".parse::<ResetTo>().is_err());
    }
}
