//! The recount's arguments, which are its configuration.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use tally_adapters::kafka::{ChangesTopic, KafkaArgs};
use tally_core::audit::AuditRun;
use tally_core::ids::PostId;
use tally_core::time::UnixMillis;
use tally_service::{Arguments, CommonArgs, Invalid, Listen, StoreArgs, parse_duration};

use crate::settle::Rules;

/// Compares every count with its rows, exactly and while both change, and repairs what differs
///
/// Without a mode everything is audited: rows and counts are scanned and compared, and each count that differs, or that
/// the comparison cannot prove, is recounted exactly. Exits with 0 if nothing differed or all of it was repaired, with
/// 1 if drift is left, with 69 if there was no answer. Only --watch opens the admin listener.
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-batch-recount", version)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9095")))]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers of the log of changes, HOST:PORT separated by commas; required")))]
pub struct Args {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub store: StoreArgs,

    /// Recount this post, every shard of each of its counters; may be given more than once
    #[arg(long, value_name = "ID", help_heading = "Mode", conflicts_with_all = ["since", "candidates_only", "watch", "resume"])]
    pub post: Vec<PostId>,

    /// Of the posts given, recount this counter alone, by its name; may be given more than once
    #[arg(long, value_name = "NAME", help_heading = "Mode", requires = "post")]
    pub counter: Vec<String>,

    /// Look only at posts whose counts have changed since: a span such as 24h, or milliseconds since 1970
    #[arg(long, value_name = "WHEN", help_heading = "Mode", conflicts_with_all = ["candidates_only", "watch", "resume"])]
    pub since: Option<Since>,

    /// Recount only what is queued: counts below zero or in doubt, what was asked for, and what was left; no audit
    #[arg(long, help_heading = "Mode", conflicts_with_all = ["watch", "resume"])]
    pub candidates_only: bool,

    /// Run until stopped: audit while a loss is open or an audit was asked for, and recount row keys as they are queued
    #[arg(long, env = "TALLY_WATCH", help_heading = "Mode", conflicts_with_all = ["resume", "dry_run"])]
    pub watch: bool,

    /// Continue this audit, whose process is dead
    #[arg(long, value_name = "RUN", help_heading = "Mode")]
    pub resume: Option<AuditRun>,

    #[command(flatten)]
    pub rules: Rules,

    /// How long to wait for tables or Kafka that do not answer, before exiting with 69; --watch waits for as long as it
    /// takes
    #[arg(long, env = "TALLY_PATIENCE", default_value = "5m", value_parser = parse_duration, value_name = "SPAN", help_heading = "Pace")]
    pub patience: Duration,

    #[command(flatten)]
    pub changes: ChangesTopic,

    #[command(flatten)]
    pub kafka: KafkaArgs,
}

/// What a run recounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every row key and every total.
    Audit,
    /// Every row key and every total, in continuation of this run.
    Resume(AuditRun),
    /// These counters of these posts, by their names; all counters if none is named.
    Posts { posts: Vec<PostId>, counters: Vec<String> },
    /// Posts whose counts have changed since.
    Since(Since),
    /// The row keys that are queued now.
    Queue,
    /// The row keys that are queued, as they come, and audits as they become due.
    Watch,
}

/// A time in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    Ago(Duration),
    At(UnixMillis),
}

impl Arguments for Args {
    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn check(&self) -> Invalid {
        let mut invalid = Invalid::none();
        invalid.gather(self.kafka.settings());
        invalid
    }

    /// A process that watches is a service, and waits for as long as it takes.
    fn patience(&self) -> Option<Duration> {
        (!self.watch).then_some(self.patience)
    }

    /// Only a process that stays has something to show.
    fn admin_listen(&self) -> Listen {
        if self.watch { self.common.admin_listen } else { Listen::Off }
    }
}

impl Args {
    /// Returns what is recounted.
    pub fn scope(&self) -> Scope {
        match (self.resume, self.since) {
            (Some(run), _) => Scope::Resume(run),
            _ if !self.post.is_empty() => {
                Scope::Posts { posts: distinct(&self.post), counters: distinct(&self.counter) }
            }
            (_, Some(since)) => Scope::Since(since),
            _ if self.candidates_only => Scope::Queue,
            _ if self.watch => Scope::Watch,
            _ => Scope::Audit,
        }
    }
}

fn distinct<T: Clone + Ord>(named: &[T]) -> Vec<T> {
    named.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect()
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
    /// Returns the time that is meant if it is `now`.
    pub fn before(self, now: UnixMillis) -> UnixMillis {
        match self {
            Self::Ago(span) => now.minus(span),
            Self::At(at) => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_the_reference() {
        insta::assert_snapshot!(tally_service::reference::<Args>());
    }

    fn scope(args: &[&str]) -> Scope {
        Args::checked(&[&["--brokers", "b:9092"], args].concat()).unwrap().scope()
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
            let said = Args::checked(&[&["--brokers", "b:9092"], &two[..]].concat()).unwrap_err();
            assert!(said.contains(": contradicts --"), "{two:?}: {said}");
        }
    }

    #[test]
    fn every_bad_setting_is_named() {
        let error = Args::checked(&["--read-units-per-second", "0"]).unwrap_err();
        assert!(error.contains("--brokers") && error.contains("--read-units-per-second"), "{error}");
        for [flag, value] in [["--changes-topic", "a b"], ["--since", "yesterday"], ["--resume", "12"]] {
            assert!(Args::checked(&["--brokers", "b:9092", flag, value]).unwrap_err().contains(flag));
        }
    }
}
