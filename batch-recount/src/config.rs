//! The arguments, validated together.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

use tally_adapters::kafka;
use tally_core::audit::AuditRun;
use tally_core::ids::{PostId, ShardCount, UserId};
use tally_core::time::UnixMillis;
use tally_service::{Invalid, parse_duration};

use crate::args::{Args, Command, EraseArgs};
use crate::settle::Rules;

/// A recount's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What every table's name begins with.
    pub table_prefix: String,
    /// The number of shards this process was told the deployment has.
    pub shards: Option<ShardCount>,
    /// How Kafka is reached; `None` where nothing is written to it, or the ports are given.
    pub kafka: Option<kafka::Settings>,
    pub job: Job,
}

/// What the process is for.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// Compare counts with rows.
    Recount(RecountConfig),
    /// Produce unlikes.
    Erase(EraseConfig),
}

/// What to recount, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct RecountConfig {
    pub scope: Scope,
    pub rules: Rules,
    /// The topic of the log of changes.
    pub topic: String,
}

/// What to recount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every row key and every total.
    Audit,
    /// The same, as a part of this run.
    Resume(AuditRun),
    /// These counters of these posts, by their names; with none all of them.
    Posts { posts: Vec<PostId>, counters: Vec<String> },
    /// Posts whose counts have changed since.
    Since(Since),
    /// What is in the queue now.
    Queue,
    /// What comes into the queue, until stopped.
    Watch,
}

/// A time in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    Ago(Duration),
    At(UnixMillis),
}

/// What to erase.
#[derive(Clone, Debug, PartialEq)]
pub struct EraseConfig {
    /// The user or the post.
    pub subject: Subject,
    /// The sets to erase from, by their names; with none all of them.
    pub counters: Vec<String>,
    /// Where events go.
    pub topic: String,
    /// Read units a second.
    pub read_units: Option<u32>,
}

/// Whose likes are erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All that these users gave.
    Users(BTreeSet<UserId>),
    /// All that this post got.
    Post(PostId),
}

impl Config {
    /// A recount without a Kafka of its own: for ports that are given.
    pub fn plain(table_prefix: &str, shards: Option<ShardCount>, scope: Scope, rules: Rules) -> Self {
        let job = Job::Recount(RecountConfig { scope, rules, topic: "changes".to_owned() });
        Self { table_prefix: table_prefix.to_owned(), shards, kafka: None, job }
    }
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() > 9 {
            return text.parse().map(|at| Self::At(UnixMillis(at))).map_err(|_| "too late a time".to_owned());
        }
        parse_duration(text).map(Self::Ago).map_err(|error| error.to_string())
    }
}

impl Since {
    /// The time meant, seen from `now`.
    pub fn before(self, now: UnixMillis) -> UnixMillis {
        match self {
            Self::Ago(span) => now.minus(span),
            Self::At(at) => at,
        }
    }
}

impl TryFrom<Args> for Config {
    type Error = Invalid;

    fn try_from(args: Args) -> Result<Self, Invalid> {
        let (table_prefix, shards) = (args.store.table_prefix.clone(), args.store.shards);
        let (kafka, job) = match args.command {
            Some(Command::Erase(erase)) => erasure(erase)?,
            None => recount(args)?,
        };
        Ok(Self { table_prefix, shards, kafka, job })
    }
}

fn recount(args: Args) -> Result<(Option<kafka::Settings>, Job), Invalid> {
    let mut invalid = Invalid::none();
    invalid.ensure("read-units-per-second", args.read_units_per_second != Some(0), "must be at least 1");
    let kafka = kafka::Settings::try_from(args.kafka).map_err(|others| invalid.extend(others)).ok();
    let scope = match (args.resume, args.since) {
        (Some(run), _) => Scope::Resume(run),
        _ if !args.post.is_empty() => Scope::Posts { posts: distinct(args.post), counters: distinct(args.counter) },
        (_, Some(since)) => Scope::Since(since),
        _ if args.candidates_only => Scope::Queue,
        _ if args.watch => Scope::Watch,
        _ => Scope::Audit,
    };
    let (dry_run, force, read_units) = (args.dry_run, args.force, args.read_units_per_second);
    let rules = Rules { dry_run, force, read_units, ..Rules::default() };
    let job = Job::Recount(RecountConfig { scope, rules, topic: args.changes_topic });
    if invalid.is_empty() { Ok((kafka, job)) } else { Err(invalid) }
}

