//! Starts programs as child processes for tests, without this environment's settings for Tally and AWS. Tests send them
//! signals, ask their health, and wait for their output and their exit.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Pid, kill_process};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::http::{self, Answer};
use crate::{PATIENCE, until};

pub use rustix::process::Signal;

/// The grace period of a service.
pub const GRACE: Duration = Duration::from_secs(25);

/// How many of the last log lines an error shows.
const TAIL: usize = 25;

/// Held while a process is started: until its program is loaded, a child shares every open socket.
static SPAWNING: Mutex<()> = Mutex::new(());

/// Prevents the start of a process while the guard is held.
pub(crate) fn no_spawning() -> MutexGuard<'static, ()> {
    SPAWNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command without this process's standard input and without its settings for Tally and AWS.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let names = std::env::vars_os().map(|(name, _)| name);
    let ours = names.filter(|name| ["TALLY_", "AWS_"].iter().any(|its| name.to_string_lossy().starts_with(its)));
    ours.for_each(|name| _ = command.env_remove(name));
    command.stdin(Stdio::null());
    command
}

/// A standard input that contains `text`.
///
/// # Panics
/// If no temporary file can be created.
pub fn input(text: &str) -> Stdio {
    let mut file = scratch().expect("a temporary file can be made");
    file.write_all(text.as_bytes()).and_then(|()| file.rewind()).expect("it can be written");
    file.into()
}

/// A file that is deleted with its last handle.
fn scratch() -> io::Result<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("tally-testkit-{}-{nth}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// The contents of a file to which another process appends.
fn contents(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |it| usize::try_from(it.len()).unwrap_or_default())];
    let read = file.read_at(&mut bytes, 0).unwrap_or_default();
    String::from_utf8_lossy(&bytes[..read]).into_owned()
}

/// The result of a program that has ended.
#[derive(Debug)]
pub struct Done {
    /// The exit code; `None` if the process was killed.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its log.
    pub err: String,
}

impl Done {
    /// Its standard output as JSON.
    ///
    /// # Panics
    /// If the output is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a program until it ends.
///
/// # Panics
/// If it does not start or does not end.
pub async fn run(command: &mut Command) -> Done {
    let process = Process::start("program", command).expect("the program begins");
    Done { code: process.code().await, out: process.printed(), err: process.log() }
}

/// A running program. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    id: Pid,
    child: Mutex<Child>,
    out: File,
    log: File,
    admin: OnceLock<SocketAddr>,
    public: OnceLock<SocketAddr>,
}

impl Process {
    /// Starts a program, and keeps its output and log.
    ///
    /// # Errors
    /// The program cannot be started, or no temporary file created.
    pub fn start(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let log = scratch()?;
        Self::begin(log.try_clone()?, log, name, command)
    }

    /// Starts a program whose log goes to `stderr`.
    ///
    /// # Errors
    /// The program cannot be started, or no temporary file created.
    pub fn logging_to(stderr: impl Into<Stdio>, name: &str, command: &mut Command) -> anyhow::Result<Self> {
        Self::begin(stderr, scratch()?, name, command)
    }

    fn begin(stderr: impl Into<Stdio>, log: File, name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let out = scratch()?;
        command.stdout(out.try_clone()?).stderr(stderr);
        let held = no_spawning();
        let child = command.spawn().with_context(|| format!("cannot start the {name}"))?;
        drop(held);
        let (name, id, child) = (name.to_owned(), Pid::from_child(&child), Mutex::new(child));
        Ok(Self { name, id, child, out, log, admin: OnceLock::new(), public: OnceLock::new() })
    }

