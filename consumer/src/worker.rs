//! One partition's worker: loads the fence, follows the chain of transactions from there, and begins again whenever an
//! outcome is anything but a success. What follows from an outcome is decided in core.

mod chain;
mod leave;
mod letters;
mod load;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tally_core::backoff::Backoff;
use tally_core::fence::{Alarm, Fence, Offset};
use tally_core::ids::ShardCount;
use tally_core::ports::{FencedRows, OwnedPartition, Producer};
use tally_service::{Host, Stop, Task};
use tokio::sync::Semaphore;

use self::chain::Chain;
use self::leave::Leave;
use self::letters::Acknowledged;
use crate::config::ReadSettings;
use crate::event::Routing;
use crate::lag::Progress;
use crate::metrics;

/// How long a partition stands still before its fence and log are looked at again.
const RECHECK: Duration = Duration::from_secs(30);

/// What all workers share.
pub(crate) struct Shared {
    pub(crate) rows: Arc<dyn FencedRows>,
    pub(crate) producer: Arc<dyn Producer>,
    pub(crate) settings: ReadSettings,
    pub(crate) shards: ShardCount,
    /// One permit for each transaction that may be under way.
    pub(crate) permits: Semaphore,
    pub(crate) host: Host,
}

/// The worker of one partition for as long as the partition is ours.
pub(crate) struct Worker {
    log: Arc<dyn OwnedPartition>,
    shared: Arc<Shared>,
    progress: Arc<Progress>,
}

/// Why a stretch of work ended.
#[derive(Debug)]
enum End {
    /// The fence has to be read again.
    Reload(Cause),
    /// The partition is given back.
    Leave,
    /// The partition stands still until something has changed.
    Halt(Halt),
}

/// What made it necessary to read the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The partition was assigned.
    Assigned,
    /// A transaction's outcome is not known.
    Unknown,
    /// The fence was not the one known.
    Condition,
    /// A transaction was cancelled without a reason that says what happened.
    Unclear,
    /// The log cannot be read at the position, or may be another log.
    Position,
    /// It stood still for a while.
    Recheck,
}

impl Cause {
    fn label(self) -> &'static str {
        match self {
            Self::Assigned => "assigned",
            Self::Unknown => "unknown",
            Self::Condition => "condition",
            Self::Unclear => "unclear",
            Self::Position => "position",
            Self::Recheck => "recheck",
        }
    }
}

/// Why a partition stands still.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Halt {
    /// Fence and log do not fit.
    Alarm(Alarm),
    /// A dependency refuses, and will until somebody acts.
    Refused(String),
}

impl Halt {
    /// The alarm's name, as a metric label.
    fn name(&self) -> &'static str {
        match self {
            Self::Alarm(alarm) => alarm.name(),
            Self::Refused(_) => "refused",
        }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alarm(alarm) => alarm.fmt(f),
            Self::Refused(text) => f.write_str(text),
        }
    }
}

impl Worker {
    pub(crate) fn new(log: Arc<dyn OwnedPartition>, shared: Arc<Shared>, progress: Arc<Progress>) -> Self {
        Self { log, shared, progress }
    }

    /// Loads the fence and follows the chain from there until something ends it; `stuck_at` where it came no further.
    async fn follow(
        &self,
        leave: &Leave,
        cause: Cause,
        acknowledged: &mut Acknowledged,
        stuck_at: &mut Option<Offset>,
    ) -> End {
        let fence = match self.load(leave, cause).await {
            Ok(fence) => fence,
            Err(end) => return end,
        };
        let Fence { offset, cfg, .. } = fence;
        tracing::info!(%offset, cfg, cause = cause.label(), "reading from the fence");
        self.shared.host.readiness().forget(&self.condition());
        let _reading = metrics::InState::reading();
        acknowledged.begin(&fence);
        let mut chain = Chain::new(self, leave, fence, acknowledged);
        let end = chain.follow().await;
        *stuck_at = (chain.offset() == offset).then_some(offset);
        end
    }

    /// Where the topic's records belong, as far as is known now: a topic may grow.
    fn routing(&self) -> Routing {
        let Shared { settings, shards, .. } = &*self.shared;
        Routing { scheme: settings.key, shards: *shards, partitions: self.progress.partitions() }
    }

    /// Stands still, aloud, until it is time to look again.
    async fn stand_still(&self, halt: &Halt, again: bool, leave: &Leave) -> Result<(), End> {
        tracing::error!(partition = %self.log.partition(), alarm = halt.name(), "standing still: {halt}");
        if !again {
            metrics::alarm(halt.name());
        }
        self.shared.host.readiness().not_ready(&self.condition(), halt.to_string());
        let _halted = metrics::InState::halted();
        leave.unless_asked(self.shared.host.clock().sleep(RECHECK)).await
    }

    /// A wait before try `attempt`, drawn.
    fn pause(&self, attempt: u32) -> Duration {
        Backoff::STORE.wait(attempt, self.shared.host.chance().fraction())
    }

    /// The name under which readiness knows this partition.
    fn condition(&self) -> String {
        format!("partition-{}", self.log.partition().index)
    }
}

impl Task for Worker {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let leave = Leave::new(Arc::clone(&self.log), stop);
        let mut cause = Cause::Assigned;
        let mut halted: Option<Halt> = None;
        let mut acknowledged = Acknowledged::default();
        // Loads in a row that got no further than the one before.
        let mut fruitless = 0u32;
        loop {
            let mut stuck_at = None;
            let end = self.follow(&leave, cause, &mut acknowledged, &mut stuck_at).await;
            fruitless = if stuck_at.is_some() { fruitless.saturating_add(1) } else { 0 };
            let waited = match end {
                End::Leave => break,
                End::Reload(next) => {
                    cause = next;
                    halted = None;
                    let pause = if fruitless > 0 { self.pause(fruitless - 1) } else { Duration::ZERO };
                    leave.unless_asked(self.shared.host.clock().sleep(pause)).await
                }
                End::Halt(halt) => {
                    cause = Cause::Recheck;
                    let waited = self.stand_still(&halt, halted.as_ref() == Some(&halt), &leave).await;
                    halted = Some(halt);
                    waited
                }
            };
            if waited.is_err() {
                break;
            }
        }
        self.shared.host.readiness().forget(&self.condition());
        Ok(())
    }
}