fn erasure(args: EraseArgs) -> Result<(Option<kafka::Settings>, Job), Invalid> {
    let subject = match (args.user, args.post) {
        (Some(user), None) => Subject::Users([user].into()),
        (None, Some(post)) => Subject::Post(post),
        _ => return Err(Invalid::setting("user", "give either --user or --post")),
    };
    if args.read_units_per_second == Some(0) {
        return Err(Invalid::setting("read-units-per-second", "must be at least 1"));
    }
    let missing = || Invalid::setting("brokers", "missing, and only --dry-run does without");
    let kafka = if args.dry_run { None } else { Some(args.kafka.optional()?.ok_or_else(missing)?) };
    let (counters, read_units) = (distinct(args.counter), args.read_units_per_second);
    Ok((kafka, Job::Erase(EraseConfig { subject, counters, topic: args.topic, read_units })))
}

fn distinct<T: Ord>(mut named: Vec<T>) -> Vec<T> {
    named.sort_unstable();
    named.dedup();
    named
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn config(args: &[&str]) -> Result<Config, String> {
        let args = Args::try_parse_from(std::iter::once(&"tally-batch-recount").chain(args));
        Config::try_from(args.map_err(|error| error.to_string())?).map_err(|invalid| invalid.to_string())
    }

    fn scope(args: &[&str]) -> Scope {
        match config(&[&["--brokers", "b:9092"], args].concat()).unwrap().job {
            Job::Recount(recount) => recount.scope,
            Job::Erase(erase) => panic!("{erase:?}"),
        }
    }

    #[test]
    fn without_a_mode_everything_is_audited_by_the_default_rules() {
        let kafka = Some(kafka::Settings::plaintext("b:9092"));
        let expected = Config { kafka, ..Config::plain("", None, Scope::Audit, Rules::default()) };
        assert_eq!(config(&["--brokers", "b:9092"]), Ok(expected));
    }

    #[test]
    fn each_mode_is_its_flag_and_two_exclude_each_other() {
        let post = |id: &str| PostId::new(id).unwrap();
        let posts = |counters: &[&str]| Scope::Posts {
            posts: vec![post("a"), post("b")],
            counters: counters.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(scope(&["--post", "b", "--post", "a", "--post", "b"]), posts(&[]));
        let named = ["--post", "b", "--post", "a", "--counter", "views", "--counter", "likes", "--counter", "views"];
        assert_eq!(scope(&named), posts(&["likes", "views"]));
        assert_eq!(scope(&["--candidates-only"]), Scope::Queue);
        assert_eq!(scope(&["--watch"]), Scope::Watch);
        assert_eq!(scope(&["--resume", &"0".repeat(32)]), Scope::Resume(0.into()));
        assert_eq!(scope(&["--since", "1700000000000"]), Scope::Since(Since::At(UnixMillis(1_700_000_000_000))));
        assert_eq!(scope(&["--since", "2h"]), Scope::Since(Since::Ago(Duration::from_secs(7200))));
        let day = Since::Ago(Duration::from_millis(5));
        assert_eq!(day.before(UnixMillis(12)), UnixMillis(7));
        for two in [["--post=a", "--watch"], ["--watch", "--dry-run"], ["--candidates-only", "--since=1h"]] {
            assert!(config(&two).is_err(), "{two:?}");
        }
    }

    #[test]
    fn every_bad_setting_is_named() {
        let error = config(&["--read-units-per-second", "0"]).unwrap_err();
        assert!(error.contains("--brokers") && error.contains("--read-units-per-second"), "{error}");
        assert!(config(&["--brokers", "b:9092", "--changes-topic", "a b"]).unwrap_err().contains("--changes-topic"));
        assert!(config(&["--since", "yesterday"]).unwrap_err().contains("--since"));
        assert!(config(&["--resume", "12"]).unwrap_err().contains("--resume"));
    }

    #[test]
    fn an_erasure_names_its_subject_and_where_events_go() {
        let erase = |args: &[&str]| config(&[&["erase"], args].concat());
        assert!(erase(&[]).is_err());
        assert!(erase(&["--user", "u", "--post", "p"]).is_err());
        assert!(erase(&["--user", "u"]).unwrap_err().contains("--brokers"));
        let dry = erase(&["--user", "u", "--dry-run", "--table-prefix", "x", "--tls"]).unwrap();
        assert!(
            matches!(dry, Config { kafka: None, job: Job::Erase(EraseConfig { topic, .. }), .. } if topic == "likes")
        );
        let told = ["--post", "p", "--brokers", "b:9092"];
        assert!(erase(&told).is_ok());
        let login = ["--sasl", "plain", "--sasl-user", "u", "--sasl-password", "p"];
        let logged_in = erase(&[&told, &login[..]].concat()).unwrap();
        assert!(matches!(logged_in.kafka.unwrap().security.sasl, Some(kafka::Sasl::Plain(_))));
        assert!(erase(&[&told, &login[..2]].concat()).unwrap_err().contains("--sasl-user"));
    }
}
