//! The streamer's settings: [`Args`] parses command line and environment, and [`Config`] is what they mean together.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tally_adapters::kafka::{self, KafkaArgs};
use tally_adapters::{dynamodb, redis};
use tally_core::ids::{Region, ShardCount};
use tally_core::milestone::Ladder;
use tally_service::{CommonArgs, Invalid, Secret, StoreArgs, parse_duration};

/// The longest `--poll-idle`: what the counters include is known only as of the last read of each stream shard.
const POLL_IDLE_MOST: Duration = Duration::from_secs(10);

/// Copies the stream of like rows into the log `changes`, and keeps the counts and the cache from there
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-change-streamer", version)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9094")))]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, HOST:PORT separated by commas; required")))]
pub struct Args {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub kafka: KafkaArgs,

    /// The cache to keep right: `redis://host:port`, `rediss://` with TLS, several nodes of a cluster separated by
    /// commas, or `off`; required
    #[arg(long, env = "TALLY_REDIS", hide_env_values = true, value_name = "URL", help_heading = "Cache")]
    pub redis: Option<Secret>,

    /// The cache is in cluster mode, also where one address is given
    #[arg(long, env = "TALLY_REDIS_CLUSTER", help_heading = "Cache")]
    pub redis_cluster: bool,

    /// The log of changes: a topic of this deployment alone, with a fixed number of partitions
    #[arg(long, env = "TALLY_CHANGES_TOPIC", default_value = "changes", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Log")]
    pub changes_topic: String,

    /// What this process does: `relay` copies the stream into the log, `fold` keeps the counts from it
    #[arg(long, env = "TALLY_ROLE", value_enum, default_value_t = Role::Both, value_name = "ROLE", help_heading = "Log")]
    pub role: Role,

    #[command(flatten)]
    pub rules: Rules,

    /// Read every stream shard, also those of other workers: right, and as often as there are workers
    #[arg(long, env = "TALLY_NO_LEASES", help_heading = "Stream")]
    pub no_leases: bool,

    #[command(flatten)]
    pub regions: RegionArgs,

    /// Totals at which the first to reach them is recorded, upwards and at most 16, or `every:N`; never fewer than the
    /// deployment has, which is what a process that is told none takes
    #[arg(long, env = "TALLY_MILESTONES", value_name = "LADDER", help_heading = "Log")]
    pub milestones: Option<String>,
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

    /// The topic of the counters that name no topic: what is published says up to when all of its events are in
    #[arg(long, env = "TALLY_TOPIC", default_value = "likes", value_parser = kafka::topic, value_name = "TOPIC")]
    pub topic: String,
}

/// How a Region that has a name publishes its counts, and which others it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRules {
    /// Its name.
    pub name: Region,
    /// The topic that it publishes in.
    pub topic: String,
    /// The topic with the events of those counters that name no topic.
    pub usual: String,
    /// The other Regions, and their topics as they are copied here.
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
    /// Returns the rules of a Region that has a name. Notes in `invalid` what is wrong with the arguments.
    fn rules(self, changes: &str, invalid: &mut Invalid) -> Option<RegionRules> {
        let Self { region_name, counts_topic, remotes, topic } = self;
        let names: BTreeSet<&Region> = remotes.iter().map(|(name, _)| name).collect();
        let topics: BTreeSet<&str> = remotes.iter().map(|(_, topic)| topic.as_str()).collect();
        let is_own = |(name, at): &(Region, String)| Some(name) == region_name.as_ref() || *at == counts_topic;
        invalid.ensure("region-name", region_name.is_some() || remotes.is_empty(), "missing: --remote needs it");
        invalid.ensure("remote", !remotes.iter().any(is_own), "must be another Region than this one, and its topic");
        let is_once = names.len() == remotes.len() && topics.len() == remotes.len();
        invalid.ensure("remote", is_once, "must name each Region and each topic once");
        invalid.ensure("counts-topic", counts_topic != changes, "must be another topic than the log of changes");
        region_name.map(|name| RegionRules { name, topic: counts_topic, usual: topic, remotes })
    }
}

