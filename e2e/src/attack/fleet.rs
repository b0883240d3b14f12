//! Starts, watches and stops the processes that are attacked: two or more consumers and streamers, an API, recounts
//! from time to time, and the operators' command. Cargo builds no binaries of other packages for a test, so this
//! program acts as each of them when it is called by its name.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use parking_lot::Mutex;
use tally_testkit::Process;
use tally_testkit::process::{Done, command, run};

use crate::attack::engines::{Dependency, Engines};
use crate::attack::proxy::Proxy;

/// A service of the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Service {
    /// Reads events from Kafka and writes rows.
    Consumer,
    /// Copies changes of rows into the log, and folds them into counts.
    Streamer,
    /// Compares counts with rows.
    Recount,
    /// Serves counts.
    Api,
}

impl Service {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Consumer, Self::Streamer, Self::Recount, Self::Api];

    /// Its short name, its binary, and its role in `infra/roles.yaml`.
    fn names(self) -> [&'static str; 3] {
        match self {
            Self::Consumer => ["consumer", "tally-consumer", "ConsumerRole"],
            Self::Streamer => ["streamer", "tally-change-streamer", "StreamerRole"],
            Self::Recount => ["recount", "tally-batch-recount", "RecountRole"],
            Self::Api => ["api", "tally-count-api", "ApiRole"],
        }
    }

    fn binary(self) -> &'static str {
        self.names()[1]
    }

    pub(crate) fn role(self) -> &'static str {
        self.names()[2]
    }
}

/// Runs what this program was called by the name of: a service, as its own `main` does, or the operators' command.
pub fn called() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    let name = Path::new(&name).file_name()?;
    if name == NAME {
        return Some(tally_cli::run());
    }
    Some(match Service::ALL.into_iter().find(|service| name == service.binary())? {
        Service::Consumer => tally_adapters::run::<tally_consumer::App>(),
        Service::Streamer => tally_adapters::run::<tally_change_streamer::App>(),
        Service::Recount => tally_adapters::run::<tally_batch_recount::App>(),
        Service::Api => tally_adapters::run::<tally_count_api::App>(),
    })
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.names()[0])
    }
}

/// Starts processes that use the engines through their proxies.
#[derive(Clone)]
pub(crate) struct Launcher {
    program: PathBuf,
    engines: Arc<Engines>,
    is_cached: bool,
    /// Additional environment variables of each process.
    settings: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Launcher {
    pub(crate) fn new(program: &Path, engines: &Arc<Engines>) -> Self {
        Self { program: program.to_owned(), engines: Arc::clone(engines), is_cached: true, settings: Arc::default() }
    }

    /// Sets an environment variable of the processes started from now on.
    pub(crate) fn tell(&self, variable: &'static str, value: &str) {
        self.settings.lock().insert(variable, value.to_owned());
    }

    /// The same without a cache.
    pub(crate) fn without_redis(&self) -> Self {
        Self { is_cached: false, ..self.clone() }
    }

    /// Starts a process of `service`, with the additional arguments `more`.
    pub(crate) fn start(&self, service: Service, more: &[&str]) -> anyhow::Result<Process> {
        let Engines { proxies, api_tables, .. } = &*self.engines;
        let redis = proxies.get(&Dependency::Redis).filter(|_| self.is_cached);
        let redis = redis.map_or_else(|| "off".to_owned(), |proxy| format!("redis://{}", proxy.address()));
        let brokers = proxies[&Dependency::Kafka].address().to_string();
        let mut args = vec!["--log-format", "json", "--admin-listen", "127.0.0.1:0"];
        args.extend(match service {
            Service::Consumer | Service::Recount => vec!["--brokers", &brokers],
            Service::Streamer => vec!["--brokers", &brokers, "--redis", &redis, "--poll-idle", "200ms"],
            // A busy processor should not look like an unavailable store.
            Service::Api => vec!["--redis", &redis, "--listen", "127.0.0.1:0", "--table-budget", "8s"],
        });
        let tables = if service == Service::Api { api_tables } else { &proxies[&Dependency::DynamoDb] };
        let mut command = self.command(service.binary(), tables, service.role());
        command.args(args).args(more).envs(&*self.settings.lock());
        Process::start(&service.to_string(), &mut command)
    }
}

/// A place in the fleet, and the process in it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) service: Service,
    process: Mutex<Arc<Process>>,
}

impl Slot {
    pub(crate) fn process(&self) -> Arc<Process> {
        Arc::clone(&self.process.lock())
    }
}

/// All places.
pub(crate) struct Fleet {
    pub(crate) launcher: Launcher,
    pub(crate) slots: Vec<Slot>,
    /// The peak memory of the processes of each service, in bytes.
    memory: Mutex<BTreeMap<Service, u64>>,
}

