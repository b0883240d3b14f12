//! The arguments, validated together.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::{HeaderValue, Uri};
use tally_adapters::{kafka, redis};
use tally_core::ids::ShardCount;
use tally_core::spread::SumPolicy;
use tally_service::{Invalid, Secret};
use tower_http::cors::AllowOrigin;

use crate::args::Args;
use crate::auth::TokenList;
use crate::read::{Bounds, LONGEST};
use crate::server::ConnectionLimits;

/// How long a read of the tables may wait for its turn.
const PATIENCE: Duration = Duration::from_millis(100);

/// An API's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub limits: ConnectionLimits,
    /// Requests a second that one client may read with; `None` is any number.
    pub read_rate: Option<NonZeroU32>,
    /// Requests a second that one client may write with; `None` is any number.
    pub write_rate: Option<NonZeroU32>,
    /// How many of the operator's own proxies stand in front.
    pub forwarded_hops: usize,
    /// The origins whose pages may use the routes.
    pub cors: Option<AllowOrigin>,
    /// How long browsers and proxies may keep a count.
    pub max_age: Duration,
    pub tokens: Tokens,
    /// Whether callers without a token may write, where there is no write token.
    pub open_writes: bool,
    /// How long a count stays in memory.
    pub local_ttl: Duration,
    /// How many counts stay in memory.
    pub local_posts: u64,
    /// How old the `as_of` of a count may be that answers call fresh.
    pub fresh_within: Duration,
    /// How long the cache may take to answer.
    pub cache_budget: Duration,
    pub table: Bounds,
    /// Posts that streams of live counts listen to at once.
    pub listeners: usize,
    /// How often an idle stream of counts sends a comment.
    pub heartbeat: Duration,
    /// What every table's name begins with.
    pub table_prefix: String,
    /// What `--shards` says, if it was given.
    pub shards: Option<ShardCount>,
    pub cache: Option<redis::Settings>,
    /// How Kafka is reached, if writes are taken.
    pub kafka: Option<kafka::Settings>,
    pub write: WriteConfig,
    /// Where lists of what is trending are, if any are read.
    pub boards: Option<String>,
    /// Where ids are that lists leave out, if any do.
    pub blocks: Option<String>,
}

/// Bearer tokens of groups of routes.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    /// Where there are none, reading is open.
    pub read: Option<TokenList>,
    /// Where there are none, no writes are taken unless `open_writes` says so.
    pub write: Option<TokenList>,
    /// Where there are none, a write token is asked for.
    pub admin: Option<TokenList>,
}

/// How events are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteConfig {
    pub topic: String,
    /// Over which partitions a busy sum's events go.
    pub sums: SumPolicy,
    /// How long an acknowledgement may take.
    pub budget: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            limits: ConnectionLimits { connections: 10_000, head_time: seconds(10), unread_time: seconds(30) },
            read_rate: None,
            write_rate: NonZeroU32::new(100),
            forwarded_hops: 0,
            cors: None,
            max_age: seconds(1),
            tokens: Tokens::default(),
            open_writes: false,
            local_ttl: Duration::from_millis(100),
            local_posts: 100_000,
            fresh_within: seconds(10),
            cache_budget: Duration::from_millis(30),
            table: Bounds { concurrency: 256, patience: PATIENCE, budget: seconds(2) },
            listeners: 5_000,
            heartbeat: seconds(15),
            table_prefix: String::new(),
            shards: None,
            cache: None,
            kafka: None,
            write: WriteConfig { topic: "likes".to_owned(), sums: SumPolicy::Post, budget: seconds(5) },
            boards: None,
            blocks: None,
        }
    }
}

impl TryFrom<Args> for Config {
    type Error = Invalid;