/// Which parts of the streamer a process runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// It copies the stream into the log.
    Relay,
    /// It keeps the counts from the log.
    Fold,
    /// Both.
    #[default]
    Both,
}

/// A streamer's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How the tables are reached.
    pub store: dynamodb::Settings,
    /// The cache, unless it was switched off.
    pub cache: Option<redis::Settings>,
    /// How Kafka is reached.
    pub kafka: kafka::Settings,
    /// The topic of the log.
    pub topic: String,
    pub settings: Settings,
}

/// What a streamer does, whichever tables, cache and Kafka it works on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The number of shards this process was told the deployment has.
    pub shards: Option<ShardCount>,
    pub role: Role,
    pub rules: Rules,
    /// What it does for other Regions, where this one has a name.
    pub regions: Option<RegionRules>,
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
    #[arg(long, env = "TALLY_CONCURRENCY", default_value_t = 16, value_name = "COUNT", help_heading = "Log")]
    pub concurrency: usize,

    /// How often an idle stream shard is read, at most 10s: what idling costs, and how long its first record may wait
    #[arg(long, env = "TALLY_POLL_IDLE", default_value = "1s", value_parser = parse_duration, value_name = "SPAN", help_heading = "Stream")]
    pub poll_idle: Duration,

    /// How often the stream's shards are listed; children of a shard read here are found at once
    #[arg(long, env = "TALLY_DISCOVER", default_value = "30s", value_parser = parse_duration, value_name = "SPAN", help_heading = "Stream")]
    pub discover: Duration,

    // `None`: no leases, every process reads everything.
    /// How long a lease may stand still before another worker takes it over; it is renewed at least three times as
    /// often
    #[arg(long, env = "TALLY_LEASE", default_value = "6s", value_parser = parse_duration, value_name = "SPAN", help_heading = "Stream")]
    pub lease: Option<Duration>,

    /// The thresholds of milestones; an empty ladder takes what the deployment has.
    #[arg(skip)]
    pub milestones: Ladder,

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

impl TryFrom<Args> for Config {
    type Error = Invalid;

