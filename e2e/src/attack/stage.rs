//! Sets up the pipeline that an attack needs, and judges it afterwards: starts the dependencies, the processes, the
//! load and the readers, lets the attack wait until the pipeline has caught up, and at the end compares everything with
//! the events.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tally_service::{Chance, Clock, Host, Worker};
use tally_testkit::process::GRACE;
use tally_testkit::until;

use crate::attack::engines::{Engines, Roles};
use crate::attack::fleet::{Fleet, Launcher, Service};
use crate::attack::laws;
use crate::attack::ledger::{AMOUNTS, CROWD, Ledger, behind};
use crate::attack::load::{Answers, Parts, Shared, produce, read};
use crate::attack::report::Report;
use crate::simulation::events::Crowd;
use crate::simulation::honest::{Count, Honesty};

/// How long the pipeline may take to catch up. The in-process cluster lets a group wait for almost a session timeout at each
/// step of a rebalance, and a killed member costs several steps after its own session has timed out.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long the API may take to say exact again after a repair.
const HONEST: Duration = Duration::from_secs(120);

/// How long the pipeline runs under load before the attack begins, to measure its normal memory.
const WARM: Duration = Duration::from_secs(4);

/// The default number of events per second.
const RATE: u64 = 200;

/// The number of readers of counts.
const READERS: usize = 8;

/// The most that the clocks of a process and of the tables may differ. Both are this machine's, in milliseconds.
pub(crate) const SETTLES: Duration = Duration::from_millis(10);

/// Everything that a campaign needs.
pub(crate) struct Stage {
    pub(crate) engines: Arc<Engines>,
    /// Those of the other Region, if there is one.
    abroad: Option<Arc<Engines>>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) answers: Arc<Answers>,
    pub(crate) honesty: Honesty,
    pub(crate) report: Report,
    pub(crate) seed: u64,
    pub(crate) chance: Chance,
    pub(crate) clock: Clock,
    pub(crate) crowd: Crowd,
    pub(crate) ledger: Shared,
    before: BTreeMap<Service, u64>,
    producer: Worker,
    rate: u64,
    readers: Vec<Worker>,
    tasks: Host,
}

/// What a run is based on.
#[derive(Args, Clone, Copy, Debug)]
#[command(about = None, long_about = None)]
pub struct Ground {
    /// Seed of all random choices
    #[arg(long, default_value_t = 1, global = true)]
    pub seed: u64,
    /// Kafka with one broker on this machine, IP:PORT, and the empty topics `likes`, `likes.dlq`, `changes` and `changes.anew`; by
    /// default one in this process
    #[arg(long, global = true)]
    pub broker: Option<SocketAddr>,
}

/// The conditions of a campaign.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(about = None, long_about = None)]
pub struct Under {
    /// Require Redis; by default it is used if it is installed
    #[arg(long)]
    pub(crate) redis: bool,
    /// For `regions`: a second Kafka like that of --broker. Both have the topic `counts`, this one also `eu.counts`, and that of --broker
    /// `us.counts`, each with 6 partitions; by default one in this process
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) remote_broker: Option<SocketAddr>,
    /// Percentage of events that add to a sum; by default 50
    #[arg(long, value_name = "SHARE", value_parser = clap::value_parser!(u64).range(0..=100))]
    sums: Option<u64>,
    /// Number of posts; by default a few
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    posts: Option<u64>,
    /// Events per second; by default 200
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: Option<u64>,
}

impl Stage {
    /// Starts this many consumers and streamers, under load and warmed up.
    pub(crate) async fn set(
        program: &Path,
        Ground { seed, broker }: Ground,
        (members, roles): (usize, Roles),
        under: Under,
    ) -> anyhow::Result<Self> {
        let tasks = Host::new("attack");
        let engines = Arc::new(Engines::start(&tasks, broker, roles, under.redis, &[]).await?);
        let fleet = Fleet::start(Launcher::new(program, &engines), members).await?;
        Self::over(tasks, engines, fleet, seed, under, None).await
    }

