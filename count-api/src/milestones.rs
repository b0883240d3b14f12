//! The milestones of counters as they are read: the ladder, the records that stand, and whether each may be called exact by
//! now.

use std::sync::Arc;

use tally_core::ids::CounterId;
use tally_core::milestone::{Ladder, Milestone};
use tally_core::ports::{Checkpoints, Recounts};

use crate::app::Ports;
use crate::read::{Judge, NoAnswer, TableGate};

/// The most that are read of one counter: the greatest thresholds.
const MOST: u32 = 100;

/// Corrections of one counter that are looked at: the latest.
const CORRECTIONS: u32 = 1_000;

/// Where they are read.
#[derive(Clone)]
pub struct Milestones {
    recounts: Arc<dyn Recounts>,
    checkpoints: Arc<dyn Checkpoints>,
    table: Arc<TableGate>,
    judge: Judge,
}

impl Milestones {
    /// Those of the tables behind `ports`.
    pub fn over(ports: &Ports, table: &Arc<TableGate>, judge: &Judge) -> Self {
        let (recounts, checkpoints) = (ports.recounts.clone(), ports.checkpoints.clone());
        Self { recounts, checkpoints, table: Arc::clone(table), judge: judge.clone() }
    }

    /// The deployment's ladder.
    ///
    /// # Errors
    /// The tables have no answer.
    pub async fn ladder(&self) -> Result<Ladder, NoAnswer> {
        self.table.read(self.checkpoints.ladder()).await
    }

    /// Those of `counter`, upwards, each with whether it may be called exact now: nothing said otherwise when it was
    /// recorded, no loss of stream is open, and nothing was corrected since.
    ///
    /// # Errors
    /// The tables have no answer.
    pub async fn of(&self, counter: &CounterId) -> Result<Vec<(Milestone, bool)>, NoAnswer> {
        let recorded = self.table.read(self.recounts.milestones(counter, MOST)).await?;
        if recorded.is_empty() {
            return Ok(Vec::new());
        }
        let lines = self.table.read(self.recounts.ledger(counter, CORRECTIONS)).await?;
        let corrected = lines.into_iter().filter(|line| line.before != line.after).map(|line| line.at).max();
        let known = self.judge.allows_exact();
        let judged = recorded.into_iter().rev().map(|recorded| {
            let milestone = recorded.milestone;
            let exact = known && milestone.exact && corrected.is_none_or(|corrected| corrected < milestone.at);
            (milestone, exact)
        });
        Ok(judged.collect())
    }
}
