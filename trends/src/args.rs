//! The command line and the environment, as written; what they mean together is the configuration's.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;
use tally_adapters::kafka::{self, KafkaArgs};
use tally_service::{CommonArgs, StoreArgs};

use crate::Window;

/// Lists what is trending over windows of time, from the ledger of changes, and says of each list whether it is exact
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

    /// The ledger of changes: the topic that change-streamers write with the flag of this name; required. It has to keep
    /// records for 2 h longer than the longest window
    #[arg(long, env = "TALLY_CHANGES_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Topics")]
    pub changes_topic: Option<String>,

    /// Where lists are written, for count-api's flag of this name: a topic that is compacted; required
    #[arg(long, env = "TALLY_BOARDS_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Topics")]
    pub boards_topic: Option<String>,

    /// The group whose members share the ledger's partitions, all of one deployment. By default `tally-trends` behind the
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

    /// A folder on a disk of this machine for sums of the log, so that a start reads less of it; `off` keeps none, and a start
    /// reads all that the windows need. Lists are the same, also where files of it are damaged or missing
    #[arg(long, env = "TALLY_STATE_DIR", value_parser = StateDir::from_str, default_value = "off", value_name = "PATH|off", help_heading = "Lists")]
    pub state_dir: StateDir,
}

/// Where sums of the log are kept, if they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(pub Option<PathBuf>);

impl FromStr for StateDir {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "" => Err("a folder, or off"),
            "off" => Ok(Self(None)),
            folder => Ok(Self(Some(folder.into()))),
        }
    }
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
