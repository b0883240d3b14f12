//! A Redis server of our own, where one is installed: on a free port of the loopback, in a folder of its own, gone when
//! dropped.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use tally_adapters::redis::{Cache, Settings};
use tally_core::ids::{CachePrefix, CounterId};
use tally_core::ports::Cache as _;

use super::wait::until;

/// The environment variable that names the server's binary, such as Valkey's.
const SERVER: &str = "TALLY_REDIS_SERVER";

/// A running server.
#[derive(Debug)]
pub(crate) struct Redis {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
}

impl Redis {
    /// `None` where there is no such binary.
    pub(crate) async fn start() -> anyhow::Result<Option<Self>> {
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        let nth = SERVERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tally-attack-redis-{}-{nth}", std::process::id()));
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?;
        std::fs::create_dir_all(&folder).context("cannot make a folder for Redis")?;
        let binary = std::env::var(SERVER).unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(binary);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]);
        command.arg(address.port().to_string()).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            let _ = std::fs::remove_dir_all(&folder);
            return Ok(None);
        };
        let server = Self { child, address, folder };
        let (cache, nothing) = (server.cache("")?, CounterId::likes("nothing".parse().context("an id")?));
        let nothing = std::slice::from_ref(&nothing);
        until("Redis to answer", Duration::from_secs(20), async || cache.get(nothing).await.is_ok()).await?;
        Ok(Some(server))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the deployment of tables under `prefix` has cached there, by no proxy.
    pub(crate) fn cache(&self, prefix: &str) -> anyhow::Result<Cache> {
        let prefix = CachePrefix::of_tables(prefix);
        let settings = Settings { timeout: Duration::from_secs(2), prefix, ..Settings::at(vec![url(self.address)]) };
        Ok(Cache::new(&settings)?)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The URL of a server at `address`.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("redis://{address}")
}
