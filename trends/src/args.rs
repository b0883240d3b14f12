//! The arguments of `tally-trends`, which makes lists of what is trending. They are its whole configuration.

use std::collections::BTreeSet;

use clap::Parser;
use tally_adapters::kafka::{BoardsTopic, ChangesTopic, KafkaArgs};
use tally_service::{Arguments, CommonArgs, Invalid, StoreArgs, within};

use crate::{BoardRules, Window};

/// Fewer keys would not fill the lists.
const LEAST_KEYS: usize = 10_000;

/// The help of `--changes-topic` in this program, which needs a longer retention.
const CHANGES: &str = "The change-streamer's log of changes; its retention has to exceed the \
                       longest window by 3 h";

/// Lists what is trending over windows of time, from the log of changes, and says of each list whether it is exact
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-trends", version)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9097")))]
#[command(mut_arg("changes_topic", |arg| arg.help(CHANGES)))]
#[command(mut_arg("boards_topic", |arg| arg.help("Compacted topic to which lists are written, as in count-api's flag of this name; required")))]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, HOST:PORT separated by commas; required")))]
pub struct Args {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,

    #[command(flatten)]
    pub(crate) changes: ChangesTopic,

    #[command(flatten)]
    pub(crate) boards: BoardsTopic,

    /// Consumer group of all processes of a deployment, which share the log's partitions. By default `tally-trends` after the table prefix
    #[arg(long, env = "TALLY_TRENDS_GROUP", value_parser = tally_service::text(), value_name = "GROUP", help_heading = "Topics")]
    pub(crate) group: Option<String>,

    #[command(flatten)]
    pub(crate) rules: Rules,
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
        value_parser = within::<usize>(1..),
        value_name = "COUNT",
        help_heading = "Lists"
    )]
    pub regions: usize,

    /// Maximum number of keys in memory, at least 10000. A key is a subject in one counter and region. Beyond the limit, the least
    /// important keys are forgotten, and lists state how much they may be off because of it. By default there is no limit
    #[arg(long = "max-keys", env = "TALLY_MAX_KEYS", default_value_t = usize::MAX, hide_default_value = true, value_parser = within(LEAST_KEYS..), value_name = "COUNT", help_heading = "Lists")]
    pub keys: usize,
}

impl Arguments for Args {
    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn check(&self) -> Invalid {
        let Self { rules, boards, changes, .. } = self;
        let mut invalid = Invalid::none();
        invalid.gather(self.boards_topic());
        let differs = boards.boards_topic.as_ref() != Some(&changes.changes_topic);
        invalid.ensure("boards-topic", differs, "is the topic of --changes-topic");
        let distinct: BTreeSet<_> = rules.windows.iter().collect();
        invalid.ensure("windows", distinct.len() == rules.windows.len(), "names a window twice");
        invalid.gather(self.kafka.settings());
        invalid
    }
}

impl Args {
    /// Returns the topic that lists are written to.
    ///
    /// # Errors
    /// It is missing.
    pub fn boards_topic(&self) -> Result<&str, Invalid> {
        Invalid::required("boards-topic", self.boards.boards_topic.as_deref())
    }

    /// Returns the consumer group.
    pub fn group(&self) -> String {
        self.group.clone().unwrap_or_else(|| group_of(&self.store.table_prefix))
    }

    /// Returns the rules of the lists, windows in the order of their lengths.
    pub fn effective_rules(&self) -> Rules {
        let mut rules = self.rules.clone();
        rules.windows.sort_unstable();
        Rules { boards: BoardRules::of(rules.boards.list, rules.boards.min_count), ..rules }
    }
}

/// Returns the group of a deployment that is given no other.
pub fn group_of(table_prefix: &str) -> String {
    format!("{table_prefix}tally-trends")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_the_reference() {
        insta::assert_snapshot!(tally_service::reference::<Args>());
    }

    const TOPICS: [&str; 4] = ["--brokers", "b:9092", "--boards-topic", "boards"];

    #[test]
    fn by_default_an_hour_and_a_day_are_listed() {
        let rules = Args::checked(&TOPICS).unwrap().effective_rules();
        let windows: Vec<String> = rules.windows.iter().map(ToString::to_string).collect();
        assert_eq!((windows.join(","), rules.boards), ("1h,24h".to_owned(), BoardRules::default()));
        assert_eq!((Args::checked(&TOPICS).unwrap().group().as_str(), rules.regions), ("tally-trends", 1_000));
        let turned = Args::checked(&[&TOPICS[..], &["--windows", "24h,1h"]].concat()).unwrap();
        assert_eq!(turned.effective_rules().windows, rules.windows);
    }

    #[test]
    fn all_missing_and_wrong_settings_are_named_at_once() {
        let error = Args::checked(&[]).unwrap_err();
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
            let error = Args::checked(&[&given, bad].concat()).unwrap_err();
            assert!(error.contains(bad[0]), "{bad:?}: {error}");
        }
    }
}