    /// Puts processes that run under load, and warms them up. `abroad` is the other Region: its engines, and what each Region's
    /// part of an answer is held to.
    pub(crate) async fn over(
        tasks: Host,
        engines: Arc<Engines>,
        fleet: Fleet,
        seed: u64,
        under: Under,
        abroad: Option<(Arc<Engines>, Parts)>,
    ) -> anyhow::Result<Self> {
        let (fleet, chance) = (Arc::new(fleet), Chance::seeded(seed));
        let crowd = Crowd { posts: under.posts.unwrap_or(CROWD.posts), ..CROWD };
        let ledger = Ledger::new(crowd, under.sums.unwrap_or(AMOUNTS), chance.fork());
        let (ledger, answers) = (Arc::new(Mutex::new(ledger)), Arc::<Answers>::default());
        let rate = under.rate.unwrap_or(RATE);
        let producer = producer(&tasks, &engines, &ledger, rate);
        let (abroad, parts) = abroad.unzip();
        let histories = [&engines].into_iter().chain(&abroad).map(|engines| engines.history.clone());
        let honesty = Honesty::of(histories.collect(), SETTLES, Duration::ZERO);
        let reader = |nth| {
            let (asked, honesty) = ((Arc::clone(&fleet), Arc::clone(&answers)), honesty.clone());
            let (chance, parts) = (chance.fork(), parts.clone().unwrap_or_default());
            let read = move |stop| read(asked, honesty, parts, chance, crowd, stop);
            tasks.worker(tally_service::Stage::Intake, &format!("reader {nth}"), read)
        };
        let readers = (0..READERS).map(reader).collect();
        let mut stage = Self {
            clock: engines.clock,
            engines,
            abroad,
            fleet,
            answers,
            honesty,
            report: Report::default(),
            seed,
            chance,
            crowd,
            ledger,
            before: BTreeMap::new(),
            producer,
            rate,
            readers,
            tasks,
        };
        stage.clock.sleep(WARM).await;
        stage.counted().await?;
        stage.before = stage.fleet.memory();
        Ok(stage)
    }

    /// Waits until this service has written, counted or answered everything produced so far, and returns how long that took.
    pub(crate) async fn caught_up(&self, service: Service) -> anyhow::Result<Duration> {
        let took = match service {
            Service::Consumer => {
                let ends = self.ledger.lock().ends.clone();
                let written = async || behind(&ends, &self.engines.finished().await) == 0;
                until("every event to be a row", PATIENCE, written).await
            }
            Service::Streamer => {
                let since = self.clock.now();
                let counted = async || self.engines.counted_past(since).await.unwrap_or(false);
                until("every row to be counted", PATIENCE, counted).await
            }
            Service::Api | Service::Recount => self.fleet.api().ready().await,
        }?;
        tracing::info!("{service} has recovered after {:.1} s", took.as_secs_f64());
        Ok(took)
    }

    /// Waits until everything produced so far is written, and then counted.
    pub(crate) async fn counted(&self) -> anyhow::Result<()> {
        self.caught_up(Service::Consumer).await?;
        self.caught_up(Service::Streamer).await.map(drop)
    }

    /// Waits until this many more rows have been added or removed.
    pub(crate) async fn changed(&self, rows: u64) -> anyhow::Result<()> {
        let enough = self.engines.history.changes() + rows;
        until("rows to change", PATIENCE, async || self.engines.history.changes() >= enough).await?;
        Ok(())
    }

    /// Waits until the API has given this many more exact answers.
    pub(crate) async fn exact_again(&self, answers: u64) -> anyhow::Result<()> {
        let enough = self.honesty.count().exact + answers;
        until("the api to say exact again", HONEST, async || self.honesty.count().exact >= enough).await?;
        Ok(())
    }

    /// Pauses the producer until [`go_on`](Self::go_on).
    pub(crate) async fn fall_silent(&self) {
        stop(&self.producer).await;
    }

    /// Resumes the producer.
    pub(crate) fn go_on(&mut self) {
        self.producer = producer(&self.tasks, &self.engines, &self.ledger, self.rate);
    }

    /// Stops the readers: what they know about rows belongs to tables that are no longer used.
    pub(crate) async fn stop_readers(&self) {
        for reader in &self.readers {
            stop(reader).await;
        }
    }

    /// Fails if a process died that was not killed, or if the producer or a reader has failed.
    pub(crate) fn all_well(&self) -> anyhow::Result<()> {
        self.fleet.all_running()?;
        well(&self.tasks)?;
        self.answers.judge()
    }

