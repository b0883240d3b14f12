//! The arguments of `tally-count-api`, which serves counts over HTTP. They are its whole configuration, and each is
//! checked, alone and against the others, before the first connection.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::{HeaderValue, Uri};
use clap::Parser;
use tally_adapters::kafka::{BlocksTopic, BoardsTopic, KafkaArgs, LikesTopic};
use tally_adapters::redis::CacheArgs;
use tally_core::spread::SumPolicy;
use tally_service::{
    Arguments, CommonArgs, Invalid, Limits, Secret, StoreArgs, duration, parse_duration, positive_duration, within,
};
use tower_http::cors::AllowOrigin;

use crate::auth::TokenList;

/// What brokers are for here.
const BROKERS: &str = "Bootstrap servers, HOST:PORT separated by commas; with them likes and unlikes are taken, without them \
                       those routes are 404";

/// The help of these flags in this program.
const BOARDS: &str = "Lists of what is trending: the topic that `tally-trends` writes with the flag of this name; without it \
                      those routes are 404. Needs --brokers";
const BLOCKS: &str = "Ids that lists of what is trending leave out: a compacted topic, in which an id is a key, and blocked \
                      while it has a value that is not empty. Needs --boards-topic; nothing is listed before it was read to \
                      its end";

/// The help of `--redis` in this program.
const CACHE: &str = "The shared cache: `redis://host:port`, `rediss://` with TLS, several nodes of a cluster separated by \
                     commas; `off` or an empty value reads the table alone";

/// The help of `--topic` in this program.
const TOPIC: &str = "The topic that events are written to, and that the consumer reads, unless a counter's definition \
                     names another";

/// The most by which the beginning of a read may precede a request that it answers. Before a recount corrects a
/// counter, it marks the number as doubtful for longer than that, so no answer calls the uncorrected number exact
/// afterwards.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// What is said of a `--local-ttl` that is longer.
const TOO_LONG: &str = "must be at most 1s: after a correction, the old count may be answered for this long";

/// Serves counts of likes over HTTP
#[derive(Parser, Clone, Debug)]
#[command(name = "tally-count-api", version)]
#[command(mut_arg("brokers", |arg| arg.help(BROKERS)))]
#[command(mut_arg("redis", |arg| arg.help(CACHE)), mut_arg("topic", |arg| arg.help(TOPIC)))]
#[command(mut_arg("boards_topic", |arg| arg.help(BOARDS)), mut_arg("blocks_topic", |arg| arg.help(BLOCKS)))]
pub struct Args {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,
    #[command(flatten)]
    pub(crate) cache: CacheArgs,
    #[command(flatten)]
    pub(crate) api: Config,
}

/// How an API answers, whichever tables, cache and Kafka it works on.
#[derive(clap::Args, Clone, Debug)]
#[command(about = None, long_about = None)]
pub struct Config {
    /// Where the routes are served; port 0 is any free one
    #[arg(long, env = "TALLY_LISTEN", default_value = "127.0.0.1:8080", value_name = "ADDRESS", help_heading = "HTTP")]
    pub listen: SocketAddr,

    #[command(flatten)]
    pub limits: Limits,

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

    /// The file with the bearer tokens that `PUT ../counters/{counter}` (createCounter) takes, one a line; without it that takes
    /// those of writing. A file that changes is read again
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
    #[arg(long, env = "TALLY_LOCAL_TTL", default_value = "100ms", value_parser = duration(|span| span <= LONGEST, TOO_LONG), value_name = "SPAN", help_heading = "Reading")]
    pub local_ttl: Duration,

    /// The most counts in memory; `--local-ttl 0` keeps none
    #[arg(long, env = "TALLY_LOCAL_POSTS", default_value_t = 100_000, value_parser = within::<u64>(1..), value_name = "COUNT", help_heading = "Reading")]
    pub local_posts: u64,

    /// How old the `as_of` of a count may be that answers call fresh; a count is read again once it is older than half of that
    #[arg(long, env = "TALLY_FRESH_WITHIN", default_value = "10s", value_parser = positive_duration(), value_name = "SPAN", help_heading = "Reading")]
    pub fresh_within: Duration,

    /// How long the cache may take to answer before the table is read
    #[arg(long, env = "TALLY_CACHE_BUDGET", default_value = "30ms", value_parser = positive_duration(), value_name = "SPAN", help_heading = "Reading")]
    pub cache_budget: Duration,

