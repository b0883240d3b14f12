//! A Redis server of its own for each test, if one is installed: on a free loopback port, with its own folder. It ends when
//! dropped.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::process::{Process, command};
use crate::until;

/// The environment variable that names the server's binary, such as Valkey's.
const SERVER: &str = "TALLY_REDIS_SERVER";

/// How long a server may take to start.
const START: Duration = Duration::from_secs(20);

/// A Redis server, running or killed.
#[derive(Debug)]
pub struct Redis {
    process: Process,
    address: SocketAddr,
    folder: PathBuf,
    more: Vec<String>,
}

impl Redis {
    /// Starts a server with these additional options.
    ///
    /// # Errors
    /// There is no such binary, or the server does not start.
    pub async fn start(more: &[&str]) -> anyhow::Result<Self> {
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        let nth = SERVERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tally-redis-{}-{nth}", std::process::id()));
        std::fs::create_dir_all(&folder).context("cannot create a folder for Redis")?;
        let (address, more) = (free_address(), more.iter().map(|&option| option.to_owned()).collect::<Vec<_>>());
        let process = begin(address, &folder, &more)?;
        let server = Self { process, address, folder, more };
        server.answers().await?;
        Ok(server)
    }

    /// Whether the binary is installed.
    pub fn is_installed() -> bool {
        command(binary()).arg("--version").output().is_ok()
    }

    /// Kills it. Tests never stop it gracefully.
    pub fn kill(&self) {
        let mut child = self.process.child();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Starts it again at the same address, without its data.
    ///
    /// # Errors
    /// The server does not start.
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.process = begin(self.address, &self.folder, &self.more)?;
        self.answers().await
    }

    async fn answers(&self) -> anyhow::Result<()> {
        let answers = async || self.ask("PING").await.is_ok_and(|answer| answer.contains("PONG"));
        until("Redis to answer", START, answers).await.map(drop)
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL for clients.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Sends a command and returns the beginning of the answer.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn ask(&self, command: &str) -> anyhow::Result<String> {
        let mut connection = TcpStream::connect(self.address).await?;
        connection.write_all(format!("{command}\r\n").as_bytes()).await?;
        let mut answer = vec![0; 16 << 10];
        let length = timeout(Duration::from_secs(2), connection.read(&mut answer)).await??;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn binary() -> String {
    std::env::var(SERVER).unwrap_or_else(|_| "redis-server".to_owned())
}

fn begin(address: SocketAddr, folder: &PathBuf, more: &[String]) -> anyhow::Result<Process> {
    let mut command = command(binary());
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &address.port().to_string()]);
    Process::start("redis", command.args(more).current_dir(folder)).with_context(|| format!("{SERVER} names another"))
}

/// A free port. A node of a cluster also listens on its port plus 10000.
fn free_address() -> SocketAddr {
    let free = |port| TcpListener::bind(("127.0.0.1", port)).and_then(|listener| listener.local_addr()).ok();
    let mut some = std::iter::repeat_with(|| free(0)).flatten();
    let fits = |address: &SocketAddr| address.port() < 55_000 && free(address.port() + 10_000).is_some();
    some.find(fits).expect("it never ends")
}