    fn try_from(args: Args) -> Result<Self, Invalid> {
        let mut invalid = Invalid::none();
        check(&args, &mut invalid);
        let taken = args.common.admin_listen.takes(args.listen);
        invalid.ensure("listen", !taken, "is the address of --admin-listen, too");
        let address = args.redis.as_ref().map(Secret::expose).filter(|address| !address.is_empty()).unwrap_or("off");
        let cache = redis::Settings::parse(address, args.redis_cluster, &args.store.table_prefix);
        let cache = invalid.accept("redis", cache);
        let cors = invalid.accept("cors-origins", cors(&args.cors_origins));
        let kafka = args.kafka.optional().map_err(|other| invalid.extend(other)).ok();
        let tokens = Tokens {
            read: tokens("read-token", args.read_token, args.read_token_file, &mut invalid),
            write: tokens("write-token", args.write_token, args.write_token_file, &mut invalid),
            admin: tokens("admin-token", args.admin_token, args.admin_token_file, &mut invalid),
        };
        let (Some(cache), Some(cors), Some(kafka), true) = (cache, cors, kafka, invalid.is_empty()) else {
            return Err(invalid);
        };
        Ok(Self {
            listen: args.listen,
            limits: ConnectionLimits {
                connections: args.connections,
                head_time: args.header_time,
                unread_time: args.unread_time,
            },
            read_rate: NonZeroU32::new(args.read_rate),
            write_rate: NonZeroU32::new(args.write_rate),
            forwarded_hops: args.forwarded_hops,
            cors,
            max_age: args.max_age,
            tokens,
            open_writes: args.open_writes,
            local_ttl: args.local_ttl,
            local_posts: args.local_posts,
            fresh_within: args.fresh_within,
            cache_budget: args.cache_budget,
            table: Bounds { concurrency: args.table_concurrency, patience: PATIENCE, budget: args.table_budget },
            listeners: args.listeners,
            heartbeat: args.heartbeat,
            table_prefix: args.store.table_prefix,
            shards: args.store.shards,
            cache,
            kafka,
            write: WriteConfig { topic: args.topic, sums: args.sum_policy, budget: args.write_budget },
            boards: args.boards_topic,
            blocks: args.blocks_topic,
        })
    }
}

/// The rules that numbers and spans keep.
fn check(args: &Args, invalid: &mut Invalid) {
    const MOST_CONNECTIONS: usize = 1_000_000;
    let counts = [
        ("connections", args.connections, MOST_CONNECTIONS),
        ("table-concurrency", args.table_concurrency, MOST_CONNECTIONS),
        ("listeners", args.listeners, args.connections),
    ];
    for (flag, count, most) in counts {
        invalid.ensure(flag, (1..=most).contains(&count), format!("must be from 1 to {most}"));
    }
    let has_brokers = args.boards_topic.is_none() || args.kafka.brokers.is_some();
    invalid.ensure("brokers", has_brokers, "missing, and --boards-topic needs it");
    let has_lists = args.blocks_topic.is_none() || args.boards_topic.is_some();
    invalid.ensure("boards-topic", has_lists, "missing, and --blocks-topic needs it");
    invalid.ensure("local-posts", args.local_posts >= 1, "must be at least 1; --local-ttl 0 turns the memory off");
    invalid.ensure(
        "local-ttl",
        args.local_ttl <= LONGEST,
        "must be at most 1s: so long a count that was corrected may be answered as it was",
    );
    let spans = [
        ("header-time", args.header_time),
        ("unread-time", args.unread_time),
        ("cache-budget", args.cache_budget),
        ("table-budget", args.table_budget),
        ("heartbeat", args.heartbeat),
        ("fresh-within", args.fresh_within),
        ("write-budget", args.write_budget),
    ];
    for (flag, span) in spans {
        invalid.ensure(flag, !span.is_zero(), "must be more than nothing");
    }
    let of_writing = [
        ("write-token-file", args.write_token_file.is_some()),
        ("write-token", args.write_token.is_some()),
        ("admin-token-file", args.admin_token_file.is_some()),
        ("admin-token", args.admin_token.is_some()),
        ("open-writes", args.open_writes),
    ];
    for (flag, is_given) in of_writing {
        let is_of_use = !is_given || args.kafka.brokers.is_some();
        invalid.ensure(flag, is_of_use, "is of no use: without --brokers no writes are taken");
    }
    let has_write_token = args.write_token_file.is_some() || args.write_token.is_some();
    invalid.ensure("open-writes", !(args.open_writes && has_write_token), "opens nothing: there is a write token");
}

/// Tokens that are given themselves, or those in a file.
fn tokens(flag: &str, given: Option<Secret>, file: Option<PathBuf>, invalid: &mut Invalid) -> Option<TokenList> {
    match given {
        Some(given) => invalid.accept(flag, TokenList::new(given)),
        None => invalid.accept(&format!("{flag}-file"), TokenList::read(file?)),
    }
}

/// The origins whose pages may use the routes, if any.
fn cors(origins: &[String]) -> Result<Option<AllowOrigin>, &'static str> {
    let given: Vec<&str> = origins.iter().map(|origin| origin.trim()).filter(|origin| !origin.is_empty()).collect();
    match given[..] {
        [] => return Ok(None),
        ["*"] => return Ok(Some(AllowOrigin::any())),
        _ => {}
    }
    let origins: Option<Vec<HeaderValue>> = given.into_iter().map(origin).collect();
    origins.map(|origins| Some(AllowOrigin::list(origins))).ok_or("write origins such as https://example.com, or `*`")
}

