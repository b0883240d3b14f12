//! The command line and the environment, as written. `config` validates them together.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use tally_adapters::kafka::{self, KafkaArgs};
use tally_core::spread::SumPolicy;
use tally_service::{CommonArgs, Secret, StoreArgs, parse_duration};

/// What brokers are for here.
const BROKERS: &str = "Bootstrap servers, HOST:PORT separated by commas; with them likes and unlikes are taken, without them \
                       those routes are 404";

/// Serves counts of likes over HTTP
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-count-api", version)]
#[command(mut_arg("brokers", |arg| arg.help(BROKERS)))]
pub struct Args {
    #[command(flatten)]
    pub common: CommonArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub kafka: KafkaArgs,

    /// Where the routes are served; port 0 is any free one
    #[arg(long, env = "TALLY_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS", help_heading = "HTTP")]
    pub listen: SocketAddr,

    /// Connections at once; more wait
    #[arg(long, env = "TALLY_CONNECTIONS", default_value_t = 10_000, value_name = "COUNT", help_heading = "HTTP")]
    pub connections: usize,

    /// How long a request's headers may take, and how long a connection may be idle
    #[arg(long, env = "TALLY_HEADER_TIME", default_value = "10s", value_parser = parse_duration, value_name = "SPAN", help_heading = "HTTP")]
    pub header_time: Duration,

    /// How long an answer may wait for its client to read any of it
    #[arg(long, env = "TALLY_UNREAD_TIME", default_value = "30s", value_parser = parse_duration, value_name = "SPAN", help_heading = "HTTP")]
    pub unread_time: Duration,

    /// Requests a second that one client may read with; 0 is any number
    #[arg(long, env = "TALLY_READ_RATE", default_value_t = 0, value_name = "COUNT", help_heading = "HTTP")]
    pub read_rate: u32,

    /// Requests a second that one client may write with; 0 is any number
    #[arg(long, env = "TALLY_WRITE_RATE", default_value_t = 100, value_name = "COUNT", help_heading = "HTTP")]
    pub write_rate: u32,

    /// How many proxies of your own stand in front, each adding to X-Forwarded-For; 0 takes the peer for the client
    #[arg(long, env = "TALLY_FORWARDED_HOPS", default_value_t = 0, value_name = "COUNT", help_heading = "HTTP")]
    pub forwarded_hops: usize,

    /// The origins whose pages may use the routes: scheme and host, separated by commas, or `*`
    #[arg(long, env = "TALLY_CORS_ORIGINS", value_delimiter = ',', value_name = "ORIGIN,..", help_heading = "HTTP")]
    pub cors_origins: Vec<String>,

    /// How long browsers and proxies may keep a count; 0 makes them ask each time
    #[arg(long, env = "TALLY_MAX_AGE", default_value = "1s", value_parser = parse_duration, value_name = "SPAN", help_heading = "HTTP")]
    pub max_age: Duration,

    /// The file with the bearer tokens that reading takes, one a line; without it reading is open. A file that changes is read again
    #[arg(long, env = "TALLY_READ_TOKEN_FILE", value_name = "FILE", help_heading = "HTTP")]
    pub read_token_file: Option<PathBuf>,

