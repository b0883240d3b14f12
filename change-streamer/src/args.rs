//! The streamer's arguments, which are its configuration.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tally_adapters::kafka::{self, ChangesTopic, KafkaArgs, LikesTopic};
use tally_adapters::redis::CacheArgs;
use tally_core::ids::Region;
use tally_core::milestone::Ladder;
use tally_service::{Arguments, CommonArgs, Invalid, StoreArgs, duration, parse_duration, within};

const SECOND: Duration = Duration::from_secs(1);

/// `--poll-idle` is bounded: what the counters include is known only as of the last read of each stream shard.
const POLL_IDLE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

/// The help of `--redis` in this program.
const CACHE: &str = "The cache to keep right: `redis://host:port`, `rediss://` with TLS, several nodes of a cluster \
                     separated by commas, or `off`; required";

/// The help of `--topic` in this program.
const TOPIC: &str = "The topic of counters whose definition names none; used only with --region-name";

/// Copies the stream of like rows into the log `changes`, and keeps the counts and the cache from there
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-change-streamer", version)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9094")))]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, HOST:PORT separated by commas; required")))]
#[command(mut_arg("redis", |arg| arg.help(CACHE)), mut_arg("topic", |arg| arg.help(TOPIC).help_heading("Regions")))]
pub struct Args {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub kafka: KafkaArgs,

    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub changes: ChangesTopic,
    #[command(flatten)]
    pub settings: Settings,

    #[command(flatten)]
    pub regions: RegionArgs,
    #[command(flatten)]
    pub likes: LikesTopic,
}

/// Counts over several Regions.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
#[command(about = None, long_about = None, next_help_heading = "Regions")]
pub struct RegionArgs {
    /// What this Region is called, where the counts of several are added up: up to 32 lower-case letters, digits and
    /// dashes. Its counts are published for the others
    #[arg(long, env = "TALLY_REGION_NAME", value_parser = region, value_name = "NAME")]
    pub region_name: Option<Region>,

    /// Where they are published: a compacted topic of this deployment alone, with as many partitions as the log
    #[arg(long, env = "TALLY_COUNTS_TOPIC", default_value = "counts", value_parser = kafka::topic, value_name = "TOPIC")]
    pub counts_topic: String,

    /// Another Region, and its topic as it is copied here: `us=us.counts`; once for each of them, or separated by
    /// commas
    #[arg(long = "remote", env = "TALLY_REMOTE", value_delimiter = ',', value_parser = remote, value_name = "NAME=TOPIC")]
    pub remotes: Vec<(Region, String)>,
}

fn region(text: &str) -> Result<Region, String> {
    Region::new(text).ok_or_else(|| "up to 32 lower-case letters, digits and dashes".to_owned())
}

fn remote(text: &str) -> Result<(Region, String), String> {
    let (name, topic) = text.split_once('=').ok_or("it has the form NAME=TOPIC")?;
    Ok((region(name)?, kafka::topic(topic)?))
}

impl RegionArgs {
    fn check(&self, changes: &str, invalid: &mut Invalid) {
        let Self { region_name, counts_topic, remotes } = self;
        let names: BTreeSet<&Region> = remotes.iter().map(|(name, _)| name).collect();
        let topics: BTreeSet<&str> = remotes.iter().map(|(_, topic)| topic.as_str()).collect();
        let is_own = |(name, at): &(Region, String)| Some(name) == region_name.as_ref() || at == counts_topic;
        invalid.ensure("region-name", region_name.is_some() || remotes.is_empty(), "missing: --remote needs it");
        invalid.ensure("remote", !remotes.iter().any(is_own), "must be another Region than this one, and its topic");
        let is_once = names.len() == remotes.len() && topics.len() == remotes.len();
        invalid.ensure("remote", is_once, "must name each Region and each topic once");
        invalid.ensure("counts-topic", counts_topic != changes, "must be another topic than the log of changes");
    }
}

/// Which parts of the streamer a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// It copies the stream into the log.
    Relay,
    /// It keeps the counts from the log.
    Fold,
    /// Both.
    Both,
}

/// What a streamer does, whichever tables, cache and Kafka it works on.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
#[command(about = None, long_about = None)]
pub struct Settings {
    /// What this process does: `relay` copies the stream into the log, `fold` keeps the counts from it
    #[arg(long, env = "TALLY_ROLE", value_enum, default_value_t = Role::Both, value_name = "ROLE", help_heading = "Log")]
    pub role: Role,

    /// Totals at which the first to reach them is recorded, upwards and at most 16, or `every:N`. By default those of the
    /// deployment; never fewer
    #[arg(long, env = "TALLY_MILESTONES", value_name = "LADDER", help_heading = "Log")]
    pub milestones: Option<Ladder>,

    #[command(flatten)]
    pub rules: Rules,
}

/// The defaults of the command line.
impl Default for Settings {
    fn default() -> Self {
        tally_service::defaults()
    }
}

/// How the relay follows the stream, and how the fold reads the log.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq, Eq)]
#[command(about = None, long_about = None)]
pub struct Rules {
    /// How long changes are gathered before counters are written
    #[arg(long, env = "TALLY_LINGER", default_value = "100ms", value_parser = parse_duration, value_name = "SPAN", help_heading = "Log")]
    pub linger: Duration,

