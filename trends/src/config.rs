//! Validates the arguments together.

use tally_adapters::kafka;
use tally_core::ids::ShardCount;
use tally_service::Invalid;

use crate::args::Args;
use crate::{BoardRules, Window};

/// The allowed lengths of a partition's list.
const LIST: std::ops::RangeInclusive<usize> = 100..=1_000;

/// Fewer keys would not fill the lists.
const LEAST_KEYS: usize = 10_000;

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
    /// The topics.
    pub topics: Topics,
    /// The rules of the lists.
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

/// The rules of the lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The windows.
    pub windows: Vec<Window>,
    /// The sizes of the boards.
    pub boards: BoardRules,
    /// The number of regions that have boards of their own.
    pub regions: usize,
    /// The maximum number of keys in all partitions of the process together.
    pub keys: usize,
}

/// The sizes of boards for lists of this length.
fn boards(list: usize, min_count: i64) -> BoardRules {
    BoardRules { most: 8 * list, keep: 4 * list, least: 2 * list, list, min_count }
}

impl TryFrom<Args> for Config {
    type Error = Invalid;

    fn try_from(args: Args) -> Result<Self, Invalid> {
        let mut invalid = Invalid::none();
        let changes = args.changes_topic;
        let written = invalid.require("boards-topic", args.boards_topic);
        invalid.ensure("boards-topic", written.as_ref() != Some(&changes), "is the topic of --changes-topic");
        let mut windows = args.windows;
        windows.sort_unstable();
        let each = windows.len();
        windows.dedup();
        invalid.ensure("windows", windows.len() == each, "names a window twice");
        invalid.ensure("list", LIST.contains(&args.list), "must be 100 to 1000");
        invalid.ensure("min-count", args.min_count >= 1, "must be at least 1");
        invalid.ensure("max-regions", args.max_regions >= 1, "must be at least 1");
        invalid.ensure("max-keys", args.max_keys.is_none_or(|most| most >= LEAST_KEYS), "must be at least 10000");
        let kafka = kafka::Settings::try_from(args.kafka).map_err(|other| invalid.extend(other)).ok();
        let (Some(written), Some(kafka), true) = (written, kafka, invalid.is_empty()) else {
            return Err(invalid);
        };
        let prefix = args.store.table_prefix;
        Ok(Self {
            group: args.group.unwrap_or_else(|| format!("{prefix}tally-trends")),
            table_prefix: prefix,
            shards: args.store.shards,
            kafka,
            topics: Topics { changes, boards: written },
            rules: Rules {
                windows,
                boards: boards(args.list, args.min_count),
                regions: args.max_regions,
                keys: args.max_keys.unwrap_or(usize::MAX),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

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
