//! The command line and the environment. The configuration validates them.

use clap::Parser;
use tally_adapters::kafka::{self, KafkaArgs};
use tally_service::{CommonArgs, StoreArgs};

use crate::Window;

/// Lists what is trending over windows of time, from the log of changes, and says of each list whether it is exact
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-trends", version)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9097")))]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, HOST:PORT separated by commas; required")))]
pub struct Args {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub kafka: KafkaArgs,

    /// The log of changes: the topic that change-streamers write, as they name it with the flag of this name. It has to keep
    /// records for 3 h longer than the longest window
    #[arg(
        long,
        env = "TALLY_CHANGES_TOPIC",
        default_value = "changes",
        value_parser = kafka::topic,
        value_name = "TOPIC",
        help_heading = "Topics"
    )]
    pub changes_topic: String,

    /// Where lists are written, for count-api's flag of this name: a topic that is compacted; required
    #[arg(long, env = "TALLY_BOARDS_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Topics")]
    pub boards_topic: Option<String>,

    /// The group whose members share the log's partitions, all of one deployment. By default `tally-trends` behind the
    /// table prefix
    #[arg(long, env = "TALLY_TRENDS_GROUP", value_parser = tally_service::text(), value_name = "GROUP", help_heading = "Topics")]
    pub group: Option<String>,

    /// Over which spans of time lists are made: 1 to 60 minutes, as in 10m, or 2 to 24 hours, as in 24h, separated by commas
    #[arg(
        long,
        env = "TALLY_WINDOWS",
        default_value = "1h,24h",
        value_delimiter = ',',
        value_name = "SPAN,..",
        help_heading = "Lists"
    )]
    pub windows: Vec<Window>,

    /// How long the list of a partition is, 100 to 1000: no more of all partitions can be asked for
    #[arg(long, env = "TALLY_LIST", default_value_t = 128, value_name = "COUNT", help_heading = "Lists")]
    pub list: usize,

    /// The least sum that is listed
    #[arg(long, env = "TALLY_MIN_COUNT", default_value_t = 1, value_name = "COUNT", help_heading = "Lists")]
    pub min_count: i64,

    /// How many regions have lists of their own; those that come later are the region `other` together, and then no list
    /// of one region is called exact
    #[arg(long, env = "TALLY_MAX_REGIONS", default_value_t = 1000, value_name = "COUNT", help_heading = "Lists")]
    pub max_regions: usize,

    /// How many keys this process holds in memory, at least 10000: a subject in a place is one. Those that are too many are
    /// forgotten, the least important first, and lists state by how much they may be off for it. Without this there is no limit
    #[arg(long, env = "TALLY_MAX_KEYS", value_name = "COUNT", help_heading = "Lists")]
    pub max_keys: Option<usize>,
}

impl AsRef<CommonArgs> for Args {
    fn as_ref(&self) -> &CommonArgs {
        &self.common
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
}
