//! Protects the DynamoDB tables from too many reads by the API. It limits how many run at once and how long each may
//! take, and refuses reads that wait too long for their turn.

use std::future::Future;
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{LoggedCause, Problem, Result};
use crate::metrics::{TABLE_READS, TABLE_REFUSED};

/// How long a read of the tables may wait for its turn.
const PATIENCE: Duration = Duration::from_millis(100);

/// Limits reads of the tables.
pub struct TableGate {
    permits: Semaphore,
    budget: Duration,
}

impl TableGate {
    /// Lets so many reads run at once, each for at most `budget`, its wait included.
    pub fn new(concurrency: usize, budget: Duration) -> Self {
        Self { permits: Semaphore::new(concurrency), budget }
    }

    /// Runs `read` once it is its turn, and returns its result.
    pub async fn read<T>(&self, read: impl Future<Output = Outcome<T>>) -> Result<T> {
        let began = Instant::now();
        let turn = timeout(PATIENCE, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = turn else {
            TABLE_REFUSED.counter(&[]).increment(1);
            return Err(Problem::Busy);
        };
        let (outcome, result) = match timeout_at(began + self.budget, read).await {
            Ok(Ok(value)) => ("ok", Ok(value)),
            Ok(Err(fault)) => (fault.class(), Err(no_answer(&fault))),
            Err(_) => {
                ("slow", Err(Problem::StoreAway(LoggedCause::new(&format!("no answer within {:?}", self.budget)))))
            }
        };
        TABLE_READS.histogram(&[outcome]).record(began.elapsed());
        result
    }
}

/// Returns what a fault of the tables means for the request.
pub(super) fn no_answer(fault: &Fault) -> Problem {
    let cause = LoggedCause::new(fault);
    if let Fault::Poison(_) = fault { Problem::Internal(cause) } else { Problem::StoreAway(cause) }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    fn gate(concurrency: usize) -> TableGate {
        TableGate::new(concurrency, Duration::from_secs(2))
    }

    #[tokio::test(start_paused = true)]
    async fn past_the_gate_a_read_is_refused_and_never_begun() {
        let table = gate(1);
        let held = table.permits.try_acquire().unwrap();
        let began = Instant::now();
        assert_eq!(table.read(ready(Ok(1))).await, Err(Problem::Busy));
        assert_eq!(began.elapsed(), PATIENCE);
        drop(held);
        assert_eq!(table.read(ready(Ok(1))).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_fails_or_lasts_too_long_gives_its_place_back() {
        let table = gate(1);
        let fault: Outcome<u8> = Err(Fault::Transient("gone".to_owned()));
        assert!(matches!(table.read(ready(fault)).await, Err(Problem::StoreAway(cause)) if cause.as_str() == "gone"));
        assert!(matches!(table.read(pending::<Outcome<u8>>()).await, Err(Problem::StoreAway(_))));
        assert_eq!(table.read(ready(Ok(2))).await, Ok(2));
    }
}