/// An origin as browsers send it: a scheme and a host, and nothing behind them.
fn origin(text: &str) -> Option<HeaderValue> {
    let uri: Uri = text.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    let plain = text == format!("{scheme}://{authority}") && ["http", "https"].contains(&scheme);
    HeaderValue::from_str(text).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn config(args: &[&str]) -> Result<Config, String> {
        let args = Args::try_parse_from(std::iter::once(&"tally-count-api").chain(args));
        Config::try_from(args.map_err(|error| error.to_string())?).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn the_documented_defaults_are_those_of_a_process_that_is_told_nothing() {
        assert_eq!(format!("{:?}", config(&[]).unwrap()), format!("{:?}", Config::default()));
    }

    #[test]
    fn a_cache_is_an_address_or_absent() {
        for absent in [&["--redis", "off"][..], &["--redis", ""], &[]] {
            assert_eq!(config(absent).unwrap().cache, None);
        }
        let one = config(&["--redis", "redis://:canary@cache:6379"]).unwrap();
        assert!(!format!("{one:?}").contains("canary"));
        assert_eq!(one.cache.map(|cache| (cache.nodes.len(), cache.cluster)), Some((1, false)));
        let many = config(&["--redis", "redis://a:1, redis://b:1"]).unwrap();
        assert_eq!(many.cache.map(|cache| (cache.nodes.len(), cache.cluster)), Some((2, true)));
        let error = config(&["--redis", "canary:6379"]).unwrap_err();
        assert!(error.contains("--redis (TALLY_REDIS)") && !error.contains("canary"), "{error}");
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
        let error = config(&bad).unwrap_err();
        for flag in bad.iter().filter_map(|flag| flag.split('=').next()) {
            assert!(error.contains(flag), "{flag}: {error}");
        }
        assert!(!error.contains("canary"), "{error}");
    }

    #[test]
    fn writes_are_taken_where_brokers_are_named_and_a_login_without_them_is_a_mistake() {
        assert_eq!(config(&[]).unwrap().kafka, None);
        let login = ["--sasl", "plain", "--sasl-user", "u", "--sasl-password", "canary"];
        let writing = config(&[&["--brokers", "b:9092"], &login[..]].concat()).unwrap();
        assert!(!format!("{writing:?}").contains("canary"));
        let kafka = writing.kafka.expect("brokers are named");
        assert_eq!(kafka.option("bootstrap.servers"), Some("b:9092"));
        assert_eq!(kafka.option("sasl.mechanism"), Some("PLAIN"));
        let error = config(&login).unwrap_err();
        assert!(error.contains("--brokers (TALLY_BROKERS): missing") && !error.contains("canary"), "{error}");
    }

    #[test]
    fn a_token_comes_from_a_file_or_from_itself_and_is_never_shown() {
        let given = [
            "--brokers",
            "b:9092",
            "--read-token",
            "canary-r",
            "--write-token",
            "canary-w",
            "--admin-token",
            "canary-a",
        ];
        let tokens = config(&given).unwrap().tokens;
        assert!(!format!("{tokens:?}").contains("canary"));
        assert!([tokens.read, tokens.write, tokens.admin].iter().all(Option::is_some));
        for flag in ["--read-token", "--write-token", "--admin-token"] {
            let file = format!("{flag}-file=/nowhere");
            let both = config(&["--brokers", "b:9092", flag, "canary", &file]).unwrap_err();
            assert!(both.contains("cannot be used with") && !both.contains("canary"), "{both}");
            let empty = config(&["--brokers", "b:9092", flag, ""]).unwrap_err();
            assert!(empty.contains(&format!("{flag} (")) && empty.contains("is empty"), "{empty}");
        }
        for flag in ["--write-token", "--admin-token"] {
            let error = config(&[flag, "canary"]).unwrap_err();
            assert!(error.contains("is of no use") && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn open_writes_are_asked_for_where_there_are_writes_and_no_token() {
        assert!(config(&["--brokers", "b:9092", "--open-writes"]).unwrap().open_writes);
        for args in [&["--open-writes"][..], &["--brokers", "b:9092", "--open-writes", "--write-token", "canary"]] {
            let error = config(args).unwrap_err();
            assert!(error.contains("--open-writes (") && !error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn zero_is_no_limit_of_a_rate() {
        let config = config(&["--read-rate", "7", "--write-rate", "0"]).unwrap();
        assert_eq!((config.read_rate.map(NonZeroU32::get), config.write_rate), (Some(7), None));
    }

    #[test]
    fn an_origin_is_a_scheme_and_a_host_and_nothing_else() {
        for good in ["https://example.com", "http://localhost:3000"] {
            assert!(origin(good).is_some(), "{good}");
        }
        for bad in ["example.com", "https://example.com/", "https://a.b/c", "ftp://a.b", "null", "https://", "*"] {
            assert!(origin(bad).is_none(), "{bad}");
        }
        assert!(config(&["--cors-origins", "https://a.b, http://c:1"]).unwrap().cors.is_some());
        assert!(config(&["--cors-origins", "*,https://a.b"]).is_err());
    }
}
