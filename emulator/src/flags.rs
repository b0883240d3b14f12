//! The command line of the program `tally-emulator`: the emulator's configuration and the settings of the process, as
//! flags and environment variables.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Parser;
use tally_emulator::{Config, Policies};
use tally_service::telemetry::Filter;

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
    pub(crate) log: Filter,
}

impl Flags {
    pub(crate) fn into_config(self) -> anyhow::Result<Config> {
        ensure!(
            self.config.stream_reorder <= self.config.stream_delay,
            "--stream-reorder must not exceed --stream-delay: records that a reader may have seen cannot be reordered"
        );
        let faults = given("--faults", self.faults, |text| Ok(serde_json::from_str(text)?))?.unwrap_or_default();
        let policies = given("--policies", self.policies, |template| Policies::of(&serde_saphyr::from_str(template)?))?;
        Ok(Config { faults, policies, ..self.config })
    }
}

/// The contents of the file that a flag names, if it is given.
fn given<T>(
    flag: &str,
    path: Option<PathBuf>,
    read: impl FnOnce(&str) -> anyhow::Result<T>,
) -> anyhow::Result<Option<T>> {
    let contents = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).map_err(anyhow::Error::from);
        text.and_then(|text| read(&text)).with_context(|| format!("{flag} {}", path.display()))
    };
    path.map(contents).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_consistent_and_every_program_knows_their_variables() {
        <Flags as clap::CommandFactory>::command().debug_assert();
        assert_eq!(tally_service::unlisted::<Flags>(), Vec::<String>::new());
    }
}
