//! The runner of one partition: waits for whatever may answer, tells the machine in core, and carries out what it asks
//! for. What follows from an answer is decided in core.

mod leaving;
mod letters;
mod notes;
mod requests;
mod spread;
mod under_way;

use std::sync::Arc;
use std::time::Duration;

use tally_core::backoff::Backoff;
use tally_core::consume::{Consume, Effect, Input, Setup};
use tally_core::ids::ShardCount;
use tally_core::ports::{CounterMaps, DeploymentConfig, FencedRows, OwnedPartition, Producer};
use tally_service::{Clock, Host, Stop, Task};
use tokio::sync::{Semaphore, watch};

use self::leaving::Leaving;
use self::letters::Letters;
use self::notes::Notes;
use self::requests::Requests;
use self::under_way::UnderWay;
use crate::config::ReadSettings;
use crate::lag::Progress;
use crate::misrouted::Warning;

/// What all partitions share.
pub(crate) struct Shared {
    pub(crate) rows: Arc<dyn FencedRows>,
    pub(crate) maps: Arc<dyn CounterMaps>,
    /// How often changes of maps were announced, as far as this process has seen.
    pub(crate) announced: watch::Receiver<u64>,
    pub(crate) deployment: Arc<dyn DeploymentConfig>,
    /// What tells the deployment from others, where it has tables.
    pub(crate) name: Option<String>,
    pub(crate) producer: Arc<dyn Producer>,
    pub(crate) settings: ReadSettings,
    pub(crate) shards: ShardCount,
    /// One permit for each transaction that may be under way.
    pub(crate) permits: Semaphore,
    pub(crate) host: Host,
    /// When misrouted events were warned about last.
    pub(crate) misrouted: Warning,
}

impl Shared {
    /// The wait before repeat `attempt`, drawn.
    fn pause(&self, attempt: u32) -> Duration {
        Backoff::STORE.wait(attempt, self.host.chance().fraction())
    }
}

/// One partition, from its assignment until it is left.
pub(crate) struct PartitionWorker {
    pub(crate) log: Arc<dyn OwnedPartition>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) progress: Arc<Progress>,
}

struct Runner {
    machine: Consume,
    clock: Clock,
    log: Arc<dyn OwnedPartition>,
    progress: Arc<Progress>,
    shared: Arc<Shared>,
    announced: watch::Receiver<u64>,
    leaving: Leaving,
    requests: Requests,
    under_way: UnderWay,
    letters: Letters,
    notes: Notes,
}

impl Runner {
    fn new(worker: PartitionWorker, stop: Stop) -> Self {
        let PartitionWorker { log, shared, progress } = worker;
        let setup = Setup {
            partition: log.partition().clone(),
            limits: shared.settings.limits,
            key: shared.settings.key,
            shards: shared.shards,
            lanes: shared.settings.lanes,
        };
        Self {
            machine: Consume::new(setup),
            clock: shared.host.clock(),
            leaving: Leaving::new(Arc::clone(&log), stop),
            requests: Requests { log: Arc::clone(&log), shared: Arc::clone(&shared) },
            under_way: UnderWay::default(),
            letters: Letters::new(log.partition(), &shared),
            notes: Notes::new(log.partition(), Arc::clone(&progress), &shared),
            announced: shared.announced.clone(),
            log,
            progress,
            shared,
        }
    }

    /// What happens next. Leaving comes first; what is under way is never dropped here.
    async fn next(&mut self) -> Input {
        let wake_at = self.machine.wake_at();
        tokio::select! {
            biased;
            leave = self.leaving.next() => Input::Leave(leave),
            Ok(()) = self.announced.changed() => Input::Moved(*self.announced.borrow_and_update()),
            look = self.progress.looked(), if self.machine.reads() => Input::Looked(look),
            input = self.under_way.next() => input,
            input = self.letters.next() => input,
            records = self.log.records(), if self.machine.reads() => Input::Records(records),
            () = sleep_until(self.clock, wake_at) => Input::Woke,
        }
    }

    /// Carries out what the machine asks for; `false` once the partition is left.
    fn carry_out(&mut self, effects: &mut Vec<Effect>) -> bool {
        let mut goes_on = true;
        for effect in effects.drain(..) {
            match effect {
                Effect::Note(note) => {
                    self.letters.heed(&note);
                    self.under_way.heed(&note);
                    self.notes.take(note, &self.machine);
                }
                Effect::StoreLetter { letter, tries } => self.letters.send(letter, tries),
                Effect::TellKafka(offset) => self.log.finished(offset),
                Effect::Spread { counter, from, to } => {
                    self.under_way.begin_aside(Box::pin(spread::spread(Arc::clone(&self.shared), counter, from, to)));
                }
                Effect::Left { fence, unsent } => {
                    self.notes.left(fence, unsent);
                    goes_on = false;
                }
                request => self.under_way.begin(request, &self.requests, &self.notes),
            }
        }
        goes_on
    }
}

impl Task for PartitionWorker {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let mut runner = Runner::new(self, stop);
        let (mut input, mut effects) = (Input::Assigned, Vec::new());
        loop {
            runner.machine.step(runner.clock.reading(), input, &mut effects);
            if !runner.carry_out(&mut effects) {
                return Ok(());
            }
            input = runner.next().await;
        }
    }
}

/// Completes when the clock's monotonic time is `at`.
async fn sleep_until(clock: Clock, at: Option<Duration>) {
    match at {
        Some(at) => clock.sleep(at.saturating_sub(clock.reading().at)).await,
        None => std::future::pending().await,
    }
}
