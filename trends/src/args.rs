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

    /// Topic of the log of changes, as in the change-streamer's flag of this name. Its retention has to exceed the longest window by 3 h
    #[arg(
        long,
        env = "TALLY_CHANGES_TOPIC",
        default_value = "changes",
        value_parser = kafka::topic,
        value_name = "TOPIC",
        help_heading = "Topics"
    )]
    pub changes_topic: String,

    /// Compacted topic to which lists are written, as in count-api's flag of this name; required
    #[arg(long, env = "TALLY_BOARDS_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Topics")]
    pub boards_topic: Option<String>,

    /// Consumer group of all processes of a deployment, which share the log's partitions. By default `tally-trends` after the table prefix
    #[arg(long, env = "TALLY_TRENDS_GROUP", value_parser = tally_service::text(), value_name = "GROUP", help_heading = "Topics")]
    pub group: Option<String>,

    /// Windows of the lists: 1 to 60 minutes, as in 10m, or 2 to 24 hours, as in 24h, separated by commas
    #[arg(
        long,
        env = "TALLY_WINDOWS",
        default_value = "1h,24h",
        value_delimiter = ',',
        value_name = "SPAN,..",
        help_heading = "Lists"
    )]
    pub windows: Vec<Window>,

    /// Length of each partition's list, 100 to 1000. This is also the longest list that the API can answer
    #[arg(long, env = "TALLY_LIST", default_value_t = 128, value_name = "COUNT", help_heading = "Lists")]
    pub list: usize,

    /// Smallest sum that is listed
    #[arg(long, env = "TALLY_MIN_COUNT", default_value_t = 1, value_name = "COUNT", help_heading = "Lists")]
    pub min_count: i64,

    /// Number of regions with lists of their own. Later ones are merged into the region `other`, and no list of a region is exact then
    #[arg(long, env = "TALLY_MAX_REGIONS", default_value_t = 1000, value_name = "COUNT", help_heading = "Lists")]
    pub max_regions: usize,

    /// Maximum number of keys in memory, at least 10000. A key is a subject in one counter and region. Beyond the limit, the least
    /// important keys are forgotten, and lists state how much they may be off because of it. By default there is no limit
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
