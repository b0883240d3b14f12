//! The command line: every knob of the configuration, as a flag and as an environment variable.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, anyhow, ensure};
use clap::{CommandFactory, Parser};
use tally_emulator::{Config, Latency, Policies, Rule, parse_duration};

/// An in-memory DynamoDB and DynamoDB Streams over the real wire protocol, with stream shards that split and faults on demand.
#[derive(Debug, Parser)]
#[command(name = "tally-emulator", version)]
pub(crate) struct Flags {
    /// Port to listen on; 0 is any free one.
    #[arg(long, env = "TALLY_EMULATOR_PORT", default_value_t = 8000)]
    pub(crate) port: u16,

    /// Address to listen on. There is no authentication: keep it on loopback.
    #[arg(long, env = "TALLY_EMULATOR_HOST", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) host: IpAddr,

    /// Open shards of a new stream.
    #[arg(long, env = "TALLY_EMULATOR_SHARDS", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: u32,

    /// How long stream records and closed shards can be read.
    #[arg(long, env = "TALLY_EMULATOR_STREAM_RETENTION", default_value = "24h", value_parser = parse_duration)]
    stream_retention: Duration,

    /// Age at which an open shard is closed and continued by a child; 0 is never.
    #[arg(long, env = "TALLY_EMULATOR_ROLL_AFTER", default_value = "4h", value_parser = parse_duration)]
    roll_after: Duration,

    /// Records after which a shard is split.
    #[arg(long, env = "TALLY_EMULATOR_SPLIT_AFTER", value_parser = clap::value_parser!(u64).range(1..))]
    split_after: Option<u64>,

    /// Let splits cut through a collection, in tables without a local index.
    #[arg(long, env = "TALLY_EMULATOR_SPLIT_COLLECTIONS")]
    split_collections: bool,

    /// A change appears in the stream at some moment within this bound.
    #[arg(long, env = "TALLY_EMULATOR_STREAM_DELAY", default_value = "0ms", value_parser = parse_duration)]
    stream_delay: Duration,

    /// Changes of different items may change places in the stream within this bound; at most the stream delay.
    #[arg(long, env = "TALLY_EMULATOR_STREAM_REORDER", default_value = "0ms", value_parser = parse_duration)]
    stream_reorder: Duration,

    /// Reads without ConsistentRead answer with the state of some moment within this bound.
    #[arg(long, env = "TALLY_EMULATOR_READ_LAG", default_value = "100ms", value_parser = parse_duration)]
    read_lag: Duration,

    /// How long a transaction takes to be answered, each time within these bounds: 20ms..40ms is what the real store takes.
    #[arg(long, env = "TALLY_EMULATOR_TRANSACTION_LATENCY", value_name = "SPAN..SPAN")]
    transaction_latency: Option<Latency>,

    /// How long a batch takes, of statements, reads or writes: 8ms..25ms is what the real store takes; as long as every other request if absent.
    #[arg(long, env = "TALLY_EMULATOR_BATCH_LATENCY", value_name = "SPAN..SPAN")]
    batch_latency: Option<Latency>,

    /// How long every other request takes: 3ms..8ms is what the real store takes.
    #[arg(long, env = "TALLY_EMULATOR_LATENCY", value_name = "SPAN..SPAN")]
    latency: Option<Latency>,

    /// Write units that the items of one partition key may use in a second; more is throttled, with the reasons that the real store gives, which lets each have 1000.
    #[arg(long, env = "TALLY_EMULATOR_KEY_WRITE_UNITS", value_parser = clap::value_parser!(u32).range(1..))]
    key_write_units: Option<u32>,

    /// Read units that the items of one partition key may use in a second; the real store lets each have 3000.
    #[arg(long, env = "TALLY_EMULATOR_KEY_READ_UNITS", value_parser = clap::value_parser!(u32).range(1..))]
    key_read_units: Option<u32>,

    /// Seed of the random generator.
    #[arg(long, env = "TALLY_EMULATOR_SEED", default_value_t = 0)]
    seed: u64,

    /// What the clock shows at the start, in seconds since the Unix epoch; the machine's time if absent.
    #[arg(long, env = "TALLY_EMULATOR_EPOCH")]
    epoch: Option<u64>,

    /// Region in names of resources and in stream records.
    #[arg(long, env = "TALLY_EMULATOR_REGION", default_value = "us-east-1")]
    region: String,

    /// File with fault rules, a JSON array as the control route takes it.
    #[arg(long, env = "TALLY_EMULATOR_FAULTS")]
    faults: Option<PathBuf>,

