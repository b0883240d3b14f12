//! The command line and the environment, as written; what they mean together is the configuration's.

use clap::{Parser, ValueEnum};
use tally_adapters::kafka::{self, KafkaArgs};
use tally_service::{CommonArgs, Secret, StoreArgs};

use crate::config::Rules;

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

    /// Totals at which the first to reach them is recorded, upwards and at most 16, or `every:N`; never fewer than the
    /// deployment has, which is what a process that is told none takes
    #[arg(long, env = "TALLY_MILESTONES", value_name = "LADDER", help_heading = "Log")]
    pub milestones: Option<String>,
}

/// What a process does.
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
