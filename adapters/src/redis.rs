//! The cache of counters over Redis or Valkey, one server or a cluster, by a few fixed scripts and `MGET`. The keys of
//! each command are in one hash slot.
//!
//! Keys and texts are those of `tally_core::cached`, and the scripts follow its rules: no late or repeated write brings
//! an older version back.

mod link;
mod partitions;
mod scripts;

use std::time::Duration;

use clap::Args;
use redis::{IntoConnectionInfo as _, RedisError, Value};
use tally_core::fault::Fault;
use tally_core::ids::CachePrefix;
use tally_service::{Invalid, Secret};

pub use self::partitions::{ForeignStandings, PartitionCache};

/// How the cache is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `redis://` or `rediss://` URLs: one server, or some nodes of a cluster.
    pub nodes: Vec<Secret>,
    /// Whether the server is in cluster mode.
    pub cluster: bool,
    /// The prefix of this deployment's keys.
    pub prefix: CachePrefix,
    /// How long a count stays at most, unless it is updated.
    pub ttl: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

impl Settings {
    /// Settings with the usual times, for the server or the nodes at `nodes`.
    pub fn at(nodes: Vec<String>) -> Self {
        Self {
            cluster: nodes.len() > 1,
            nodes: nodes.into_iter().map(Secret::from).collect(),
            prefix: CachePrefix::default(),
            ttl: Duration::from_secs(600),
            timeout: Duration::from_millis(250),
        }
    }
}

/// Where the shared cache is.
///
/// A binary that needs the argument says so in its own arguments, by `mut_arg`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cache", about = None, long_about = None)]
pub struct CacheArgs {
    /// The shared cache: `redis://host:port`, `rediss://` with TLS, several nodes of a cluster separated by commas, or
    /// `off`
    #[arg(long, env = "TALLY_REDIS", hide_env_values = true, value_name = "URL")]
    pub redis: Option<Secret>,

    /// Cluster mode, even with one address
    #[arg(long, env = "TALLY_REDIS_CLUSTER")]
    pub redis_cluster: bool,
}

impl CacheArgs {
    /// Returns the address, unless none or an empty one is given.
    pub fn address(&self) -> Option<&str> {
        self.redis.as_ref().map(Secret::expose).filter(|address| !address.is_empty())
    }

    /// Returns the settings of the deployment's cache, unless it is off or no address is given.
    ///
    /// # Errors
    /// What an address has to look like; never the address, which may carry a password.
    pub fn settings(&self, table_prefix: &str) -> Result<Option<Settings>, Invalid> {
        let Some(address) = self.address().filter(|address| *address != "off") else { return Ok(None) };
        let nodes: Vec<String> = address.split(',').map(|url| url.trim().to_owned()).collect();
        if nodes.iter().any(|node| check_node(node).is_err()) {
            return Err(Invalid::setting("redis", "write redis://HOST:PORT, rediss://HOST:PORT, or `off`"));
        }
        let (usual, prefix) = (Settings::at(nodes), CachePrefix::of_tables(table_prefix));
        Ok(Some(Settings { cluster: self.redis_cluster || usual.cluster, prefix, ..usual }))
    }
}

/// Checks that `url` is the address of a server or of a node.
///
/// # Errors
/// What it has to look like; never the URL, which may carry a password.
pub fn check_node(url: &str) -> Result<(), &'static str> {
    let is_node = ["redis://", "rediss://"].iter().any(|scheme| url.starts_with(scheme));
    if is_node && url.into_connection_info().is_ok() { Ok(()) } else { Err("not a URL such as redis://127.0.0.1:6379") }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text.as_str()),
        _ => None,
    }
}

/// Every error of the cache is transient: no answer depends on the cache, and stopping for it would help nothing.
fn fault(error: &RedisError) -> Fault {
    Fault::Transient(format!("redis: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_off_or_a_server_or_nodes_of_a_cluster_and_anything_else_is_refused() {
        let settings = |address: &str, redis_cluster| {
            let args = CacheArgs { redis: Some(Secret::from(address.to_owned())), redis_cluster };
            args.settings("")
        };
        for (address, redis_cluster, nodes, cluster) in [
            ("redis://a:1", false, &["redis://a:1"][..], false),
            ("rediss://:canary@a:1", true, &["rediss://:canary@a:1"], true),
            ("redis://a:1, redis://b:1 ", false, &["redis://a:1", "redis://b:1"], true),
        ] {
            let settings = settings(address, redis_cluster).unwrap().unwrap();
            assert!(settings.nodes.iter().map(Secret::expose).eq(nodes.iter().copied()), "{address}");
            assert_eq!(settings.cluster, cluster, "{address}");
        }
        assert_eq!(["off", ""].map(|none| settings(none, true).unwrap()), [None, None]);
        for bad in ["a:1", "redis://", "redis://a:99999", "redis://a:1,", "redis://a:1,b:1", "rediss://:canary"] {
            let refused = settings(bad, false).unwrap_err().to_string();
            assert!(refused.contains("--redis") && !refused.contains("canary"), "{bad}: {refused}");
        }
    }
}