    fn try_from(args: Args) -> Result<Self, Invalid> {
        let (mut invalid, rules) = (Invalid::none(), args.rules);
        let cache = invalid.require("redis", args.redis.as_ref());
        let cache = cache.map(|at| redis::Settings::parse(at.expose(), args.redis_cluster, &args.store.table_prefix));
        invalid.ensure("concurrency", rules.concurrency >= 1, "must be at least 1");
        let idle = Duration::from_millis(1)..=POLL_IDLE_MOST;
        invalid.ensure("poll-idle", idle.contains(&rules.poll_idle), "must be between 1ms and 10s");
        let second = Duration::from_secs(1);
        invalid.ensure("discover", rules.discover >= second, "must be at least 1s: the service limits listings");
        invalid.ensure("lease", rules.lease >= Some(second), "must be at least 1s");
        let milestones = args.milestones.map(|told| told.parse::<Ladder>());
        let milestones = milestones.and_then(|parsed| invalid.accept("milestones", parsed));
        let regions = args.regions.rules(&args.changes_topic, &mut invalid);
        let kafka = kafka::Settings::try_from(args.kafka).map_err(|other| invalid.extend(other)).ok();
        let lease = rules.lease.filter(|_| !args.no_leases);
        let rules = Rules { lease, milestones: milestones.unwrap_or_default(), ..rules };
        let cache = cache.and_then(|cache| invalid.accept("redis", cache));
        match (cache, kafka) {
            (Some(cache), Some(kafka)) if invalid.is_empty() => Ok(Self {
                store: dynamodb::Settings { table_prefix: args.store.table_prefix, ..dynamodb::Settings::default() },
                cache,
                kafka,
                topic: args.changes_topic,
                settings: Settings { shards: args.store.shards, role: args.role, rules, regions },
            }),
            _ => Err(invalid),
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

    fn config(args: &[&str]) -> Result<Config, String> {
        let args = Args::try_parse_from(["tally-change-streamer"].iter().chain(args));
        Config::try_from(args.map_err(|error| error.to_string())?).map_err(|invalid| invalid.to_string())
    }

    /// A configuration that has what is required, and these arguments.
    fn with(args: &[&str]) -> Result<Config, String> {
        config(&[&["--redis", "off", "--brokers", "b:9092"], args].concat())
    }

    #[test]
    fn the_documented_defaults_are_the_rules_of_a_process_that_is_told_nothing() {
        let config = with(&[]).unwrap();
        assert_eq!((config.settings, config.cache), (Settings::default(), None));
        assert_eq!((config.topic.as_str(), config.kafka.option("bootstrap.servers")), ("changes", Some("b:9092")));
    }

    #[test]
    fn a_ladder_is_taken_as_it_is_told_and_a_bad_one_refused_by_name() {
        let told = |text: &str| with(&["--milestones", text]).map(|config| config.settings.rules.milestones);
        for text in ["100,1000", "every:1000000"] {
            assert_eq!(told(text).unwrap().to_string(), text);
        }
        for text in ["0", "=-1", "1.5", "1000,100", "every:0", "x", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"] {
            let text = text.trim_start_matches('=');
            let error = with(&[&format!("--milestones={text}")]).unwrap_err();
            assert!(error.contains("--milestones (TALLY_MILESTONES)"), "{text}: {error}");
        }
    }

    #[test]
    fn a_cache_is_named_or_switched_off_and_never_forgotten() {
        let config = |url: &str| config(&["--brokers", "b:9092", "--redis", url]);
        assert!(self::config(&[]).unwrap_err().contains("--redis (TALLY_REDIS): missing"));
        let one = config("redis://:canary@cache:6379").unwrap();
        assert!(!format!("{one:?}").contains("canary"));
        assert_eq!(one.cache.map(|cache| (cache.nodes.len(), cache.cluster)), Some((1, false)));
        let many = config("redis://a:1, redis://b:1").unwrap();
        assert_eq!(many.cache.map(|cache| (cache.nodes.len(), cache.cluster)), Some((2, true)));
        for bad in ["cache:6379", "redis://", "redis://cache:99999", "redis://a:1,", "rediss://:6379"] {
            assert!(config(bad).unwrap_err().contains("--redis"), "{bad}");
        }
    }

    #[test]
    fn every_bad_setting_is_named_at_once() {
        let error = config(&["--concurrency", "0", "--lease", "10ms", "--discover", "0", "--poll-idle", "11s"]);
        let error = error.unwrap_err();
        for flag in ["--redis", "--brokers", "--concurrency", "--lease", "--discover", "--poll-idle"] {
            assert!(error.contains(flag), "{flag}: {error}");
        }
    }

    #[test]
    fn kafka_is_logged_in_to_as_it_is_told() {
        let login = ["--sasl", "plain", "--sasl-user", "u", "--sasl-password", "canary"];
        let config = with(&login).unwrap();
        assert_eq!(config.kafka.option("sasl.mechanism"), Some("PLAIN"));
        assert!(!format!("{config:?}").contains("canary"));
        assert!(with(&["--sasl-user", "u"]).unwrap_err().contains("--sasl-user"));
    }

    #[test]
    fn regions_are_named_and_none_is_read_twice_or_is_this_one() {
        assert_eq!(with(&[]).unwrap().settings.regions, None);
        let rules =
            with(&["--region-name", "eu", "--remote", "us=us.counts,ap=ap.counts"]).unwrap().settings.regions.unwrap();
        assert_eq!((rules.name.as_str(), rules.topic.as_str(), rules.usual.as_str()), ("eu", "counts", "likes"));
        let remotes: Vec<_> = rules.remotes.iter().map(|(name, topic)| (name.as_str(), topic.as_str())).collect();
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

    #[test]
    fn without_leases_every_worker_reads_everything() {
        assert_eq!(with(&["--no-leases"]).unwrap().settings.rules.lease, None);
    }
}
