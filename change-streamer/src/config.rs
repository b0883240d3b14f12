//! The arguments, validated together.

use std::time::Duration;

use tally_adapters::kafka::{self, KafkaArgs};
use tally_adapters::redis;
use tally_core::ids::ShardCount;
use tally_core::milestone::Ladder;
use tally_core::tally::CutRules;
use tally_core::window::CaptureLimits;
use tally_service::{Invalid, Secret};

use crate::args::Args;
use crate::reader::PollRules;

/// The most users touched that one window keeps in memory; a run with more is repeated in a quieter hour.
const WINDOW_MEMBERS: usize = 500_000;

/// The first wait after a page with few records.
const POLL_BUSY: Duration = Duration::from_millis(25);

/// The longest wait between two reads: what counters include is known no better than that.
const POLL_IDLE_MOST: Duration = Duration::from_secs(10);

/// A streamer's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// What every table's name begins with.
    pub table_prefix: String,
    /// The number of shards this process was told the deployment has.
    pub shards: Option<ShardCount>,
    /// The cache, unless it was switched off.
    pub cache: Option<CacheAddress>,
    /// The change feed, if there is one.
    pub feed: Option<FeedConfig>,
    /// The ledger of changes, if there is one.
    pub changes: Option<FeedConfig>,
    /// How the stream is followed.
    pub rules: Rules,
}

/// Where the cache is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheAddress {
    /// One URL, or several nodes of a cluster.
    pub nodes: Vec<Secret>,
    /// Whether it is in cluster mode.
    pub cluster: bool,
}

/// Where new counts or changes are published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedConfig {
    /// How Kafka is reached.
    pub kafka: kafka::Settings,
    /// The topic.
    pub topic: String,
}

/// How the stream is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// When a prefix is written.
    pub cut: CutRules,
    /// Updates under way at once.
    pub concurrency: usize,
    /// The waits between reads.
    pub poll: PollRules,
    /// How often shards are listed.
    pub discover: Duration,
    /// How long a lease may stand still; `None`: no leases, every worker reads everything.
    pub lease: Option<Duration>,
    /// When a recount's window is given up.
    pub window: CaptureLimits,
    /// The thresholds of milestones; an empty ladder takes what the deployment has.
    pub milestones: Ladder,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            cut: CutRules { records: 4000, age: Duration::from_millis(100) },
            concurrency: 64,
            poll: PollRules { busy: POLL_BUSY, idle: Duration::from_secs(1) },
            discover: Duration::from_secs(30),
            lease: Some(Duration::from_secs(6)),
            window: CaptureLimits { members: WINDOW_MEMBERS, age: Duration::from_secs(3600) },
            milestones: Ladder::default(),
        }
    }
}

impl Config {
    /// Without a cache, a feed and a ledger of changes of its own: for ports that are given.
    pub fn plain(table_prefix: &str, shards: Option<ShardCount>, rules: Rules) -> Self {
        Self { table_prefix: table_prefix.to_owned(), shards, cache: None, feed: None, changes: None, rules }
    }
}

impl TryFrom<Args> for Config {
    type Error = Invalid;

    fn try_from(args: Args) -> Result<Self, Invalid> {
        let mut invalid = Invalid::none();
        let cache = invalid.require("redis", args.redis.as_ref()).map(|redis| cache(redis, args.redis_cluster));
        invalid.ensure("flush-records", args.flush_records >= 1, "must be at least 1");
        invalid.ensure("concurrency", args.concurrency >= 1, "must be at least 1");
        let idle = Duration::from_millis(1)..=POLL_IDLE_MOST;
        invalid.ensure("poll-idle", idle.contains(&args.poll_idle), "must be between 1ms and 10s");
        let second = Duration::from_secs(1);
        invalid.ensure("discover", args.discover >= second, "must be at least 1s: the service limits listings");
        invalid.ensure("lease", args.lease >= second, "must be at least 1s");
        invalid.ensure("window-limit", !args.window_limit.is_zero(), "must be more than nothing");
        let milestones = args.milestones.map(|told| told.parse::<Ladder>());
        let milestones = milestones.and_then(|parsed| invalid.accept("milestones", parsed));
        let kafka = args.kafka.clone();
        let feed = feed("counts", args.counts_topic, kafka).map_err(|other| invalid.extend(other)).ok().flatten();
        let changes = match self::feed("changes", args.changes_topic, args.kafka) {
            Ok(changes) => changes,
            // What is wrong with Kafka's settings is said once.
            Err(_) if !invalid.is_empty() && feed.is_none() => None,
            Err(other) => {
                invalid.extend(other);
                None
            }
        };
        let rules = Rules {
            cut: CutRules { records: args.flush_records, age: args.linger },
            concurrency: args.concurrency,
            poll: PollRules { busy: POLL_BUSY, idle: args.poll_idle },
            discover: args.discover,
            lease: (!args.no_leases).then_some(args.lease),
            window: CaptureLimits { members: WINDOW_MEMBERS, age: args.window_limit },
            milestones: milestones.unwrap_or_default(),
        };
        match cache {
            Some(Ok(cache)) if invalid.is_empty() => Ok(Self {
                table_prefix: args.store.table_prefix,
                shards: args.store.shards,
                cache,
                feed,
                changes,
                rules,
            }),
            Some(Err(problem)) => {
                invalid.add("redis", problem);
                Err(invalid)
            }
            _ => Err(invalid),
        }
    }
}

