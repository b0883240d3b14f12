//! The command line and configuration of `tally-trends`.

use clap::Parser;
use tally_adapters::kafka::{self, KafkaArgs};
use tally_core::ids::ShardCount;
use tally_service::{CommonArgs, Invalid, StoreArgs};

use crate::{BoardRules, Window};

/// The allowed lengths of a partition's list.
const LIST: std::ops::RangeInclusive<usize> = 100..=1_000;

/// Fewer keys would not fill the lists.
const LEAST_KEYS: usize = 10_000;

/// Lists what is trending over windows of time, from the log of changes, and says of each list whether it is exact
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-trends", version)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9097")))]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, HOST:PORT separated by commas; required")))]
pub struct Args {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    kafka: KafkaArgs,

    /// Topic of the log of changes, as in the change-streamer's flag of this name. Its retention has to exceed the longest window by 3 h
    #[arg(
        long,
        env = "TALLY_CHANGES_TOPIC",
        default_value = "changes",
        value_parser = kafka::topic,
        value_name = "TOPIC",
        help_heading = "Topics"
    )]
    changes_topic: String,

    /// Compacted topic to which lists are written, as in count-api's flag of this name; required
    #[arg(long, env = "TALLY_BOARDS_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Topics")]
    boards_topic: Option<String>,

    /// Consumer group of all processes of a deployment, which share the log's partitions. By default `tally-trends` after the table prefix
    #[arg(long, env = "TALLY_TRENDS_GROUP", value_parser = tally_service::text(), value_name = "GROUP", help_heading = "Topics")]
    group: Option<String>,

    #[command(flatten)]
    rules: Rules,
}

/// The rules of the lists.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
#[command(about = None, long_about = None)]
pub struct Rules {
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

    #[command(flatten)]
    pub boards: BoardRules,

    /// Number of regions with lists of their own. Later ones are merged into the region `other`, and no list of a region is exact then
    #[arg(
        long = "max-regions",
        env = "TALLY_MAX_REGIONS",
        default_value_t = 1000,
        value_name = "COUNT",
        help_heading = "Lists"
    )]
    pub regions: usize,

    /// Maximum number of keys in memory, at least 10000. A key is a subject in one counter and region. Beyond the limit, the least
    /// important keys are forgotten, and lists state how much they may be off because of it. By default there is no limit
    #[arg(long = "max-keys", env = "TALLY_MAX_KEYS", default_value_t = usize::MAX, hide_default_value = true, value_name = "COUNT", help_heading = "Lists")]
    pub keys: usize,
}

/// A configuration of `tally-trends`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The prefix of every table name.
    pub table_prefix: String,
    /// The number of shards that the deployment should have, if it was given.
    pub shards: Option<ShardCount>,
    /// The connection to Kafka.
    pub kafka: kafka::Settings,
    /// The consumer group.
    pub group: String,
    pub topics: Topics,
    pub rules: Rules,
}

/// The topics from which changes are read and to which lists are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topics {
    /// The log of changes.
    pub changes: String,
    /// The topic of boards.
    pub boards: String,
}

impl TryFrom<Args> for Config {
    type Error = Invalid;

    fn try_from(args: Args) -> Result<Self, Invalid> {
        let Args { store: StoreArgs { table_prefix, shards }, kafka, changes_topic: changes, mut rules, .. } = args;
        let mut invalid = Invalid::none();
        let boards = invalid.require("boards-topic", args.boards_topic);
        invalid.ensure("boards-topic", boards.as_ref() != Some(&changes), "is the topic of --changes-topic");
        rules.windows.sort_unstable();
        let each = rules.windows.len();
        rules.windows.dedup();
        invalid.ensure("windows", rules.windows.len() == each, "names a window twice");
        rules.boards = BoardRules::of(rules.boards.list, rules.boards.min_count);
        invalid.ensure("list", LIST.contains(&rules.boards.list), "must be 100 to 1000");
        invalid.ensure("min-count", rules.boards.min_count >= 1, "must be at least 1");
        invalid.ensure("max-regions", rules.regions >= 1, "must be at least 1");
        invalid.ensure("max-keys", rules.keys >= LEAST_KEYS, "must be at least 10000");
        let kafka = kafka::Settings::try_from(kafka).map_err(|other| invalid.extend(other)).ok();
        let (Some(boards), Some(kafka), true) = (boards, kafka, invalid.is_empty()) else {
            return Err(invalid);
        };
        let group = args.group.unwrap_or_else(|| format!("{table_prefix}tally-trends"));
        Ok(Self { table_prefix, shards, kafka, group, topics: Topics { changes, boards }, rules })
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

    const TOPICS: [&str; 4] = ["--brokers", "b:9092", "--boards-topic", "boards"];

    fn config(args: &[&str]) -> Result<Config, String> {
        let args = Args::try_parse_from(std::iter::once(&"tally-trends").chain(args));
        Config::try_from(args.map_err(|error| error.to_string())?).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn by_default_an_hour_and_a_day_are_listed() {
        let config = config(&TOPICS).unwrap();
        let windows: Vec<String> = config.rules.windows.iter().map(ToString::to_string).collect();
        assert_eq!((windows.join(","), config.rules.boards), ("1h,24h".to_owned(), BoardRules::default()));
        assert_eq!((config.group.as_str(), config.rules.regions), ("tally-trends", 1_000));
    }

    #[test]
    fn all_missing_and_wrong_settings_are_named_at_once() {
        let error = config(&[]).unwrap_err();
        for flag in ["--brokers", "--boards-topic"] {
            assert!(error.contains(flag), "{flag}: {error}");
        }
        for bad in [
            &["--windows", "1h,60m"][..],
            &["--windows", "1x"],
            &["--list", "99"],
            &["--min-count", "0"],
            &["--max-regions", "0"],
            &["--max-keys", "9999"],
            &["--boards-topic", "changes"],
        ] {
            let given: Vec<&str> = if bad[0] == "--boards-topic" { TOPICS[..2].to_vec() } else { TOPICS.to_vec() };
            let error = config(&[&given, bad].concat()).unwrap_err();
            assert!(error.contains(bad[0]), "{bad:?}: {error}");
        }
    }
}
