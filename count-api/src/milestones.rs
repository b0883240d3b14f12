//! Reads the milestones of counters for the routes: the ladder, which is the list of thresholds, and for each threshold
//! that a counter has reached a record of who reached it first, and whether the record may be called exact now.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::{Checkpoints, Connection, Recounts};
use tally_core::Map;
use tally_core::ids::CounterId;
use tally_core::milestone::{Ladder, Milestone};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::Result;
use crate::read::{Standings, TableGate};

/// The most milestones that are read for one counter: those of the greatest thresholds.
const MOST: u32 = 100;

/// The most corrections of one counter that are read: the latest.
const CORRECTIONS: u32 = 1_000;

/// The longest time between a correction's line in the ledger and its entry in the log.
const ON_ITS_WAY: Duration = Duration::from_secs(60);

/// How old the ladder that listeners get may be.
const LADDER: Duration = Duration::from_secs(10);

/// How many counters' milestones are kept for listeners.
const KEPT: usize = 1_000;

/// The milestones of a counter, upwards, each with whether it may be called exact.
type Judged = Arc<[(Milestone, bool)]>;

/// What was read last for a counter, and the counter's version then.
type Place = Arc<Mutex<Option<(u64, Judged)>>>;

/// What listeners get; it is read once for all of them.
#[derive(Default)]
struct Told {
    ladder: Mutex<Option<(Instant, Ladder)>>,
    of: parking_lot::Mutex<Map<CounterId, Place>>,
}

/// Reads milestones. Clones share what is kept for listeners.
#[derive(Clone)]
pub struct Milestones {
    recounts: Recounts,
    deployment: Checkpoints,
    table: Arc<TableGate>,
    standings: Standings,
    told: Arc<Told>,
}

impl Milestones {
    /// Reads from the tables of `connection`, through the gate `table`.
    pub fn over(connection: &Connection, table: &Arc<TableGate>, standings: &Standings) -> Self {
        let (recounts, deployment) = (Recounts::new(connection), Checkpoints::new(connection));
        Self { recounts, deployment, table: Arc::clone(table), standings: standings.clone(), told: Arc::default() }
    }

    /// Reads the deployment's ladder.
    ///
    /// # Errors
    /// The tables do not answer.
    pub async fn ladder(&self) -> Result<Ladder> {
        self.table.read(self.deployment.ladder()).await
    }

    /// Reads the milestones of `counter`, upwards, each with whether it may be called exact now. It may if it was
    /// recorded as exact, no loss is open in the counter's partition, and no correction came at its time or later. Open
    /// losses are checked before the reads as well: if one closes meanwhile, its corrections may not be in what was
    /// read.
    ///
    /// # Errors
    /// The tables do not answer.
    pub async fn of(&self, counter: &CounterId) -> Result<Vec<(Milestone, bool)>> {
        let was_known = self.standings.is_lossless(counter);
        let recorded = self.table.read(self.recounts.milestones(counter, MOST)).await?;
        if recorded.is_empty() {
            return Ok(Vec::new());
        }
        let lines = self.table.read(self.recounts.ledger(counter, CORRECTIONS)).await?;
        let corrections = lines.into_iter().filter(|line| line.before != line.after);
        let corrected = corrections.map(|line| line.at.plus(ON_ITS_WAY)).max();
        let known = was_known && self.standings.is_lossless(counter);
        let judged = recorded.into_iter().rev().map(|recorded| {
            let milestone = recorded.milestone;
            let exact = known && milestone.exact && corrected.is_none_or(|corrected| corrected < milestone.at);
            (milestone, exact)
        });
        Ok(judged.collect())
    }

    /// Returns the ladder for listeners, at most ten seconds old.
    ///
    /// # Errors
    /// The tables do not answer.
    pub async fn ladder_for_listeners(&self) -> Result<Ladder> {
        let mut kept = self.told.ladder.lock().await;
        if let Some((read, ladder)) = *kept
            && read.elapsed() < LADDER
        {
            return Ok(ladder);
        }
        let ladder = self.ladder().await?;
        *kept = Some((Instant::now(), ladder));
        Ok(ladder)
    }

    /// Returns the milestones of `counter` at `version` or later. All listeners share one read.
    ///
    /// # Errors
    /// The tables do not answer.
    pub async fn at(&self, counter: &CounterId, version: u64) -> Result<Judged> {
        let place = {
            let mut of = self.told.of.lock();
            if of.len() >= KEPT && !of.contains_key(counter) {
                of.retain(|_, place| Arc::strong_count(place) > 1);
            }
            Arc::clone(of.entry_ref(counter).or_default())
        };
        let mut kept = place.lock().await;
        if let Some((read_at, judged)) = &*kept
            && *read_at >= version
        {
            return Ok(Arc::clone(judged));
        }
        let judged: Judged = self.of(counter).await?.into();
        *kept = Some((version, Arc::clone(&judged)));
        Ok(judged)
    }
}