/// Where new counts or changes are published, if they are. What is said of Kafka alone publishes nothing, and is not looked at: all
/// processes may share one environment.
fn feed(of: &str, topic: Option<String>, kafka: KafkaArgs) -> Result<Option<FeedConfig>, Invalid> {
    let Some(topic) = topic else { return Ok(None) };
    let kafka = kafka.optional()?;
    let kafka = kafka.ok_or_else(|| Invalid::setting("brokers", format!("missing, and --{of}-topic needs it")))?;
    Ok(Some(FeedConfig { kafka, topic }))
}

/// The cache's address, or none where it is switched off.
fn cache(address: &Secret, cluster: bool) -> Result<Option<CacheAddress>, &'static str> {
    if address.expose() == "off" {
        return Ok(None);
    }
    let nodes: Vec<Secret> = address.expose().split(',').map(|url| Secret::from(url.trim().to_owned())).collect();
    if nodes.iter().any(|node| redis::check_node(node.expose()).is_err()) {
        return Err("write redis://HOST:PORT, rediss://HOST:PORT, or `off`");
    }
    let cluster = cluster || nodes.len() > 1;
    Ok(Some(CacheAddress { nodes, cluster }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn config(args: &[&str]) -> Result<Config, String> {
        let args = Args::try_parse_from(std::iter::once(&"tally-change-streamer").chain(args));
        Config::try_from(args.map_err(|error| error.to_string())?).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn the_documented_defaults_are_the_rules_of_a_process_that_is_told_nothing() {
        let config = config(&["--redis", "off"]).unwrap();
        assert_eq!((config.rules, config.cache, config.feed), (Rules::default(), None, None));
    }

    #[test]
    fn a_ladder_is_taken_as_it_is_told_and_a_bad_one_refused_by_name() {
        let told = |text: &str| config(&["--redis", "off", "--milestones", text]).map(|config| config.rules.milestones);
        for text in ["100,1000", "every:1000000"] {
            assert_eq!(told(text).unwrap().to_string(), text);
        }
        for text in ["0", "=-1", "1.5", "1000,100", "every:0", "x", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"] {
            let text = text.trim_start_matches('=');
            let error = config(&["--redis", "off", &format!("--milestones={text}")]).unwrap_err();
            assert!(error.contains("--milestones (TALLY_MILESTONES)"), "{text}: {error}");
        }
    }

    #[test]
    fn a_cache_is_named_or_switched_off_and_never_forgotten() {
        assert!(config(&[]).unwrap_err().contains("--redis (TALLY_REDIS): missing"));
        let one = config(&["--redis", "redis://:canary@cache:6379"]).unwrap();
        assert!(!format!("{one:?}").contains("canary"));
        assert_eq!(one.cache.map(|cache| (cache.nodes.len(), cache.cluster)), Some((1, false)));
        let many = config(&["--redis", "redis://a:1, redis://b:1"]).unwrap();
        assert_eq!(many.cache.map(|cache| (cache.nodes.len(), cache.cluster)), Some((2, true)));
        for bad in ["cache:6379", "redis://", "redis://cache:99999", "redis://a:1,", "rediss://:6379"] {
            assert!(config(&["--redis", bad]).unwrap_err().contains("--redis"), "{bad}");
        }
    }

    #[test]
    fn every_bad_setting_is_named_at_once() {
        let error = config(&[
            "--counts-topic",
            "counts",
            "--concurrency",
            "0",
            "--lease",
            "10ms",
            "--discover",
            "0",
            "--poll-idle",
            "11s",
        ]);
        let error = error.unwrap_err();
        for flag in ["--redis", "--brokers", "--concurrency", "--lease", "--discover", "--poll-idle"] {
            assert!(error.contains(flag), "{flag}: {error}");
        }
    }

    #[test]
    fn a_feed_has_a_topic_and_brokers_and_logs_in_to_them() {
        let feed = |args: &[&str]| config(&[&["--redis", "off"], args].concat()).map(|config| config.feed);
        assert_eq!(feed(&["--brokers", "b:9092"]), Ok(None));
        assert_eq!(feed(&["--sasl-user", "u"]), Ok(None));
        assert!(feed(&["--counts-topic", "counts"]).unwrap_err().contains("--counts-topic needs it"));
        assert!(feed(&["--counts-topic", "counts", "--sasl-user", "u"]).unwrap_err().contains("--sasl-user"));
        let login = ["--sasl", "plain", "--sasl-user", "u", "--sasl-password", "canary"];
        let feed = feed(&[&["--brokers", "b:9092", "--counts-topic", "counts"], &login[..]].concat()).unwrap().unwrap();
        assert_eq!((feed.topic.as_str(), feed.kafka.brokers.as_str()), ("counts", "b:9092"));
        assert!(matches!(feed.kafka.security.sasl, Some(kafka::Sasl::Plain(_))));
        assert!(!format!("{feed:?}").contains("canary"));
    }

    #[test]
    fn without_leases_every_worker_reads_everything() {
        assert_eq!(config(&["--redis", "off", "--no-leases"]).unwrap().rules.lease, None);
    }
}