    /// Concurrent reads of the tables; the excess waits 100 ms, then gets 503 with Retry-After
    #[arg(long, env = "TALLY_TABLE_CONCURRENCY", default_value_t = 256, value_parser = within(1..=tally_service::http::MOST_CONNECTIONS), value_name = "COUNT", help_heading = "Reading")]
    pub table_concurrency: usize,

    /// How long a read of the tables may take
    #[arg(long, env = "TALLY_TABLE_BUDGET", default_value = "2s", value_parser = positive_duration(), value_name = "SPAN", help_heading = "Reading")]
    pub table_budget: Duration,

    /// Posts that streams of live counts listen to at once; each stream counts each of its posts
    #[arg(long, env = "TALLY_LISTENERS", default_value_t = 5_000, value_parser = within::<usize>(1..), value_name = "COUNT", help_heading = "Reading")]
    pub listeners: usize,

    /// How often an idle stream of live counts sends a comment
    #[arg(long, env = "TALLY_HEARTBEAT", default_value = "15s", value_parser = positive_duration(), value_name = "SPAN", help_heading = "Reading")]
    pub heartbeat: Duration,

    #[command(flatten)]
    pub boards: BoardsTopic,

    #[command(flatten)]
    pub blocks: BlocksTopic,

    #[command(flatten)]
    pub likes: LikesTopic,

    /// How events of a busy sum are spread over partitions: `post` (not at all), `round-robin`, `random` or `least-lag`
    #[arg(long, env = "TALLY_SUM_POLICY", default_value_t = SumPolicy::Post, value_name = "POLICY", help_heading = "Writing")]
    pub sum_policy: SumPolicy,

    /// How long an acknowledgement may take
    #[arg(long, env = "TALLY_WRITE_BUDGET", default_value = "5s", value_parser = positive_duration(), value_name = "SPAN", help_heading = "Writing")]
    pub write_budget: Duration,
}

/// The defaults.
impl Default for Config {
    fn default() -> Self {
        tally_service::defaults()
    }
}

impl Arguments for Args {
    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn check(&self) -> Invalid {
        let Self { common, store, kafka, cache, api } = self;
        let mut invalid = Invalid::none();
        invalid.ensure("listen", !common.admin_listen.takes(api.listen), "is the address of --admin-listen, too");
        invalid.gather(kafka.optional());
        invalid.gather(cache.settings(&store.table_prefix));
        api.check(kafka.brokers.is_some(), &mut invalid);
        invalid
    }
}

impl Config {
    /// Returns the tokens of reading, writing and administration. Adds mistakes to `invalid`; a group with one has no
    /// tokens.
    pub(crate) fn tokens(&self, invalid: &mut Invalid) -> [Option<TokenList>; 3] {
        let given = [
            ("read-token", &self.read_token, &self.read_token_file),
            ("write-token", &self.write_token, &self.write_token_file),
            ("admin-token", &self.admin_token, &self.admin_token_file),
        ];
        given.map(|(flag, text, file)| match text {
            Some(text) => invalid.accept(flag, TokenList::new(text.clone())),
            None => invalid.accept(&format!("{flag}-file"), TokenList::read(file.clone()?)),
        })
    }

    /// Returns the origins whose pages may use the routes, if any.
    pub(crate) fn cors(&self) -> Result<Option<AllowOrigin>, &'static str> {
        let given = self.cors_origins.iter().map(|origin| origin.trim()).filter(|origin| !origin.is_empty());
        let given: Vec<&str> = given.collect();
        match given[..] {
            [] => Ok(None),
            ["*"] => Ok(Some(AllowOrigin::any())),
            _ => {
                let origins: Option<Vec<HeaderValue>> = given.into_iter().map(origin).collect();
                let origins = origins.map(|origins| Some(AllowOrigin::list(origins)));
                origins.ok_or("write origins such as https://example.com, or `*`")
            }
        }
    }

    /// Adds to `invalid` each setting that is wrong, alone or beside others.
    fn check(&self, takes_writes: bool, invalid: &mut Invalid) {
        let most = self.limits.connections;
        invalid.ensure(
            "listeners",
            self.listeners <= most,
            format!("must be at most {most}, the value of --connections"),
        );
        let has_brokers = self.boards.boards_topic.is_none() || takes_writes;
        invalid.ensure("brokers", has_brokers, "missing, and --boards-topic needs it");
        let has_lists = self.blocks.blocks_topic.is_none() || self.boards.boards_topic.is_some();
        invalid.ensure("boards-topic", has_lists, "missing, and --blocks-topic needs it");
        let of_writing = [
            ("write-token-file", self.write_token_file.is_some()),
            ("write-token", self.write_token.is_some()),
            ("admin-token-file", self.admin_token_file.is_some()),
            ("admin-token", self.admin_token.is_some()),
            ("open-writes", self.open_writes),
        ];
        for (flag, is_given) in of_writing {
            let is_of_use = !is_given || takes_writes;
            invalid.ensure(flag, is_of_use, "is of no use: without --brokers no writes are taken");
        }
        let has_write_token = self.write_token_file.is_some() || self.write_token.is_some();
        invalid.ensure("open-writes", !(self.open_writes && has_write_token), "opens nothing: there is a write token");
        let _ = invalid.accept("cors-origins", self.cors());
        let _ = self.tokens(invalid);
    }
}

