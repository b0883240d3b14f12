//! Where the cache is, how long a call to it may take, and how long counts stay in it.

use std::fmt;
use std::time::Duration;

use tally_core::ids::CachePrefix;

/// How the cache is set up.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    /// `redis://` or `rediss://` URLs: one server, or some nodes of a cluster.
    pub nodes: Vec<String>,
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
        if nodes.iter().any(|node| super::check_node(node).is_err()) {
            return Err("write redis://HOST:PORT, rediss://HOST:PORT, or `off`");
        }
        let usual = Self::at(nodes);
        Ok(Some(Self { cluster: cluster || usual.cluster, prefix: CachePrefix::of_tables(table_prefix), ..usual }))
    }

    /// Settings with the usual times, for the server or the nodes at `nodes`.
    pub fn at(nodes: Vec<String>) -> Self {
        Self {
            cluster: nodes.len() > 1,
            nodes,
            prefix: CachePrefix::default(),
            ttl: Duration::from_secs(600),
            timeout: Duration::from_millis(250),
        }
    }
}

/// Leaves out the addresses: they may carry a password.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, cluster, prefix, ttl, timeout } = self;
        let mut debug = f.debug_struct("Settings");
        debug.field("nodes", &nodes.len()).field("cluster", cluster).field("prefix", prefix);
        debug.field("ttl", ttl).field("timeout", timeout).finish()
    }
}
