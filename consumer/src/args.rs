//! The consumer's arguments. What they mean together is checked by the configuration.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tally_adapters::kafka::{self, KafkaArgs};
use tally_core::ids::ShardCount;
use tally_service::{CommonArgs, StoreArgs, parse_duration};

use crate::config::letters_of_unless_told;
use crate::draw::Drawn;
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

    #[command(flatten)]
    pub(crate) read: ReadSettings,
}

/// How the topic is read and its rows are written.
#[derive(clap::Args, Clone, Debug)]
#[command(about = None, long_about = None)]
pub struct ReadSettings {
    /// The topic of likes
    #[arg(long, env = "TALLY_TOPIC", default_value = "likes", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Topic")]
    pub topic: String,

    /// The topic for records that are not valid events. By default the topic's name followed by `.dlq`
    #[arg(long, env = "TALLY_DEAD_LETTER_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Topic")]
    pub dead_letter_topic: Option<String>,

    /// The group whose members share the topic's partitions, all of one deployment. By default `tally-consumer` behind the
    /// table prefix
    #[arg(long, env = "TALLY_GROUP", value_parser = tally_service::text(), value_name = "GROUP", help_heading = "Topic")]
    pub group: Option<String>,

    /// How long a record may wait in a batch before the batch is written
    #[arg(long, env = "TALLY_LINGER", default_value = "20ms", value_parser = parse_duration, value_name = "SPAN", help_heading = "Batches")]
    pub linger: Duration,

    /// The most rows one request changes: 1 to 25
    #[arg(long, env = "TALLY_BATCH_ROWS", default_value_t = 25, value_name = "COUNT", help_heading = "Batches")]
    pub batch_rows: usize,

    /// The most bytes of records one batch holds
    #[arg(long, env = "TALLY_BATCH_BYTES", default_value_t = 1 << 20, value_name = "BYTES", help_heading = "Batches")]
    pub batch_bytes: usize,

    /// The most requests under way at once, over all partitions
    #[arg(long, env = "TALLY_CONCURRENCY", default_value_t = 64, value_name = "COUNT", help_heading = "Batches")]
    pub concurrency: usize,

    /// How long the row of a removed member is kept, so that a late copy of an earlier event cannot bring the member back: at least `1h`
    #[arg(long, env = "TALLY_TOMBSTONES", default_value = "24h", value_parser = parse_duration, value_name = "SPAN", help_heading = "Rows")]
    pub tombstones: Duration,

    /// `--shards`: it has to be what the deployment was created with.
    #[arg(skip)]
    pub shards: Option<ShardCount>,
}

impl ReadSettings {
    /// The topic of dead letters.
    pub(crate) fn letters(&self) -> String {
        self.dead_letter_topic.clone().unwrap_or_else(|| letters_of_unless_told(&self.topic))
    }
}

/// As of a process that is told nothing.
impl Default for ReadSettings {
    fn default() -> Self {
        tally_service::defaults()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_the_reference() {
        insta::assert_snapshot!(tally_service::reference::<Args>());
        assert_eq!(tally_service::unlisted::<Args>(), [""; 0], "the list of all programs' variables is service's");
    }
}