    /// CloudFormation template with roles. The access key of a request then names its role, and what that role's policies do not allow is refused; `root` may do everything. At the end, what was granted and not needed is listed.
    #[arg(long, env = "TALLY_EMULATOR_POLICIES", value_name = "FILE")]
    policies: Option<PathBuf>,

    /// Answer the control routes under /_control/.
    #[arg(long, env = "TALLY_EMULATOR_CONTROL")]
    control: bool,

    /// What to log, on standard error, as a tracing filter.
    #[arg(long, env = "TALLY_EMULATOR_LOG", default_value = "warn")]
    pub(crate) log: String,
}

impl Flags {
    pub(crate) fn into_config(self) -> anyhow::Result<Config> {
        ensure!(
            self.stream_reorder <= self.stream_delay,
            "--stream-reorder is larger than --stream-delay: what a reader has seen cannot change places"
        );
        let faults = match &self.faults {
            None => Vec::new(),
            Some(path) => rules(path).with_context(|| format!("--faults {}", path.display()))?,
        };
        let policies = self.policies.as_ref().map(|path| {
            let template = std::fs::read_to_string(path).map_err(anyhow::Error::from);
            let read = template.and_then(|template| {
                let template: serde_json::Value = serde_saphyr::from_str(&template)?;
                Ok(Policies::of(&template)?)
            });
            read.with_context(|| format!("--policies {}", path.display()))
        });
        Ok(Config {
            seed: self.seed,
            epoch: self.epoch.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds)),
            region: self.region,
            shards: self.shards,
            stream_retention: self.stream_retention,
            roll_after: Some(self.roll_after).filter(|age| !age.is_zero()),
            split_after: self.split_after,
            split_collections: self.split_collections,
            stream_delay: self.stream_delay,
            stream_reorder: self.stream_reorder,
            read_lag: self.read_lag,
            transaction_latency: self.transaction_latency,
            batch_latency: self.batch_latency,
            latency: self.latency,
            key_write_units: self.key_write_units,
            key_read_units: self.key_read_units,
            faults,
            policies: policies.transpose()?,
            control: self.control,
            ..Config::default()
        })
    }
}

/// What the name of every variable of the emulator begins with.
const OURS: &str = "TALLY_EMULATOR_";

/// What is wrong with the first variable that is named like one of the emulator's and is none: most likely a mistake, which
/// nothing else would tell.
pub(crate) fn unknown_variable(given: impl Iterator<Item = OsString>) -> Option<anyhow::Error> {
    let command = Flags::command();
    let own = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    let own: Vec<&str> = own.collect();
    // Kubernetes tells every container of a service called `tally-emulator` where it is.
    let is_service_link = |name: &str| name.contains("_SERVICE_") || name.starts_with("TALLY_EMULATOR_PORT_");
    let given = given.filter_map(|name| name.into_string().ok());
    let unknown =
        given.filter(|name| name.starts_with(OURS) && !own.contains(&name.as_str()) && !is_service_link(name));
    unknown.min().map(|name| {
        let nearest = own.iter().min_by_key(|own| strsim::damerau_levenshtein(own, &name)).copied().unwrap_or(OURS);
        anyhow!("{name}: the emulator has no such setting: is it {nearest}")
    })
}

fn rules(path: &std::path::Path) -> anyhow::Result<Vec<Rule>> {
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_the_emulator_has_not_is_refused_with_the_nearest() {
        let refused = |names: &[&str]| {
            let problem = unknown_variable(names.iter().map(OsString::from));
            problem.map(|problem| problem.to_string())
        };
        assert_eq!(
            refused(&["TALLY_EMULATOR_SEDE", "TALLY_EMULATOR_SEED"]).as_deref(),
            Some("TALLY_EMULATOR_SEDE: the emulator has no such setting: is it TALLY_EMULATOR_SEED")
        );
        let others = ["TALLY_RATE", "TALLY_EMULATOR_SERVICE_HOST", "TALLY_EMULATOR_PORT_8000_TCP", "PATH"];
        assert_eq!(refused(&others), None, "other programs' and Kubernetes' own");
    }

    #[test]
    fn the_flags_are_consistent() {
        Flags::command().debug_assert();
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_library() {
        let flags = Flags::parse_from(["tally-emulator"]).into_config().unwrap();
        assert_eq!(format!("{flags:?}"), format!("{:?}", Config::default()));
    }
}
