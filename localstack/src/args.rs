//! The command line and the environment, as written; what they mean together is the configuration's.

use std::time::Duration;

use clap::Parser;
use tally_core::spread::SumPolicy;
use tally_emulator::Latency;
use tally_service::{CommonArgs, Secret, StoreArgs, parse_duration};

/// Runs the whole pipeline on this machine, in one process: engines, services, a load, and a page to watch it
///
/// Exits with 0 when stopped or through, with 1 if --verify found a difference, with 78 if the configuration cannot be
/// run, a port that is taken included.
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-localstack", version)]
#[command(mut_arg("log", |arg| arg.default_value("warn,aws_smithy_runtime=off")))]
#[command(mut_arg("shutdown_grace", |arg| arg.default_value("4s")))]
pub struct Args {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub store: StoreArgs,

    /// Run no load: likes come from people alone
    #[arg(long, env = "TALLY_NO_LOAD", help_heading = "Load")]
    pub no_load: bool,

    /// Events a second to aim at, most of them likes and unlikes; the load makes fewer where it is held back or has no more
    /// to give
    #[arg(long, env = "TALLY_RATE", default_value_t = 500, value_name = "COUNT", help_heading = "Load")]
    pub rate: u32,

    /// Posts that the load is about
    #[arg(long, env = "TALLY_POSTS", default_value_t = 100, value_name = "COUNT", help_heading = "Load")]
    pub posts: u32,

    /// Users of the load; a user likes a post at most once and retweets it at most once, so there are at most posts times users
    /// rows of each
    #[arg(long, env = "TALLY_USERS", default_value_t = 1000, value_name = "COUNT", help_heading = "Load")]
    pub users: u32,

    /// Share of the likes, retweets and replies that are taken back: 0 to 1
    #[arg(long, env = "TALLY_UNLIKE_RATIO", default_value_t = 0.3, value_name = "SHARE", help_heading = "Load")]
    pub unlike_ratio: f64,

    /// Share of the events that are about the first post: 0 to 1
    #[arg(long, env = "TALLY_HOT_SHARE", default_value_t = 0.1, value_name = "SHARE", help_heading = "Load")]
    pub hot_share: f64,

    /// How views of a busy post are spread over partitions, those over HTTP too: `post` (not at all), `round-robin`, `random` or
    /// `least-lag`
    #[arg(long, env = "TALLY_SUM_POLICY", default_value_t = SumPolicy::Post, value_name = "POLICY", help_heading = "Load")]
    pub sum_policy: SumPolicy,

    /// Totals at which the first to reach them is recorded, for every counter: upwards and at most 16, or `every:N`
    #[arg(long, env = "TALLY_MILESTONES", value_name = "LADDER", help_heading = "Load")]
    pub milestones: Option<String>,

    /// How long the load lasts; the process ends after it. Without it everything runs until Ctrl-C
    #[arg(long, env = "TALLY_DURATION", value_parser = parse_duration, value_name = "SPAN", help_heading = "Load")]
    pub duration: Option<Duration>,

    /// Seed of the load, of chaos and of the embedded DynamoDB
    #[arg(long, env = "TALLY_SEED", default_value_t = 1, value_name = "NUMBER", help_heading = "Load")]
    pub seed: u64,

    /// After the load, wait until everything is counted, compare every row and every count with the load's ledger, and
    /// exit with 1 on any difference
    #[arg(long, env = "TALLY_VERIFY", help_heading = "Load")]
    pub verify: bool,

    /// Make things go wrong under the load: refused, lost and late requests, stream shards that split, services that are
    /// killed
    #[arg(long, env = "TALLY_CHAOS", help_heading = "Load")]
    pub chaos: bool,

    /// Where the embedded Kafka can be bootstrapped from; port 0 is any free one
    #[arg(long, env = "TALLY_KAFKA_PORT", default_value_t = 9092, value_name = "PORT", help_heading = "Engines")]
    pub kafka_port: u16,