impl Fleet {
    /// Starts this many consumers and streamers and one API, and waits until all are ready.
    pub(crate) async fn start(launcher: Launcher, members: usize) -> anyhow::Result<Self> {
        let services = [Service::Consumer, Service::Streamer].into_iter();
        let services = services.flat_map(|service| std::iter::repeat_n(service, members)).chain([Service::Api]);
        let slot = |service| Ok(Slot { service, process: Mutex::new(Arc::new(launcher.start(service, &[])?)) });
        let slots = services.map(slot).collect::<anyhow::Result<Vec<_>>>()?;
        let fleet = Self { launcher, slots, memory: Mutex::default() };
        fleet.ready().await?;
        Ok(fleet)
    }

    /// The places of one service.
    pub(crate) fn of(&self, service: Service) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(move |slot| slot.service == service)
    }

    pub(crate) fn api(&self) -> Arc<Process> {
        self.of(Service::Api).next().expect("a fleet has an api").process()
    }

    /// Starts a new process in a place whose process has ended.
    pub(crate) fn refill(&self, slot: &Slot) -> anyhow::Result<Arc<Process>> {
        let fresh = Arc::new(self.launcher.start(slot.service, &[])?);
        *slot.process.lock() = Arc::clone(&fresh);
        Ok(fresh)
    }

    /// Starts a new process in every place, and waits until all are ready.
    pub(crate) async fn refill_all(&self) -> anyhow::Result<()> {
        self.slots.iter().try_for_each(|slot| self.refill(slot).map(drop))?;
        self.ready().await
    }

    /// Waits until every process is ready.
    pub(crate) async fn ready(&self) -> anyhow::Result<()> {
        for slot in &self.slots {
            slot.process().ready().await?;
        }
        Ok(())
    }

    /// Fails if a process has ended by itself.
    pub(crate) fn all_running(&self) -> anyhow::Result<()> {
        for slot in &self.slots {
            let process = slot.process();
            ensure!(process.is_running(), "the {} has ended\n{}", slot.service, process.tail());
        }
        Ok(())
    }

    /// Records the peak memory of each process so far. Call it before one ends.
    pub(crate) fn weigh(&self) {
        for slot in &self.slots {
            let (bytes, mut memory) = (slot.process().peak_memory().unwrap_or(0), self.memory.lock());
            let most = memory.entry(slot.service).or_default();
            *most = bytes.max(*most);
        }
    }

    pub(crate) fn memory(&self) -> BTreeMap<Service, u64> {
        self.weigh();
        self.memory.lock().clone()
    }

    /// The last lines of every log, under a heading.
    pub(crate) fn tails(&self, heading: &str) -> String {
        self.slots.iter().fold(heading.to_owned(), |text, slot| text + "\n" + &slot.process().tail())
    }

    /// Stops every process gracefully, and returns how long the slowest took.
    pub(crate) async fn stop(&self) -> anyhow::Result<Duration> {
        let mut slowest = Duration::ZERO;
        for slot in &self.slots {
            slowest = slowest.max(slot.process().stop().await?);
        }
        Ok(slowest)
    }
}

/// The name of the command.
const NAME: &str = "tally";

/// The operators' command over the same engines.
impl Launcher {
    /// Runs `tally` with `args` as a new process without this one's settings.
    pub(crate) async fn run(&self, args: &[&str]) -> Done {
        let proxies = &self.engines.proxies;
        let mut command = self.command(NAME, &proxies[&Dependency::DynamoDb], "OperatorRole");
        command.args(args).env("TALLY_BROKERS", proxies[&Dependency::Kafka].address().to_string());
        run(command.env("TALLY_OPERATOR", "e2e")).await
    }

    /// This program under another name and as another role, with these tables.
    fn command(&self, name: &str, tables: &Proxy, role: &str) -> Command {
        let mut command = command(&self.program);
        command.arg0(name).env("AWS_ENDPOINT_URL", format!("http://{}", tables.address()));
        command.env("AWS_REGION", "us-east-1").env("AWS_ACCESS_KEY_ID", role).env("AWS_SECRET_ACCESS_KEY", "local");
        command
    }

    /// Runs it, and fails unless it exits with 0.
    pub(crate) async fn must(&self, args: &[&str]) -> anyhow::Result<Done> {
        let done = self.run(args).await;
        let Done { code, out, err } = &done;
        ensure!(*code == Some(0), "tally {} ended with {code:?}\n{out}\n{err}", args.join(" "));
        Ok(done)
    }

    /// Runs a command that makes a change, with the flag that confirms it.
    pub(crate) async fn change(&self, args: &[&str]) -> anyhow::Result<Done> {
        self.must(&[args, &["--yes", "--why", "a campaign"]].concat()).await
    }
}
