//! The command line and the environment, as written; what they mean together is the configuration's.

use std::time::Duration;

use clap::Parser;
use tally_adapters::kafka::{self, KafkaArgs};
use tally_service::{CommonArgs, Secret, StoreArgs, parse_duration};

/// Follows the stream of like rows and keeps the counts, and the cache, right
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-change-streamer", version)]
#[command(mut_arg("admin_listen", |arg| arg.default_value("127.0.0.1:9094")))]
#[command(mut_arg("brokers", |arg| arg.help("Bootstrap servers, HOST:PORT separated by commas, for --counts-topic and --changes-topic")))]
pub struct Args {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub kafka: KafkaArgs,

    /// The cache to keep right: `redis://host:port`, `rediss://` with TLS, several nodes of a cluster separated by
    /// commas, or `off`; required
    #[arg(long, env = "TALLY_REDIS", hide_env_values = true, value_name = "URL", help_heading = "Cache and feed")]
    pub redis: Option<Secret>,

    /// The cache is in cluster mode, also where one address is given
    #[arg(long, env = "TALLY_REDIS_CLUSTER", help_heading = "Cache and feed")]
    pub redis_cluster: bool,

    /// Publish new counts to this topic, keyed by post: a hint, of which a crash can lose some
    #[arg(long, env = "TALLY_COUNTS_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Cache and feed")]
    pub counts_topic: Option<String>,

    /// Write every change to this topic, the deployment's ledger of changes; every streamer has to, once one does
    #[arg(long, env = "TALLY_CHANGES_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Cache and feed")]
    pub changes_topic: Option<String>,

    /// How long change records are gathered before they are written
    #[arg(long, env = "TALLY_LINGER", default_value = "100ms", value_parser = parse_duration, value_name = "SPAN", help_heading = "Stream")]
    pub linger: Duration,

    /// How many change records of one stream shard are written at once at most
    #[arg(long, env = "TALLY_FLUSH_RECORDS", default_value_t = 4000, value_name = "COUNT", help_heading = "Stream")]
    pub flush_records: usize,

    /// How many counter updates are under way at once at most
    #[arg(long, env = "TALLY_CONCURRENCY", default_value_t = 64, value_name = "COUNT", help_heading = "Stream")]
    pub concurrency: usize,

    /// How often an idle stream shard is read, at most 10s: what idling costs, and how long its first record may wait
    #[arg(long, env = "TALLY_POLL_IDLE", default_value = "1s", value_parser = parse_duration, value_name = "SPAN", help_heading = "Stream")]
    pub poll_idle: Duration,

    /// How often the stream's shards are listed; children of a shard read here are found at once
    #[arg(long, env = "TALLY_DISCOVER", default_value = "30s", value_parser = parse_duration, value_name = "SPAN", help_heading = "Stream")]
    pub discover: Duration,

    /// How long a lease may stand still before another worker takes it over; it is renewed at least three times as often
    #[arg(long, env = "TALLY_LEASE", default_value = "6s", value_parser = parse_duration, value_name = "SPAN", help_heading = "Stream")]
    pub lease: Duration,

    /// Read every stream shard, also those of other workers: right, and as often as there are workers
    #[arg(long, env = "TALLY_NO_LEASES", help_heading = "Stream")]
    pub no_leases: bool,

    /// Totals at which the first to reach them is recorded, upwards and at most 16, or `every:N`; never fewer than the
    /// deployment has, which is what a process that is told none takes
    #[arg(long, env = "TALLY_MILESTONES", value_name = "LADDER", help_heading = "Stream")]
    pub milestones: Option<String>,

    /// How long a recount's window may stay open
    #[arg(long, env = "TALLY_WINDOW_LIMIT", default_value = "60m", value_parser = parse_duration, value_name = "SPAN", help_heading = "Stream")]
    pub window_limit: Duration,
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
