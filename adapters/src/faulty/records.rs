//! What is written with counters and only read here, call by call behind the plan.

use async_trait::async_trait;
use tally_core::ids::CounterId;
use tally_core::ports::{Ledger, LedgerEntry, Milestones, Outcome, Recorded};

use super::Faulty;

#[async_trait]
impl<P: Ledger> Ledger for Faulty<P> {
    async fn ledger(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<LedgerEntry>> {
        self.call("ledger", self.port.ledger(counter, limit)).await
    }
}

#[async_trait]
impl<P: Milestones> Milestones for Faulty<P> {
    async fn milestones(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<Recorded>> {
        self.call("milestones", self.port.milestones(counter, limit)).await
    }

    async fn milestone(&self, counter: &CounterId, n: i64) -> Outcome<Option<Recorded>> {
        self.call("milestone", self.port.milestone(counter, n)).await
    }
}