    /// The same tokens, themselves. A flag is visible to other users of the machine: prefer the variable or the file
    #[arg(
        long,
        env = "TALLY_READ_TOKEN",
        hide_env_values = true,
        conflicts_with = "read_token_file",
        value_name = "TOKEN",
        help_heading = "HTTP"
    )]
    pub read_token: Option<Secret>,

    /// The file with the bearer tokens that writing takes, one a line; without it writing is closed. A file that changes is read
    /// again
    #[arg(long, env = "TALLY_WRITE_TOKEN_FILE", value_name = "FILE", help_heading = "HTTP")]
    pub write_token_file: Option<PathBuf>,

    /// The same tokens, themselves. A flag is visible to other users of the machine: prefer the variable or the file
    #[arg(
        long,
        env = "TALLY_WRITE_TOKEN",
        hide_env_values = true,
        conflicts_with = "write_token_file",
        value_name = "TOKEN",
        help_heading = "HTTP"
    )]
    pub write_token: Option<Secret>,

    /// Takes writes from any caller, where there is no write token; without either every write is refused with 403
    #[arg(long, env = "TALLY_OPEN_WRITES", help_heading = "HTTP")]
    pub open_writes: bool,

    /// The file with the bearer tokens that createCounter takes, one a line; without it that takes those of writing. A file that
    /// changes is read again
    #[arg(long, env = "TALLY_ADMIN_TOKEN_FILE", value_name = "FILE", help_heading = "HTTP")]
    pub admin_token_file: Option<PathBuf>,

    /// The same tokens, themselves. A flag is visible to other users of the machine: prefer the variable or the file
    #[arg(
        long,
        env = "TALLY_ADMIN_TOKEN",
        hide_env_values = true,
        conflicts_with = "admin_token_file",
        value_name = "TOKEN",
        help_heading = "HTTP"
    )]
    pub admin_token: Option<Secret>,

    /// How long a count stays in this process's memory, a second at most; 0 turns that off
    #[arg(long, env = "TALLY_LOCAL_TTL", default_value = "100ms", value_parser = parse_duration, value_name = "SPAN", help_heading = "Reading")]
    pub local_ttl: Duration,

    /// How many counts stay in this process's memory at most
    #[arg(long, env = "TALLY_LOCAL_POSTS", default_value_t = 100_000, value_name = "COUNT", help_heading = "Reading")]
    pub local_posts: u64,

    /// How old the `as_of` of a count may be that answers call fresh; a count is read again once it is older than half of that
    #[arg(long, env = "TALLY_FRESH_WITHIN", default_value = "10s", value_parser = parse_duration, value_name = "SPAN", help_heading = "Reading")]
    pub fresh_within: Duration,

    /// The shared cache: `redis://host:port`, `rediss://` with TLS, several nodes of a cluster separated by commas; `off`
    /// or an empty value reads the table alone
    #[arg(long, env = "TALLY_REDIS", hide_env_values = true, value_name = "URL", help_heading = "Reading")]
    pub redis: Option<Secret>,

    /// The cache is in cluster mode even if one address is given
    #[arg(long, env = "TALLY_REDIS_CLUSTER", help_heading = "Reading")]
    pub redis_cluster: bool,

    /// How long the cache may take to answer before the table is read
    #[arg(long, env = "TALLY_CACHE_BUDGET", default_value = "30ms", value_parser = parse_duration, value_name = "SPAN", help_heading = "Reading")]
    pub cache_budget: Duration,

    /// Concurrent reads of the tables; the excess waits 100 ms, then gets 503 with Retry-After
    #[arg(
        long,
        env = "TALLY_TABLE_CONCURRENCY",
        default_value_t = 256,
        value_name = "COUNT",
        help_heading = "Reading"
    )]
    pub table_concurrency: usize,

    /// How long a read of the tables may take
    #[arg(long, env = "TALLY_TABLE_BUDGET", default_value = "2s", value_parser = parse_duration, value_name = "SPAN", help_heading = "Reading")]
    pub table_budget: Duration,

    /// Posts that streams of live counts listen to at once; each stream counts each of its posts
    #[arg(long, env = "TALLY_LISTENERS", default_value_t = 5_000, value_name = "COUNT", help_heading = "Reading")]
    pub listeners: usize,

    /// How often an idle stream of live counts sends a comment
    #[arg(long, env = "TALLY_HEARTBEAT", default_value = "15s", value_parser = parse_duration, value_name = "SPAN", help_heading = "Reading")]
    pub heartbeat: Duration,

    /// Lists of what is trending: the topic that `tally-trends` writes with the flag of this name; without it those routes
    /// are 404. Needs --brokers
    #[arg(long, env = "TALLY_BOARDS_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Reading")]
    pub boards_topic: Option<String>,

    /// Ids that lists of what is trending leave out: a compacted topic, in which an id is a key, and blocked while it has a
    /// value that is not empty. Needs --boards-topic; nothing is listed before it was read to its end
    #[arg(long, env = "TALLY_BLOCKS_TOPIC", value_parser = kafka::topic, value_name = "TOPIC", help_heading = "Reading")]
    pub blocks_topic: Option<String>,

    /// The topic of likes, and of each counter whose definition names no other: events are written to it, and what consumers have
    /// stored of it says as of when counts are
    #[arg(long, env = "TALLY_TOPIC", default_value = "likes", value_parser = kafka::topic, value_name = "TOPIC")]
    pub topic: String,

    /// How events of a busy sum are spread over partitions: `post` (not at all), `round-robin`, `random` or `least-lag`
    #[arg(long, env = "TALLY_SUM_POLICY", default_value_t = SumPolicy::Post, value_name = "POLICY", help_heading = "Writing")]
    pub sum_policy: SumPolicy,

    /// How long an acknowledgement may take
    #[arg(long, env = "TALLY_WRITE_BUDGET", default_value = "5s", value_parser = parse_duration, value_name = "SPAN", help_heading = "Writing")]
    pub write_budget: Duration,
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
