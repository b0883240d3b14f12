//! Reads the DynamoDB table of counters through the gate, and checks whether DynamoDB denies access to it. If so,
//! [`AskTable`] makes the process not ready, since most requests would have no answer. The watch over all tables
//! (`adapters/src/dynamodb/watch.rs`) notices tables that are gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::counters::{Counters, Read};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, PostId};
use tally_core::ports::Outcome;
use tally_service::{Clock, Readiness, Stop, Task};
use tokio::time::timeout;

use super::TableGate;
use crate::error::Result;

/// How many reads in a row have to fail for good before the task asks the table itself.
const IN_A_ROW: u32 = 5;

/// How often the task asks then.
const EVERY: Duration = Duration::from_secs(1);

/// The time limit of one such question.
const PATIENCE: Duration = Duration::from_secs(10);

/// The name of this task's condition of readiness.
const CONDITION: &str = "counts";

/// The table of counters. Clones share its gate.
#[derive(Clone)]
pub struct Table {
    counters: Arc<Counters>,
    pub(super) gate: Arc<TableGate>,
    /// Reads in a row that the table has refused for good. Faults that pass are not counted: another instance of the
    /// API would meet them, too.
    failed: Arc<AtomicU32>,
}

impl Table {
    /// Puts the table behind a gate.
    pub fn new(counters: Arc<Counters>, gate: Arc<TableGate>) -> Self {
        Self { counters, gate, failed: Arc::default() }
    }

    /// Waits for the gate, then reads counters. The read is consistent, so standings that were taken before hold for
    /// its result.
    ///
    /// # Errors
    /// The table does not answer, or too many reads wait for it.
    pub async fn read(&self, ids: &[CounterId]) -> Result<Read> {
        self.gate.read(self.unguarded(ids)).await
    }

    async fn unguarded(&self, ids: &[CounterId]) -> Outcome<Read> {
        // The future of a request is large.
        let read = Box::pin(self.counters.read(ids, Consistency::Strong)).await;
        match &read {
            Ok(_) => self.failed.store(0, Ordering::Relaxed),
            Err(Fault::Fatal(_)) => _ = self.failed.fetch_add(1, Ordering::Relaxed),
            Err(_) => {}
        }
        read
    }

    fn fails(&self) -> bool {
        self.failed.load(Ordering::Relaxed) >= IN_A_ROW
    }
}

/// The task that asks the table once reads have failed, until it answers: a process that is not ready gets no requests
/// that would show this.
pub struct AskTable {
    pub table: Table,
    /// Says when to ask.
    pub clock: Clock,
    /// The readiness to change.
    pub readiness: Readiness,
}

impl AskTable {
    /// Returns whether this task has made the process not ready.
    fn is_stated(&self) -> bool {
        self.readiness.report().conditions.contains_key(CONDITION)
    }

    async fn ask(&self, any: &CounterId) {
        match timeout(PATIENCE, self.table.unguarded(std::slice::from_ref(any))).await {
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
            Ok(_) | Err(_) => {}
        }
    }
}

impl Task for AskTable {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let any = CounterId::likes(PostId::new("readiness")?);
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            // Requests may be answered meanwhile; only this task makes the process ready again.
            if self.table.fails() || self.is_stated() {
                self.ask(&any).await;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tally_emulator::{Fault as Injected, Rule};
    use tally_service::Host;
    use tally_testkit::{BEGAN, Store};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_whose_table_was_denied_is_ready_again_once_the_table_answers() {
        let (store, host) = (Store::start().await, Host::new("test").with_clock(Clock::starting_at(BEGAN)));
        let gate = Arc::new(TableGate::new(1, PATIENCE));
        let table = Table::new(Arc::new(Counters::new(&store.connection)), gate);
        let ask = AskTable { table, clock: host.clock(), readiness: host.readiness().clone() };
        ask.readiness.not_ready(CONDITION, "denied");
        let any = CounterId::likes(PostId::new("any").unwrap());
        store.faults([Rule::new(Injected::Outage).on("BatchGetItem")]);
        ask.ask(&any).await;
        assert!(ask.is_stated(), "that it cannot be reached says nothing of being denied");
        store.faults([]);
        ask.ask(&any).await;
        assert!(!ask.is_stated());
    }
}
