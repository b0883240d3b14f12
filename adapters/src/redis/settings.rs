//! How the cache is reached, and how long things stay in it.

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
    /// What the keys of this deployment begin with.
    pub prefix: CachePrefix,
    /// The longest a count stays unless it is updated.
    pub ttl: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

impl Settings {
    /// The cache of a deployment at an address as operators write it: `redis://host:port`, `rediss://` with TLS, several nodes of
    /// a cluster separated by commas, or `off`, which is `None`. One node may be in cluster mode, too.
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

    /// The usual times, for the server or the nodes at `nodes`.
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

/// Without the addresses: they may carry a password.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, cluster, prefix, ttl, timeout } = self;
        let mut debug = f.debug_struct("Settings");
        debug.field("nodes", &nodes.len()).field("cluster", cluster).field("prefix", prefix);
        debug.field("ttl", ttl).field("timeout", timeout).finish()
    }
}
