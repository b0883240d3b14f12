//! The cache over Redis or Valkey, one server or a cluster, by a few fixed scripts and `MGET`. The keys of each command
//! are in one hash slot.
//!
//! Keys and texts are those of `tally_core::cached`, and the scripts follow its rules: no late or repeated write brings
//! an older version back.

mod link;
mod partitions;
mod scripts;

use std::time::Duration;

use redis::{IntoConnectionInfo as _, RedisError, Value};
use tally_core::fault::Fault;
use tally_core::ids::CachePrefix;
use tally_service::Secret;

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
    /// Parses the address of a deployment's cache as operators write it: `redis://host:port`, `rediss://` with TLS,
    /// several nodes of a cluster separated by commas, or `off`, which is `None`. One node may be in cluster mode, too.
    ///
    /// # Errors
    /// What an address has to look like; never the address, which may carry a password.
    pub fn parse(address: &str, cluster: bool, table_prefix: &str) -> Result<Option<Self>, &'static str> {
        if address == "off" {
            return Ok(None);
        }
        let nodes: Vec<String> = address.split(',').map(|url| url.trim().to_owned()).collect();
        if nodes.iter().any(|node| check_node(node).is_err()) {
            return Err("write redis://HOST:PORT, rediss://HOST:PORT, or `off`");
        }
        let usual = Self::at(nodes);
        Ok(Some(Self { cluster: cluster || usual.cluster, prefix: CachePrefix::of_tables(table_prefix), ..usual }))
    }

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