/// Parses an origin as browsers send it: a scheme and a host, and nothing after them.
fn origin(text: &str) -> Option<HeaderValue> {
    let uri: Uri = text.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    let plain = text == format!("{scheme}://{authority}") && ["http", "https"].contains(&scheme);
    HeaderValue::from_str(text).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_the_reference() {
        insta::assert_snapshot!(tally_service::reference::<Args>());
    }

    #[test]
    fn every_bad_setting_is_named_at_once_and_no_value_is_repeated() {
        let bad = [
            "--connections=0",
            "--listeners=20000",
            "--table-concurrency=0",
            "--local-ttl=1m",
            "--fresh-within=0",
            "--header-time=0",
            "--cors-origins=canary",
            "--read-token-file=/nowhere",
            "--write-token-file=/nowhere",
            "--admin-token-file=/nowhere",
        ];
        let error = Args::checked(&bad).unwrap_err();
        for flag in bad.iter().filter_map(|flag| flag.split('=').next()) {
            assert!(error.contains(flag), "{flag}: {error}");
        }
        assert!(!error.contains("canary"), "{error}");
    }

    #[test]
    fn a_token_comes_from_a_file_or_from_itself_and_is_never_shown() {
        let given = "--brokers b:9092 --read-token canary-r --write-token canary-w --admin-token canary-a";
        let given: Vec<&str> = given.split(' ').collect();
        let args = Args::checked(&given).unwrap();
        assert!(!format!("{args:?}").contains("canary"));
        assert!(args.api.tokens(&mut Invalid::none()).iter().all(Option::is_some));
        for flag in ["--read-token", "--write-token", "--admin-token"] {
            let file = format!("{flag}-file=/nowhere");
            let both = Args::checked(&["--brokers", "b:9092", flag, "canary", &file]).unwrap_err();
            assert!(both.contains("contradicts") && !both.contains("canary"), "{both}");
            let empty = Args::checked(&["--brokers", "b:9092", flag, ""]).unwrap_err();
            assert!(empty.contains(&format!("{flag} (")) && empty.contains("is empty"), "{empty}");
        }
        for flag in ["--write-token", "--admin-token"] {
            let error = Args::checked(&[flag, "canary"]).unwrap_err();
            assert!(error.contains("is of no use") && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn open_writes_are_asked_for_where_there_are_writes_and_no_token() {
        assert!(Args::checked(&["--brokers", "b:9092", "--open-writes"]).unwrap().api.open_writes);
        for args in [&["--open-writes"][..], &["--brokers", "b:9092", "--open-writes", "--write-token", "canary"]] {
            let error = Args::checked(args).unwrap_err();
            assert!(error.contains("--open-writes (") && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host_and_nothing_else() {
        for good in ["https://example.com", "http://localhost:3000"] {
            assert!(origin(good).is_some(), "{good}");
        }
        for bad in ["example.com", "https://example.com/", "https://a.b/c", "ftp://a.b", "null", "https://", "*"] {
            assert!(origin(bad).is_none(), "{bad}");
        }
        assert!(Args::checked(&["--cors-origins", "https://a.b, http://c:1"]).unwrap().api.cors().unwrap().is_some());
        assert!(Args::checked(&["--cors-origins", "*,https://a.b"]).is_err());
    }
}