    /// Ends the attack: all faults and the producer stop, and the pipeline becomes quiet. Then come the laws, a recount that
    /// has to find nothing, and a graceful stop. Returns the report.
    pub(crate) async fn judge(self) -> anyhow::Result<Report> {
        let Self { engines, fleet, honesty, report, .. } = &self;
        engines.calm();
        self.all_well()?;
        self.fall_silent().await;
        fleet.ready().await?;
        engines.without_ghosts().await?;
        self.counted().await?;
        let ledger = self.ledger.lock().clone();
        let abroad = self.abroad.as_deref();
        let compared = laws::judge(engines, abroad, fleet, &ledger).await?;
        let recount = laws::audit(&fleet.launcher).await?;
        let all = compared.rows + compared.tombstones;
        ensure!(recount.rows == all as u64, "the recount read {} rows, expected {compared:?}", recount.rows);
        laws::judge(engines, abroad, fleet, &ledger).await.context("after the recount")?;
        self.stop_readers().await;
        self.all_well()?;
        for (service, during) in fleet.memory() {
            let Some(before) = self.before.get(&service) else { continue };
            let [before, during] = [before >> 20, during >> 20];
            report.note(format!("memory of a {service:<10} {before} MiB before, peak {during} MiB"));
        }
        let drained = fleet.stop().await?;
        ensure!(drained < GRACE, "a process took {drained:?} to stop");
        well(&self.tasks)?;
        report.found("answers of the api", &self.answers);
        let Count { answers, exact, lies, .. } = honesty.verdict()?;
        report.found("counts answered", format!("{answers}, {exact} exact, {lies} wrong"));
        let (said, doubtful) = (ledger.said, ledger.doubtful());
        report.found("events produced", format!("{said}, {doubtful} amounts without acknowledgement"));
        report.found("rows equal the events", format!("{} rows, {} of them cells", compared.rows, compared.cells));
        let equal = format!("{} counters, also in the api's answers, all exact", compared.counters);
        report.found("counts equal the rows", equal);
        let cached = engines.redis().map(|_| format!("{} counters, none stale", compared.cached));
        report.found("cached", cached.unwrap_or_else(|| "not tested: redis-server is not installed".to_owned()));
        let took = recount.took.as_secs_f64();
        report.found("a recount found no drift", format!("{} rows, {took:.1} s", recount.rows));
        let (drained, grace) = (drained.as_secs_f64(), GRACE.as_secs());
        report.found("stopped gracefully", format!("all with exit code 0, in at most {drained:.1} s of {grace} s"));
        self.requests_were_lawful()?;
        Ok(self.report)
    }

    /// The emulator has not panicked, and has refused a service nothing that it needs.
    fn requests_were_lawful(&self) -> anyhow::Result<()> {
        let Self { engines, report, .. } = self;
        ensure!(engines.emulator.stats().panics == 0, "the emulator panicked");
        let refused = engines.emulator.refused();
        ensure!(refused.is_empty(), "infra/roles.yaml does not allow actions of a service: {refused:?}");
        if engines.roles == Roles::Ignored {
            return Ok(());
        }
        let ours = |grant: &String| Service::ALL.iter().any(|service| grant.starts_with(service.role()));
        let unused: Vec<String> = engines.emulator.unused_grants().into_iter().filter(ours).collect();
        report.found("roles (infra/roles.yaml)", format!("0 refused, {} grants unused", unused.len()));
        unused.into_iter().for_each(|grant| report.note(format!("  {grant}")));
        Ok(())
    }
}

/// Fails if a task beside the attack has failed.
pub(crate) fn well(tasks: &Host) -> anyhow::Result<()> {
    tasks.first_end().now_or_never().map_or(Ok(()), |ended| bail!("{ended}"))
}

async fn stop(worker: &Worker) {
    worker.request_stop();
    worker.ended().await;
}

/// Starts a producer of this many events per second.
fn producer(tasks: &Host, engines: &Arc<Engines>, ledger: &Shared, rate: u64) -> Worker {
    let (engines, ledger) = (Arc::clone(engines), ledger.clone());
    tasks.worker(tally_service::Stage::Intake, "producer", move |stop| produce(engines, ledger, rate, stop))
}