    /// How many requests to the counters are under way at once at most, of each partition; a request has up to 25 of
    /// them
    #[arg(long, env = "TALLY_CONCURRENCY", default_value_t = 16, value_parser = within::<usize>(1..), value_name = "COUNT", help_heading = "Log")]
    pub concurrency: usize,

    /// How often an idle stream shard is read, at most 10s: what idling costs, and how long its first record may wait
    #[arg(long, env = "TALLY_POLL_IDLE", default_value = "1s", value_parser = duration(|span| POLL_IDLE.contains(&span), "must be between 1ms and 10s"), value_name = "SPAN", help_heading = "Stream")]
    pub poll_idle: Duration,

    /// How often the stream's shards are listed; children of a shard read here are found at once
    #[arg(long, env = "TALLY_DISCOVER", default_value = "30s", value_parser = duration(|span| span >= SECOND, "must be at least 1s: the service limits listings"), value_name = "SPAN", help_heading = "Stream")]
    pub discover: Duration,

    /// How long a lease may stand still before another worker takes it over; it is renewed at least three times as
    /// often
    #[arg(long, env = "TALLY_LEASE", default_value = "6s", value_parser = duration(|span| span >= SECOND, "must be at least 1s"), value_name = "SPAN", help_heading = "Stream")]
    pub lease: Duration,

    /// Read every stream shard, also those of other workers: right, and as often as there are workers
    #[arg(long, env = "TALLY_NO_LEASES", help_heading = "Stream")]
    pub no_leases: bool,

    /// How many bytes the relay may be ahead of the fold of a partition; `None`: any number. The embedded Kafka deletes
    /// unread records.
    #[arg(skip)]
    pub ahead: Option<usize>,
}

/// The defaults of the command line.
impl Default for Rules {
    fn default() -> Self {
        tally_service::defaults()
    }
}

impl Arguments for Args {
    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn check(&self) -> Invalid {
        let Self { store, kafka, cache, changes, regions, .. } = self;
        let mut invalid = Invalid::none();
        invalid.require("redis", cache.address());
        invalid.gather(cache.settings(&store.table_prefix));
        regions.check(&changes.changes_topic, &mut invalid);
        invalid.gather(kafka.settings());
        invalid
    }
}

impl Rules {
    /// Returns how long a lease may stand still; `None` if there are none, and every process reads every stream shard.
    pub(crate) fn lease(&self) -> Option<Duration> {
        (!self.no_leases).then_some(self.lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_the_reference() {
        insta::assert_snapshot!(tally_service::reference::<Args>());
    }

    /// Checks what is required, and these arguments.
    fn with(args: &[&str]) -> Result<Args, String> {
        Args::checked(&[&["--redis", "off", "--brokers", "b:9092"], args].concat())
    }

    #[test]
    fn a_cache_is_named_or_switched_off_and_never_forgotten() {
        let at = |url: &str| Args::checked(&["--brokers", "b:9092", "--redis", url]);
        for missing in [Args::checked(&[]), at("")] {
            assert!(missing.unwrap_err().contains("--redis (TALLY_REDIS): missing"));
        }
        let one = at("redis://:canary@cache:6379").unwrap();
        assert!(!format!("{one:?}").contains("canary"));
        assert!(at("cache:6379").unwrap_err().contains("--redis"));
    }

    #[test]
    fn every_bad_setting_is_named_at_once() {
        let bad = "--concurrency 0 --lease 10ms --discover 0 --poll-idle 11s --milestones 1000,100";
        let error = Args::checked(&bad.split(' ').collect::<Vec<_>>()).unwrap_err();
        for flag in ["--redis", "--brokers", "--concurrency", "--lease", "--discover", "--poll-idle", "--milestones"] {
            assert!(error.contains(flag), "{flag}: {error}");
        }
    }

    #[test]
    fn regions_are_named_and_none_is_read_twice_or_is_this_one() {
        let regions = with(&["--region-name", "eu", "--remote", "us=us.counts,ap=ap.counts"]).unwrap().regions;
        assert_eq!((regions.region_name.unwrap().as_str(), regions.counts_topic.as_str()), ("eu", "counts"));
        let remotes: Vec<_> = regions.remotes.iter().map(|(name, topic)| (name.as_str(), topic.as_str())).collect();
        assert_eq!(remotes, [("us", "us.counts"), ("ap", "ap.counts")]);
        for (bad, flag) in [
            (&["--remote", "us=us.counts"][..], "--region-name"),
            (&["--region-name", "eu", "--remote", "eu=eu.counts"], "--remote"),
            (&["--region-name", "eu", "--remote", "us=counts"], "--remote"),
            (&["--region-name", "eu", "--remote", "us=a,us=b"], "--remote"),
            (&["--region-name", "eu", "--remote", "us=a,ap=a"], "--remote"),
            (&["--region-name", "eu", "--counts-topic", "changes"], "--counts-topic"),
            (&["--region-name", "EU"], "--region-name"),
            (&["--region-name", "eu", "--remote", "us"], "--remote"),
        ] {
            let error = with(bad).unwrap_err();
            assert!(error.contains(flag), "{bad:?}: {error}");
        }
    }
}
