//! The command line arguments of the local stack, which are its configuration. Ports are bound here, so that one in use
//! is reported as a bad setting.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use clap::Parser;
use tally_adapters::{dynamodb, kafka, redis};
use tally_core::milestone::Ladder;
use tally_core::spread::SumPolicy;
use tally_emulator::Latency;
use tally_service::{
    Arguments, CommonArgs, Invalid, Listen, Secret, StoreArgs, duration, parse_duration, positive_duration, within,
};

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

    #[command(flatten)]
    pub load: LoadArgs,

    /// How views of a busy post are spread over partitions, those over HTTP too: `post` (not at all), `round-robin`, `random` or
    /// `least-lag`
    #[arg(long, env = "TALLY_SUM_POLICY", default_value_t = SumPolicy::Post, value_name = "POLICY", help_heading = "Load")]
    pub sum_policy: SumPolicy,

    /// Totals at which the first to reach them is recorded, for every counter: upwards and at most 16, or `every:N`
    #[arg(long, env = "TALLY_MILESTONES", value_name = "LADDER", help_heading = "Load")]
    pub milestones: Option<Ladder>,

    /// How long the load lasts; the process ends after it. Without it everything runs until Ctrl-C
    #[arg(long, env = "TALLY_DURATION", value_parser = positive_duration(), value_name = "SPAN", help_heading = "Load")]
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
    #[arg(long, env = "TALLY_STREAM_RETENTION", default_value = "15m", value_parser = duration(|span| span >= Duration::from_secs(60), TOO_SHORT), value_name = "SPAN", help_heading = "Engines")]
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

    /// How many Regions, each with engines and a load of its own and all in this process: 1, or 2 with a mirror between them.
    /// Ports, --chaos, --milestones and lists of what is trending are the first one's
    #[arg(long, env = "TALLY_REGIONS", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2), value_name = "COUNT", help_heading = "Engines")]
    pub regions: u8,

    /// Without what is trending
    #[arg(long, env = "TALLY_NO_TRENDS", help_heading = "Engines")]
    pub no_trends: bool,

    /// How often everything is recounted; with 0s only when it is asked for
    #[arg(long, env = "TALLY_RECOUNT_EVERY", default_value = "5m", value_parser = parse_duration, value_name = "SPAN", help_heading = "Engines")]
    pub recount_every: Duration,
}

/// The events of the load.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq)]
#[command(about = None, long_about = None)]
pub struct LoadArgs {
    /// Events a second to aim at, most of them likes and unlikes; the load makes fewer where it is held back or has no more
    /// to give
    #[arg(long, env = "TALLY_RATE", default_value_t = 500, value_parser = within::<u32>(1..), value_name = "COUNT", help_heading = "Load")]
    pub rate: u32,

    /// Posts that the load is about
    #[arg(long, env = "TALLY_POSTS", default_value_t = 100, value_parser = within::<u32>(1..), value_name = "COUNT", help_heading = "Load")]
    pub posts: u32,

    /// Users of the load; a user likes a post at most once and retweets it at most once, so there are at most posts times users
    /// rows of each. The load's ledger takes about 20 bytes of memory for each row
    #[arg(long, env = "TALLY_USERS", default_value_t = 1000, value_parser = within::<u32>(1..), value_name = "COUNT", help_heading = "Load")]
    pub users: u32,

    /// Share of the likes, retweets and replies that are taken back: 0 to 1
    #[arg(long, env = "TALLY_UNLIKE_RATIO", default_value_t = 0.3, value_parser = within(0.0..=1.0), value_name = "SHARE", help_heading = "Load")]
    pub unlike_ratio: f64,

    /// Share of the events that are about the first post: 0 to 1
    #[arg(long, env = "TALLY_HOT_SHARE", default_value_t = 0.1, value_parser = within(0.0..=1.0), value_name = "SHARE", help_heading = "Load")]
    pub hot_share: f64,
}

/// What is said of a shorter `--stream-retention`.
const TOO_SHORT: &str = "must be at least 1m, or records are gone before they are read";

/// The most pairs of a post and a user. Each may become a row of likes and one of retweets; with all of them the ledger takes
/// 10 GiB.
const MOST_PAIRS: u64 = 1 << 28;

/// The ports that are taken before anything starts.
#[derive(Debug)]
pub struct Taken {
    pub wanted: Wanted,
    /// Those of the second Region, if there is to be one, and the arguments that it has.
    pub second: Option<(Args, Wanted)>,
}

/// Where a Region listens: `None` for an engine outside this process.
#[derive(Debug)]
pub struct Wanted {
    pub kafka: Option<TcpListener>,
    pub store: Option<TcpListener>,
    pub api: TcpListener,
}

impl Arguments for Args {
    fn common(&self) -> &CommonArgs {
        &self.common
    }