    /// The child process, for access to its pipes.
    pub fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// It has already ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        ensure!(self.is_running(), "the {} had ended before it could be signalled\n{}", self.name, self.tail());
        kill_process(self.id, signal).with_context(|| format!("cannot signal the {}", self.name))
    }

    /// The exit code if it has ended; the inner `None` means that it was killed.
    fn ended(&self) -> Option<Option<i32>> {
        self.child().try_wait().ok().flatten().map(|status| status.code())
    }

    pub fn is_running(&self) -> bool {
        self.ended().is_none()
    }

    /// Waits for the exit code; `None` if it was killed.
    ///
    /// # Errors
    /// It did not end within `limit`.
    pub async fn exit(&self, limit: Duration) -> anyhow::Result<Option<i32>> {
        let what = format!("the {} to end", self.name);
        until(&what, limit, async || !self.is_running()).await.with_context(|| self.tail())?;
        Ok(self.ended().flatten())
    }

    /// Waits for the exit code.
    ///
    /// # Panics
    /// If it does not end.
    pub async fn code(&self) -> Option<i32> {
        self.exit(PATIENCE).await.expect("it ends")
    }

    /// Kills it, as the out-of-memory killer would.
    ///
    /// # Errors
    /// It had already ended.
    pub async fn kill(&self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        let code = self.exit(GRACE).await?;
        ensure!(code.is_none(), "the {} ended by itself before it was killed: {code:?}\n{}", self.name, self.tail());
        Ok(())
    }

    /// Stops it gracefully, and returns how long that took.
    ///
    /// # Errors
    /// It had already ended, did not end within its grace period, or ended with another exit code than 0.
    pub async fn stop(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.signal(Signal::TERM)?;
        let code = self.exit(GRACE + Duration::from_secs(1)).await?;
        ensure!(code == Some(0), "the {} ended with {code:?} when it was stopped\n{}", self.name, self.tail());
        Ok(began.elapsed())
    }

    /// Waits until it reports that it is ready, and returns how long that took.
    ///
    /// # Errors
    /// It ended first, or took too long.
    pub async fn ready(&self) -> anyhow::Result<Duration> {
        let what = format!("the {} to be ready", self.name);
        let ready = async || self.get("/readyz").await.filter(|answer| answer.status == 200);
        Ok(self.comes_to(&what, ready).await?.1)
    }

    /// Waits until its log contains `text`.
    ///
    /// # Panics
    /// If it ends first or takes too long.
    pub async fn says(&self, text: &str) {
        let what = format!("the {} to say {text}", self.name);
        self.comes_to(&what, async || self.log().contains(text).then_some(())).await.expect("it says so");
    }

    /// Waits for an event with this message in a JSON log.
    ///
    /// # Panics
    /// If it ends first or takes too long.
    pub async fn logs(&self, message: &str) -> Value {
        let what = format!("the {} to log {message:?}", self.name);
        self.comes_to(&what, async || self.event(message)).await.expect("it logs that").0
    }

    /// Waits for a line of its output that contains `text`.
    ///
    /// # Panics
    /// If it ends first or takes too long.
    pub async fn prints(&self, text: &str) -> String {
        let what = format!("the {} to print {text:?}", self.name);
        let line = async || self.printed().lines().find(|line| line.contains(text)).map(str::to_owned);
        self.comes_to(&what, line).await.expect("it prints that").0
    }

    /// Waits until `look` finds something, while the process runs, and returns how long that took, too.
    async fn comes_to<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> anyhow::Result<(T, Duration)> {
        let mut found = None;
        let took = until(what, PATIENCE, async || {
            let has_ended = !self.is_running();
            found = look().await;
            found.is_some() || has_ended
        });
        let took = took.await.with_context(|| self.tail())?;
        let found = found.with_context(|| format!("{what}: the process has ended\n{}", self.tail()))?;
        Ok((found, took))
    }

    /// The response of its admin listener, or `None` if there is no complete one.
    pub async fn get(&self, path: &str) -> Option<Answer> {
        http::get(self.listening(&self.admin, "admin listening")?, path).await
    }

    /// The address of its public listener, once it is known.
    pub fn public(&self) -> Option<SocketAddr> {
        self.listening(&self.public, "listening")
    }

    fn listening(&self, known: &OnceLock<SocketAddr>, message: &str) -> Option<SocketAddr> {
        if let Some(address) = known.get() {
            return Some(*address);
        }
        let address = self.event(message)?["address"].as_str()?.parse().ok()?;
        Some(*known.get_or_init(|| address))
    }

    /// The events in its JSON log.
    pub fn events(&self) -> Vec<Value> {
        self.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The first event with this message.
    pub fn event(&self, message: &str) -> Option<Value> {
        let is_it = |event: &Value| event["message"] == message;
        self.log().lines().filter_map(|line| serde_json::from_str(line).ok()).find(is_it)
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        contents(&self.log)
    }

    /// Its output so far.
    pub fn printed(&self) -> String {
        contents(&self.out)
    }

    /// Its peak memory in bytes, where the system reports it.
    pub fn peak_memory(&self) -> Option<u64> {
        let status = self.proc("status")?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(peak.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    }

    /// The processor time that it and the kernel on its behalf have used, where the system reports it.
    pub fn processor_time(&self) -> Option<Duration> {
        /// The kernel's unit of time in this file.
        const TICK: Duration = Duration::from_millis(10);
        let ticks = |field: usize| self.stat(field)?.parse::<u32>().ok();
        Some(TICK * (ticks(11)? + ticks(12)?))
    }

    /// Stops it with SIGSTOP for `span`, and lets it go on.
    ///
    /// # Errors
    /// It has already ended, or the system says that it did not stop.
    pub async fn nap(&self, span: Duration) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        sleep(span).await;
        ensure!(self.stat(0).is_none_or(|state| state == "T"), "the {} did not stop at SIGSTOP", self.name);
        self.signal(Signal::CONT)
    }

    /// A field of `/proc/<pid>/stat`, counted from the one after the program's name.
    fn stat(&self, field: usize) -> Option<String> {
        let stat = self.proc("stat")?;
        let (_, after_name) = stat.rsplit_once(')')?;
        after_name.split_whitespace().nth(field).map(str::to_owned)
    }

    fn proc(&self, file: &str) -> Option<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.id.as_raw_nonzero())).ok()
    }

    /// The last lines of its log.
    pub fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
        format!("--- the last log lines of the {}:\n{tail}\n---", self.name)
    }
}

impl Drop for Process {
    #[expect(clippy::print_stdout, reason = "a test that fails shows it")]
    fn drop(&mut self) {
        // It has already ended unless a test failed. This also ends a process that is stopped by a signal.
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
        if std::thread::panicking() {
            println!("{}", self.tail());
        }
    }
}
