//! A Redis server of our own, where one is installed: on a free port of the loopback, in a folder of its own, gone when
//! dropped.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use tally_adapters::redis::{PartitionCache, Settings};
use tally_core::ids::CachePrefix;
use tally_testkit::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The environment variable that names the server's binary, such as Valkey's.
const SERVER: &str = "TALLY_REDIS_SERVER";

/// How long a server may take to start, or to follow another.
const START: Duration = Duration::from_secs(20);

/// A running server.
#[derive(Debug)]
pub(crate) struct Redis {
    child: Mutex<Child>,
    address: SocketAddr,
    folder: PathBuf,
}

impl Redis {
    /// `None` where there is no such binary.
    pub(crate) async fn start() -> anyhow::Result<Option<Self>> {
        Self::start_with(&[]).await
    }

    async fn start_with(more: &[&str]) -> anyhow::Result<Option<Self>> {
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        let nth = SERVERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tally-attack-redis-{}-{nth}", std::process::id()));
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?;
        std::fs::create_dir_all(&folder).context("cannot make a folder for Redis")?;
        let binary = std::env::var(SERVER).unwrap_or_else(|_| "redis-server".to_owned());
        let mut command = Command::new(binary);
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]);
        command.arg(address.port().to_string()).args(more).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            let _ = std::fs::remove_dir_all(&folder);
            return Ok(None);
        };
        let server = Self { child: Mutex::new(child), address, folder };
        let answers = async || server.ask("PING").await.is_ok_and(|answer| answer.contains("PONG"));
        until("Redis to answer", START, answers).await?;
        Ok(Some(server))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Another server that has all of this one's and follows it.
    pub(crate) async fn replica(&self) -> anyhow::Result<Self> {
        let port = self.address.port().to_string();
        let replica =
            Self::start_with(&["--replicaof", "127.0.0.1", &port]).await?.context("there was a server before")?;
        let follows =
            async || replica.ask("INFO replication").await.is_ok_and(|said| said.contains("master_link_status:up"));
        until("the replica to follow", START, follows).await?;
        Ok(replica)
    }

    /// It follows no other server any more.
    pub(crate) async fn detach(&self) -> anyhow::Result<()> {
        let answer = self.ask("REPLICAOF NO ONE").await?;
        ensure!(answer.starts_with("+OK"), "Redis answered {answer:?}");
        Ok(())
    }

    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }

    /// What it answers to a command, or the beginning of it.
    async fn ask(&self, command: &str) -> anyhow::Result<String> {
        let mut connection = TcpStream::connect(self.address).await?;
        connection.write_all(format!("{command}\r\n").as_bytes()).await?;
        let mut answer = vec![0; 16 << 10];
        let length = timeout(Duration::from_secs(2), connection.read(&mut answer)).await??;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    /// What the deployment of tables under `prefix` has cached there, by no proxy.
    pub(crate) fn cache(&self, prefix: &str) -> anyhow::Result<PartitionCache> {
        let prefix = CachePrefix::of_tables(prefix);
        let settings = Settings { timeout: Duration::from_secs(2), prefix, ..Settings::at(vec![url(self.address)]) };
        Ok(PartitionCache::new(&settings)?)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The URL of a server at `address`.
pub(crate) fn url(address: SocketAddr) -> String {
    format!("redis://{address}")
}