    fn check(&self) -> Invalid {
        let mut invalid = Invalid::none();
        let load = &self.load;
        let pairs = u64::from(load.posts) * u64::from(load.users);
        invalid.ensure("users", pairs <= MOST_PAIRS, format!("posts times users must be at most {MOST_PAIRS}"));
        invalid.ensure("verify", !self.verify || self.duration.is_some(), "needs a load that ends: give --duration");
        invalid.ensure("verify", !self.verify || !self.no_load, "contradicts --no-load");
        let embedded = self.dynamodb_endpoint.is_none();
        invalid.ensure("chaos", !self.chaos || embedded, "contradicts --dynamodb-endpoint: faults are the emulator's");
        let set = [
            ("stream-delay", self.stream_delay.is_some()),
            ("store-latency", self.store_latency.is_some()),
            ("store-batch-latency", self.store_batch_latency.is_some()),
            ("store-call-latency", self.store_call_latency.is_some()),
            ("key-write-units", self.key_write_units.is_some()),
            ("key-read-units", self.key_read_units.is_some()),
        ];
        for (flag, given) in set {
            invalid.ensure(flag, !given || embedded, "contradicts --dynamodb-endpoint: it is the emulator's");
        }
        let real = [
            ("brokers", self.brokers.is_some()),
            ("dynamodb-endpoint", self.dynamodb_endpoint.is_some()),
            ("redis", self.redis.is_some()),
        ];
        for (flag, given) in real {
            let is_one = self.regions == 1;
            invalid.ensure(
                flag,
                !given || is_one,
                "contradicts --regions 2: each Region has embedded engines of its own",
            );
        }
        let in_time = self.stream_delay.is_none_or(|delay| delay < self.stream_retention);
        let gone = "must be shorter than --stream-retention, or records are gone before they can be read";
        invalid.ensure("stream-delay", in_time, gone);
        let brokers = self.brokers.as_deref().is_none_or(|list| kafka::check_brokers(list).is_ok());
        invalid.ensure("brokers", brokers, "must be HOST:PORT, several separated by commas");
        let is_http = |url: &String| url.starts_with("http://") && dynamodb::check_endpoint(url).is_ok();
        let http = self.dynamodb_endpoint.as_ref().is_none_or(is_http);
        invalid.ensure("dynamodb-endpoint", http, "must be http://HOST:PORT");
        let is_redis = |url: &Secret| url.expose().starts_with("redis://") && redis::check_node(url.expose()).is_ok();
        let redis = self.redis.as_ref().is_none_or(is_redis);
        invalid.ensure("redis", redis, "must be redis://HOST:PORT");
        invalid.gather(self.take());
        invalid
    }
}

impl Args {
    /// Takes the ports. The check of the arguments takes them as well and gives them back, so another process may take
    /// one in between.
    ///
    /// # Errors
    /// Each port that cannot be had.
    pub fn take(&self) -> Result<Taken, Invalid> {
        let mut invalid = Invalid::none();
        // The admin listener binds it later; a port that is taken, also by another flag, is named here, before anything
        // starts.
        let _held = match self.common.admin_listen {
            Listen::At(address) => listen("admin-listen", address, &mut invalid),
            Listen::Off => None,
        };
        let mut here = |flag, port| listen(flag, SocketAddr::from((Ipv4Addr::LOCALHOST, port)), &mut invalid);
        let kafka = self.brokers.is_none().then(|| here("kafka-port", self.kafka_port)).flatten();
        let store = self.dynamodb_endpoint.is_none().then(|| here("dynamodb-port", self.dynamodb_port)).flatten();
        let api = here("api-port", self.api_port);
        let second = (self.regions == 2).then(|| second(self, &mut invalid)).flatten();
        match api {
            Some(api) if invalid.is_empty() => Ok(Taken { wanted: Wanted { kafka, store, api }, second }),
            _ => Err(invalid),
        }
    }

    /// The embedded DynamoDB as it is asked for.
    pub(crate) fn emulated(&self) -> tally_emulator::Config {
        tally_emulator::Config {
            seed: self.seed,
            stream_retention: self.stream_retention,
            stream_delay: self.stream_delay.unwrap_or_default(),
            transaction_latency: self.store_latency,
            batch_latency: self.store_batch_latency,
            latency: self.store_call_latency,
            key_write_units: self.key_write_units,
            key_read_units: self.key_read_units,
            ..tally_emulator::Config::default()
        }
    }

    /// The load, if there is to be one.
    pub(crate) fn load(&self) -> Option<LoadArgs> {
        (!self.no_load).then_some(self.load)
    }
}

/// The second Region: embedded engines on free ports, another load, and nothing that goes wrong or is ranked.
fn second(args: &Args, invalid: &mut Invalid) -> Option<(Args, Wanted)> {
    let args = Args { seed: args.seed.wrapping_add(1), no_trends: true, chaos: false, ..args.clone() };
    let mut any = || listen("regions", SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), invalid);
    let wanted = Wanted { kafka: Some(any()?), store: Some(any()?), api: any()? };
    Some((args, wanted))
}

