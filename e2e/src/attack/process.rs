//! One process of a service: started, signalled, asked, measured, and killed when its handle is dropped.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::time::Instant;

use super::http::{self, Answer};
use super::service::Service;
use super::wait::until;

/// How long a service may take to be ready: joining a group of the in-process cluster takes several rebalances of nine
/// seconds and more, and the processors may be busy.
const READY: Duration = Duration::from_secs(300);

/// How long a service may drain.
pub(crate) const GRACE: Duration = Duration::from_secs(25);

/// Lines of a log that are worth showing.
const TAIL: usize = 25;

/// What a process is told by its system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Kill,
    Stop,
    Cont,
    Term,
}

impl Signal {
    fn flag(self) -> &'static str {
        match self {
            Self::Kill => "-KILL",
            Self::Stop => "-STOP",
            Self::Cont => "-CONT",
            Self::Term => "-TERM",
        }
    }
}

/// A process of a service.
#[derive(Debug)]
pub(crate) struct Process {
    service: Service,
    id: u32,
    child: Mutex<Child>,
    log: PathBuf,
    output: PathBuf,
    admin: OnceLock<SocketAddr>,
    public: OnceLock<SocketAddr>,
}

impl Process {
    /// Calls `program` by the service's name. Nothing of this process's own settings reaches it.
    pub(crate) fn start(
        program: &Path,
        service: Service,
        args: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let stem = format!("tally-attack-{}-{nth}-{service}", std::process::id());
        let [log, output] = ["log", "out"].map(|kind| std::env::temp_dir().join(format!("{stem}.{kind}")));
        let mut command = Command::new(program);
        command.arg0(service.binary()).args(args);
        let ours = std::env::vars_os().map(|(name, _)| name);
        let ours = ours.filter(|name| ["TALLY_", "AWS_"].iter().any(|its| name.to_string_lossy().starts_with(its)));
        ours.for_each(|name| _ = command.env_remove(name));
        command.envs(environment.iter().copied()).stdin(Stdio::null());
        command.stdout(File::create(&output).context("cannot keep what a process prints")?);
        command.stderr(File::create(&log).context("cannot keep a process's log")?);
        let child = command.spawn().with_context(|| format!("cannot start the {service}"))?;
        let id = child.id();
        Ok(Self { service, id, child: Mutex::new(child), log, output, admin: OnceLock::new(), public: OnceLock::new() })
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let sent = Command::new("kill").args([signal.flag(), &self.id.to_string()]).status().context("no `kill`")?;
        ensure!(sent.success(), "the {} was gone before it could be signalled\n{}", self.service, self.tail());
        Ok(())
    }

    /// Whether it has ended, and with which code; a process that was killed has none.
    fn ended(&self) -> anyhow::Result<Option<Option<i32>>> {
        Ok(self.child().try_wait().context("a child cannot be waited for")?.map(|status| status.code()))
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.ended(), Ok(None))
    }

    /// Its exit code, `None` for one that was killed.
    pub(crate) async fn exit(&self, limit: Duration) -> anyhow::Result<Option<i32>> {
        let mut code = None;
        let what = format!("the {} to end", self.service);
        let ended = until(&what, limit, async || {
            code = self.ended().ok().flatten();
            code.is_some()
        });
        ended.await.with_context(|| self.tail())?;
        Ok(code.flatten())
    }

    /// Ends it as an out-of-memory killer would.
    pub(crate) async fn kill(&self) -> anyhow::Result<()> {
        self.signal(Signal::Kill)?;
        let code = self.exit(GRACE).await?;
        ensure!(code.is_none(), "the {} ended by itself before it was killed: {code:?}\n{}", self.service, self.tail());
        Ok(())
    }

    /// Ends it in order; how long it drained.
    pub(crate) async fn stop(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.signal(Signal::Term)?;
        let code = self.exit(GRACE + Duration::from_secs(1)).await?;
        ensure!(code == Some(0), "the {} ended with {code:?} when it was stopped\n{}", self.service, self.tail());
        Ok(began.elapsed())
    }

    /// Waits until it says that it is ready; how long that took.
    pub(crate) async fn ready(&self) -> anyhow::Result<Duration> {
        let mut ended = false;
        let what = format!("the {} to be ready", self.service);
        let ready = until(&what, READY, async || {
            ended = !self.is_running();
            ended || self.get("/readyz").await.is_some_and(|answer| answer.status == 200)
        });
        let took = ready.await.with_context(|| self.tail())?;
        if ended {
            bail!("the {} ended before it was ready\n{}", self.service, self.tail());
        }
        Ok(took)
    }

    /// What its admin listener answers.
    pub(crate) async fn get(&self, path: &str) -> Option<Answer> {
        http::get(self.listening(&self.admin, "admin listening")?, path).await
    }

    /// Where the public is served, once it is.
    pub(crate) fn public(&self) -> Option<SocketAddr> {
        self.listening(&self.public, "listening")
    }

    fn listening(&self, known: &OnceLock<SocketAddr>, message: &str) -> Option<SocketAddr> {
        if let Some(address) = known.get() {
            return Some(*address);
        }
        let log = std::fs::read_to_string(&self.log).ok()?;
        let mut events = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let address = events.find(|event| event["message"] == message)?["address"].as_str()?.parse().ok()?;
        Some(*known.get_or_init(|| address))
    }

    /// What it has printed.
    pub(crate) fn printed(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// The most memory it ever had, in bytes, where the system tells.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        peak_memory(self.id)
    }

    /// Whether it stands still, where the system tells.
    pub(crate) fn is_stopped(&self) -> Option<bool> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id)).ok()?;
        let (_, after_name) = stat.rsplit_once(')')?;
        Some(after_name.trim_start().starts_with('T'))
    }

    /// The end of its log.
    pub(crate) fn tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        format!("--- the end of the log of a {}:\n{tail}\n---", self.service)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The most memory that the process `id` ever had, in bytes, where the system tells.
pub(super) fn peak_memory(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(peak.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone unless a campaign failed; one that stands still ends by this too.
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
        let _ = std::fs::remove_file(&self.log);
        let _ = std::fs::remove_file(&self.output);
    }
}