    /// Where the embedded DynamoDB listens; port 0 is any free one
    #[arg(long, env = "TALLY_DYNAMODB_PORT", default_value_t = 8000, value_name = "PORT", help_heading = "Engines")]
    pub dynamodb_port: u16,

    /// Where the API and the page listen; port 0 is any free one
    #[arg(long, env = "TALLY_API_PORT", default_value_t = 8080, value_name = "PORT", help_heading = "Engines")]
    pub api_port: u16,

    /// A Kafka to use instead of the embedded one: HOST:PORT, several separated by commas. Has to have the topics
    #[arg(long, env = "TALLY_BROKERS", value_parser = tally_service::text(), value_name = "LIST", help_heading = "Engines")]
    pub brokers: Option<String>,

    /// A DynamoDB to use instead of the embedded one: the URL of an engine that takes any credentials. Missing tables are
    /// created
    #[arg(long, env = "TALLY_DYNAMODB_ENDPOINT", value_parser = tally_service::text(), value_name = "URL", help_heading = "Engines")]
    pub dynamodb_endpoint: Option<String>,

    /// A Redis to use instead of the embedded cache: redis://HOST:PORT
    #[arg(long, env = "TALLY_REDIS", hide_env_values = true, value_name = "URL", help_heading = "Engines")]
    pub redis: Option<Secret>,

    /// How long the embedded DynamoDB keeps records of its stream, which are most of what it has in memory
    #[arg(long, env = "TALLY_STREAM_RETENTION", default_value = "15m", value_parser = parse_duration, value_name = "SPAN", help_heading = "Engines")]
    pub stream_retention: Duration,

    /// A change appears in the embedded DynamoDB's stream at some moment within this bound; at once if absent
    #[arg(long, env = "TALLY_STREAM_DELAY", value_parser = parse_duration, value_name = "SPAN", help_heading = "Engines")]
    pub stream_delay: Option<Duration>,

    /// How long the embedded DynamoDB takes for a transaction, each time within these bounds: 20ms..40ms is what the real one
    /// takes
    #[arg(long, env = "TALLY_STORE_LATENCY", value_name = "SPAN..SPAN", help_heading = "Engines")]
    pub store_latency: Option<Latency>,

    /// How long the embedded DynamoDB takes for a batch, of statements, reads or writes: 8ms..25ms is what the real one takes;
    /// as long as for every other request if absent
    #[arg(long, env = "TALLY_STORE_BATCH_LATENCY", value_name = "SPAN..SPAN", help_heading = "Engines")]
    pub store_batch_latency: Option<Latency>,

    /// How long the embedded DynamoDB takes for every other request: 3ms..8ms is what the real one takes
    #[arg(long, env = "TALLY_STORE_CALL_LATENCY", value_name = "SPAN..SPAN", help_heading = "Engines")]
    pub store_call_latency: Option<Latency>,

    /// Write units that the items of one partition key may use in a second in the embedded DynamoDB; the real one lets each
    /// have 1000
    #[arg(long, env = "TALLY_KEY_WRITE_UNITS", value_parser = clap::value_parser!(u32).range(1..), value_name = "COUNT", help_heading = "Engines")]
    pub key_write_units: Option<u32>,

    /// Read units that the items of one partition key may use in a second in the embedded DynamoDB; the real one lets each
    /// have 3000
    #[arg(long, env = "TALLY_KEY_READ_UNITS", value_parser = clap::value_parser!(u32).range(1..), value_name = "COUNT", help_heading = "Engines")]
    pub key_read_units: Option<u32>,

    /// Without what is trending
    #[arg(long, env = "TALLY_NO_TRENDS", help_heading = "Engines")]
    pub no_trends: bool,

    /// How often everything is recounted; with 0s only when it is asked for
    #[arg(long, env = "TALLY_RECOUNT_EVERY", default_value = "5m", value_parser = parse_duration, value_name = "SPAN", help_heading = "Engines")]
    pub recount_every: Duration,
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
