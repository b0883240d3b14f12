//! Whether the counts table answers at all: readiness follows it, since without that table no request has an answer.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ids::{CounterId, PostId};
use tally_core::ports::{Counts, Outcome};
use tally_service::{Clock, Readiness, Stop, Task};
use tokio::time::timeout;

/// How many reads in a row have to fail for good before the table is asked beside the requests.
const IN_A_ROW: u32 = 5;

/// How often it is asked then.
const EVERY: Duration = Duration::from_secs(1);

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The condition of readiness that the task states.
const CONDITION: &str = "counts";

/// What reads of the counts table have come to. A fault that passes by itself is not counted: another instance of the API would
/// have it, too.
#[derive(Debug, Default)]
pub struct Heard {
    /// Reads in a row that the table has refused for good.
    failed: AtomicU32,
}

impl Heard {
    /// The outcome of `read`, noted.
    pub(super) async fn of<T>(&self, read: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let outcome = read.await;
        self.note(&outcome);
        outcome
    }

    pub(super) fn note<T>(&self, outcome: &Outcome<T>) {
        match outcome {
            Ok(_) => self.failed.store(0, Ordering::Relaxed),
            Err(Fault::Fatal(_)) => _ = self.failed.fetch_add(1, Ordering::Relaxed),
            Err(_) => {}
        }
    }

    fn fails(&self) -> bool {
        self.failed.load(Ordering::Relaxed) >= IN_A_ROW
    }
}

/// The task that asks the table once reads have failed, until it answers: a process that is not ready is sent no requests.
pub struct AskCounts {
    pub heard: Arc<Heard>,
    pub counts: Arc<dyn Counts>,
    pub clock: Clock,
    pub readiness: Readiness,
}

impl AskCounts {
    /// Whether the process is not ready for the table's sake.
    fn is_stated(&self) -> bool {
        self.readiness.report().conditions.contains_key(CONDITION)
    }

    async fn ask(&self, any: &CounterId) {
        let answer = timeout(PATIENCE, self.heard.of(self.counts.counter(any))).await;
        match answer {
            Ok(Ok(_)) if self.is_stated() => {
                tracing::info!("the counts table answers again");
                self.readiness.forget(CONDITION);
            }
            Ok(Err(Fault::Fatal(why))) => {
                if !self.is_stated() {
                    tracing::error!(error = why, "the counts table gives no answers");
                }
                self.readiness.not_ready(CONDITION, why);
            }
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

impl Task for AskCounts {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let any = CounterId::likes(PostId::new("readiness")?);
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            // What requests have heard since then says nothing of readiness: the task alone takes it back.
            if self.heard.fails() || self.is_stated() {
                self.ask(&any).await;
            }
        }
        Ok(())
    }
}
