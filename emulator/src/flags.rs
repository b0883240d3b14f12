//! The command line: the configuration and the settings of the process, as flags and environment variables.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::{Context, anyhow, ensure};
use clap::{CommandFactory, Parser};
use tally_emulator::{Config, Policies, Rule};

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

    #[command(flatten)]
    config: Config,

    /// File with fault rules, a JSON array as the control route takes it.
    #[arg(long, env = "TALLY_EMULATOR_FAULTS")]
    faults: Option<PathBuf>,

    /// CloudFormation template with roles. The access key of a request then names its role, and what that role's policies do not allow is refused; `root` may do everything. At the end, what was granted and not needed is listed.
    #[arg(long, env = "TALLY_EMULATOR_POLICIES", value_name = "FILE")]
    policies: Option<PathBuf>,

    /// What to log, on standard error, as a tracing filter.
    #[arg(long, env = "TALLY_EMULATOR_LOG", default_value = "warn")]
    pub(crate) log: String,
}

impl Flags {
    pub(crate) fn into_config(self) -> anyhow::Result<Config> {
        ensure!(
            self.config.stream_reorder <= self.config.stream_delay,
            "--stream-reorder must not exceed --stream-delay: records that a reader may have seen cannot be reordered"
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
        Ok(Config { faults, policies: policies.transpose()?, ..self.config })
    }
}

/// The prefix of every variable of the emulator.
const OURS: &str = "TALLY_EMULATOR_";

/// Reports the first unknown variable with the emulator's prefix. It is most likely a mistake that nothing else would report.
pub(crate) fn unknown_variable(given: impl Iterator<Item = OsString>) -> Option<anyhow::Error> {
    let command = Flags::command();
    let own = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    let own: Vec<&str> = own.collect();
    // Kubernetes tells every container the address of a service called `tally-emulator`.
    let is_service_link = |name: &str| name.contains("_SERVICE_") || name.starts_with("TALLY_EMULATOR_PORT_");
    let given = given.filter_map(|name| name.into_string().ok());
    let unknown =
        given.filter(|name| name.starts_with(OURS) && !own.contains(&name.as_str()) && !is_service_link(name));
    unknown.min().map(|name| {
        let nearest = own.iter().min_by_key(|own| strsim::damerau_levenshtein(own, &name)).copied().unwrap_or(OURS);
        anyhow!("{name}: the emulator has no such setting: did you mean {nearest}?")
    })
}

fn rules(path: &std::path::Path) -> anyhow::Result<Vec<Rule>> {
    Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_variable_is_refused_with_the_most_similar_one() {
        let refused = |names: &[&str]| {
            let problem = unknown_variable(names.iter().map(OsString::from));
            problem.map(|problem| problem.to_string())
        };
        assert_eq!(
            refused(&["TALLY_EMULATOR_SEDE", "TALLY_EMULATOR_SEED"]).as_deref(),
            Some("TALLY_EMULATOR_SEDE: the emulator has no such setting: did you mean TALLY_EMULATOR_SEED?")
        );
        let others = ["TALLY_RATE", "TALLY_EMULATOR_SERVICE_HOST", "TALLY_EMULATOR_PORT_8000_TCP", "PATH"];
        assert_eq!(refused(&others), None, "other programs' and Kubernetes' own");
    }

    #[test]
    fn the_flags_are_consistent() {
        Flags::command().debug_assert();
    }

    #[test]
    fn the_defaults_of_the_flags_equal_those_of_the_library() {
        let flags = Flags::parse_from(["tally-emulator"]).into_config().unwrap();
        assert_eq!(format!("{flags:?}"), format!("{:?}", Config::default()));
    }
}