fn listen(flag: &str, address: SocketAddr, invalid: &mut Invalid) -> Option<TcpListener> {
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    let said = |error: std::io::Error| match error.kind() {
        ErrorKind::AddrInUse => {
            format!("{address} is in use: end the process that listens there, or choose another (0 is any)")
        }
        _ => format!("cannot listen on {address}: {error}"),
    };
    invalid.accept(flag, listener.map_err(said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_the_reference() {
        insta::assert_snapshot!(tally_service::reference::<Args>());
    }

    /// Returns the arguments and the ports that they take, or what is wrong with them.
    fn checked(args: &[&str]) -> Result<(Args, Taken), String> {
        let given = |flag: &str| args.iter().any(|arg| arg.starts_with(flag.split('=').next().unwrap_or(flag)));
        let any = ["--kafka-port=0", "--dynamodb-port=0", "--api-port=0", "--admin-listen=off"];
        let any = any.iter().filter(|flag| !given(flag));
        let line: Vec<&str> = any.chain(args).copied().collect();
        let args = Args::checked(&line)?;
        args.take().map(|taken| (args, taken)).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn every_bad_setting_is_named_at_once() {
        let bad =
            ["--rate=0", "--posts=0", "--unlike-ratio=1.5", "--hot-share=-1", "--verify", "--stream-retention=1s"];
        let said = checked(&bad).unwrap_err();
        for flag in ["rate", "posts", "unlike-ratio", "hot-share", "verify", "stream-retention"] {
            assert!(said.contains(&format!("--{flag} ")), "{flag}: {said}");
        }
        assert!(checked(&["--posts=100000", "--users=100000"]).unwrap_err().contains("--users"));
        assert!(checked(&["--chaos", "--dynamodb-endpoint=http://localhost:4566"]).unwrap_err().contains("--chaos"));
        let of_the_emulator = [
            "--stream-delay=1ms",
            "--store-latency=1ms",
            "--store-batch-latency=1ms",
            "--store-call-latency=1ms",
            "--key-write-units=1",
            "--key-read-units=1",
        ];
        for flag in of_the_emulator {
            let said = checked(&[flag, "--dynamodb-endpoint=http://localhost:4566"]).unwrap_err();
            assert!(said.contains(flag.split('=').next().unwrap()), "{said}");
        }
        assert!(checked(&["--milestones=x"]).unwrap_err().contains("--milestones (TALLY_MILESTONES)"));
        for flag in ["--store-latency", "--store-batch-latency", "--store-call-latency"] {
            assert!(checked(&[&format!("{flag}=40ms..20ms")]).unwrap_err().contains("shorter"), "{flag}");
        }
        let late = checked(&["--stream-delay=15m"]).unwrap_err();
        assert!(late.contains("--stream-delay (TALLY_STREAM_DELAY): must be shorter"), "{late}");
        assert!(checked(&["--verify", "--duration=1s", "--no-load"]).unwrap_err().contains("--no-load"));
    }

    #[test]
    fn flags_of_the_embedded_store_reach_it() {
        let flags = [
            "--stream-delay=2s",
            "--store-latency=20ms..40ms",
            "--store-batch-latency=8ms..25ms",
            "--store-call-latency=3ms..8ms",
        ];
        let emulated = checked(&flags).unwrap().0.emulated();
        let span = |text: &str| Some(text.parse().unwrap());
        assert_eq!(emulated.stream_delay, Duration::from_secs(2));
        assert_eq!(emulated.transaction_latency, span("20ms..40ms"));
        assert_eq!(emulated.batch_latency, span("8ms..25ms"));
        assert_eq!(emulated.latency, span("3ms..8ms"));
    }

    #[test]
    fn an_engine_outside_this_process_takes_no_port() {
        let wanted = checked(&["--brokers=b:1", "--dynamodb-endpoint=http://x"]).unwrap().1.wanted;
        assert!(wanted.kafka.is_none() && wanted.store.is_none());
    }

    #[test]
    fn a_second_region_has_embedded_engines_and_another_load_and_real_engines_are_refused() {
        assert!(checked(&[]).unwrap().1.second.is_none());
        let (args, wanted) = checked(&["--regions=2", "--chaos", "--seed=7"]).unwrap().1.second.unwrap();
        assert_eq!((args.seed, args.chaos, args.no_trends), (8, false, true));
        assert!(wanted.kafka.is_some() && wanted.store.is_some());
        for real in ["--brokers=b:9092", "--dynamodb-endpoint=http://localhost:4566", "--redis=redis://localhost:6379"]
        {
            let said = checked(&["--regions=2", real]).unwrap_err();
            assert!(said.contains(real.split('=').next().unwrap()) && said.contains("--regions 2"), "{said}");
        }
        for count in ["--regions=0", "--regions=3"] {
            assert!(checked(&[count]).unwrap_err().contains("--regions"), "{count}");
        }
    }

    #[test]
    fn a_port_in_use_is_named_with_the_flag_that_changes_it() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        for flag in ["kafka-port", "dynamodb-port", "api-port"] {
            let said = checked(&[&format!("--{flag}={port}")]).unwrap_err();
            assert!(said.contains(&format!("--{flag} (TALLY_")) && said.contains("is in use"), "{said}");
        }
        let said = checked(&[&format!("--admin-listen=127.0.0.1:{port}")]).unwrap_err();
        assert!(said.contains("--admin-listen") && said.contains("is in use"), "{said}");
    }
}
