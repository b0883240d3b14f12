//! The processes of the pipeline: two or more consumers and streamers, an API, recounts from time to time, and the operators'
//! command. Cargo builds no binaries of other packages for a test, so this program acts as each of them when it is called by
//! its name.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
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

/// Starts processes.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    program: PathBuf,
    endpoint: String,
    /// The tables' endpoint for the API.
    api_endpoint: String,
    brokers: String,
    redis: String,
    /// Additional environment variables of each process.
    settings: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Launcher {
    /// Starts processes that use the engines through their proxies.
    pub(crate) fn new(program: PathBuf, engines: &Engines) -> anyhow::Result<Self> {
        let address = |dependency| engines.proxies.get(&dependency).map(Proxy::address);
        let redis = address(Dependency::Redis).map_or_else(|| "off".to_owned(), |at| format!("redis://{at}"));
        let endpoint = format!("http://{}", address(Dependency::DynamoDb).context("the tables have no proxy")?);
        let api_endpoint = format!("http://{}", engines.api_tables.address());
        let brokers = address(Dependency::Kafka).context("Kafka has no proxy")?.to_string();
        Ok(Self { program, endpoint, api_endpoint, brokers, redis, settings: Arc::default() })
    }

    /// Sets an environment variable of the processes started from now on.
    pub(crate) fn tell(&self, variable: &'static str, value: &str) {
        self.settings.lock().insert(variable, value.to_owned());
    }

    /// The same without a cache.
    pub(crate) fn without_redis(&self) -> Self {
        Self { redis: "off".to_owned(), ..self.clone() }
    }

    /// Starts a process of `service`, with the additional arguments `more`.
    pub(crate) fn start(&self, service: Service, more: &[&str]) -> anyhow::Result<Process> {
        let mut args = vec!["--log-format", "json", "--admin-listen", "127.0.0.1:0"];
        args.extend(match service {
            Service::Consumer => vec!["--brokers", &self.brokers],
            Service::Streamer => vec!["--brokers", &self.brokers, "--redis", &self.redis, "--poll-idle", "200ms"],
            Service::Recount => vec!["--brokers", &self.brokers],
            // A busy processor should not look like an unavailable store.
            Service::Api => vec!["--redis", &self.redis, "--listen", "127.0.0.1:0", "--table-budget", "8s"],
        });
        args.extend(more);
        let endpoint = if service == Service::Api { &self.api_endpoint } else { &self.endpoint };
        let mut command = command(&self.program);
        command.arg0(service.binary()).args(args).env("AWS_ENDPOINT_URL", endpoint).env("AWS_REGION", "us-east-1");
        command.env("AWS_ACCESS_KEY_ID", service.role()).env("AWS_SECRET_ACCESS_KEY", "local");
        command.envs(&*self.settings.lock());
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
        let services = std::iter::repeat_n(Service::Consumer, members)
            .chain(std::iter::repeat_n(Service::Streamer, members))
            .chain([Service::Api]);
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
            anyhow::ensure!(process.is_running(), "the {} has ended\n{}", slot.service, process.tail());
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
        let Self { program, endpoint, brokers, .. } = self;
        let mut command = command(program);
        command.arg0(NAME).args(args).env("AWS_ENDPOINT_URL", endpoint).env("TALLY_BROKERS", brokers);
        command.env("AWS_REGION", "us-east-1").env("TALLY_OPERATOR", "e2e");
        command.env("AWS_ACCESS_KEY_ID", "OperatorRole").env("AWS_SECRET_ACCESS_KEY", "local");
        run(&mut command).await
    }

    /// Runs it, and fails unless it exits with 0.
    pub(crate) async fn must(&self, args: &[&str]) -> anyhow::Result<Done> {
        let done = self.run(args).await;
        ensure!(
            done.code == Some(0),
            "tally {} ended with {:?}\n{}\n{}",
            args.join(" "),
            done.code,
            done.out,
            done.err
        );
        Ok(done)
    }

    /// Runs a command that makes a change, with the flag that confirms it.
    pub(crate) async fn change(&self, args: &[&str]) -> anyhow::Result<Done> {
        self.must(&[args, &["--yes", "--why", "a campaign"]].concat()).await
    }
}
