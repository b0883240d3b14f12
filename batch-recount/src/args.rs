//! The command line and the environment, as written; what they mean together is the configuration's.

use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};
use tally_adapters::kafka::{self, KafkaArgs};
use tally_core::audit::AuditRun;
use tally_core::ids::{PostId, UserId};
use tally_service::{CommonArgs, StoreArgs, parse_duration};

use crate::config::Since;

/// Compares every count with its rows, exactly and while both change, and repairs what differs
///
/// Without a mode everything is audited: rows and counts are scanned and compared, and each count that differs, or that
/// the comparison cannot prove, is recounted exactly. Exits with 0 if nothing differed or all of it was repaired, with 1
/// if drift is left, with 69 if there was no answer. Only --watch opens the admin listener.
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-batch-recount", version, subcommand_negates_reqs = true)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9095")))]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers of the log of changes, HOST:PORT separated by commas; required")))]
#[command(mut_args(|arg| if SHARED.contains(&arg.get_id().as_str()) { arg.global(true) } else { arg }))]
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

    /// Run until stopped: audits while a loss is open or one was asked for, and row keys that were queued, as they come
    #[arg(long, env = "TALLY_WATCH", help_heading = "Mode", conflicts_with_all = ["resume", "dry_run"])]
    pub watch: bool,

    /// Continue this audit, whose process is dead
    #[arg(long, value_name = "RUN", help_heading = "Mode")]
    pub resume: Option<AuditRun>,

    /// Find and report what differs, and write nothing to rows and counts
    #[arg(long, help_heading = "Mode")]
    pub dry_run: bool,

    /// Also make large corrections: those of at least 1000 likes that are at least 10 % of a row key's count or rows.
    /// Without it they are reported and withheld, unless a loss is open
    #[arg(long, env = "TALLY_FORCE", help_heading = "Mode")]
    pub force: bool,

    /// How long to wait for tables or Kafka that do not answer, before exiting with 69; --watch waits for as long as it takes
    #[arg(long, env = "TALLY_PATIENCE", default_value = "5m", value_parser = parse_duration, value_name = "SPAN", help_heading = "Pace")]
    pub patience: Duration,

    /// Read units a second at most; a throttled store slows it down in any case
    #[arg(long, env = "TALLY_READ_UNITS_PER_SECOND", value_name = "UNITS", help_heading = "Pace")]
    pub read_units_per_second: Option<u32>,

    /// The topic of the log of changes
    #[arg(long, env = "TALLY_CHANGES_TOPIC", default_value = "changes", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Kafka")]
    pub changes_topic: String,

    #[command(flatten)]
    pub kafka: KafkaArgs,

    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The arguments that a subcommand takes, too.
const SHARED: [&str; 8] =
    ["patience", "check", "log_format", "log", "shutdown_grace", "admin_listen", "table_prefix", "shards"];

/// What else the binary does.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Take a user out of every set, or every member out of a post's sets, by producing unlikes and what takes others back:
    /// rows, counts and followers agree, and the consumer stays the only writer of rows. Exits with 1 where there are members
    /// that no action takes back
    Erase(EraseArgs),
}

/// What to erase, and where events go.
#[derive(ClapArgs, Clone, Debug)]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, HOST:PORT separated by commas; required unless --dry-run")))]
pub struct EraseArgs {
    /// Erase this user's rows of every counter that has users as members, likes and retweets among them: reads the
    /// whole table
    #[arg(long, value_name = "ID", required_unless_present = "post", conflicts_with = "post")]
    pub user: Option<UserId>,

    /// Erase every like of this post, and the members of its other sets
    #[arg(long, value_name = "ID")]
    pub post: Option<PostId>,

    /// Erase from this set alone, by its name; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub counter: Vec<String>,

    /// Count what would be erased, and produce nothing
    #[arg(long)]
    pub dry_run: bool,

    /// The topic of likes, and of each counter whose definition names no other
    #[arg(long, env = "TALLY_TOPIC", default_value = "likes", value_parser = kafka::topic, value_name = "TOPIC")]
    pub topic: String,

    /// Read units a second at most
    #[arg(long, env = "TALLY_READ_UNITS_PER_SECOND", value_name = "UNITS")]
    pub read_units_per_second: Option<u32>,

    #[command(flatten)]
    pub kafka: KafkaArgs,
}

impl AsRef<CommonArgs> for Args {
    fn as_ref(&self) -> &CommonArgs {
        &self.common
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_is_the_reference() {
        insta::assert_snapshot!(tally_service::reference::<Args>());
        assert_eq!(tally_service::unlisted::<Args>(), [""; 0], "the list of all programs' variables is service's");
    }

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }
}
