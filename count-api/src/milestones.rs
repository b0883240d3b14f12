//! The milestones of counters as they are read: the ladder, the records that stand, and whether each may be called exact by
//! now.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::{Checkpoints, Connection, Recounts};
use tally_core::Map;
use tally_core::ids::CounterId;
use tally_core::milestone::{Ladder, Milestone};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::read::{NoAnswer, Standings, TableGate};

/// The most that are read of one counter: the greatest thresholds.
const MOST: u32 = 100;

/// Corrections of one counter that are looked at: the latest.
const CORRECTIONS: u32 = 1_000;

/// How long after its line of the ledger was written a correction comes to the log at the latest.
const ON_ITS_WAY: Duration = Duration::from_secs(60);

/// How old what listeners are told of the ladder may be.
const LADDER: Duration = Duration::from_secs(10);

/// Counters whose milestones are kept for listeners.
const KEPT: usize = 1_000;

/// What is recorded of a counter, upwards, each with whether it may be called exact.
type Judged = Arc<[(Milestone, bool)]>;

/// What was read of a counter last, as of one of its versions.
type Place = Arc<Mutex<Option<(u64, Judged)>>>;

/// What listeners are told: read once for all of them.
#[derive(Default)]
struct Told {
    ladder: Mutex<Option<(Instant, Ladder)>>,
    of: parking_lot::Mutex<Map<CounterId, Place>>,
}

/// Where they are read.
#[derive(Clone)]
pub struct Milestones {
    recounts: Recounts,
    deployment: Checkpoints,
    table: Arc<TableGate>,
    standings: Standings,
    told: Arc<Told>,
}

impl Milestones {
    /// Those of the tables of `connection`.
    pub fn over(connection: &Connection, table: &Arc<TableGate>, standings: &Standings) -> Self {
        let (recounts, deployment) = (Recounts::new(connection), Checkpoints::new(connection));
        Self { recounts, deployment, table: Arc::clone(table), standings: standings.clone(), told: Arc::default() }
    }

    /// The deployment's ladder.
    ///
    /// # Errors
    /// The tables have no answer.
    pub async fn ladder(&self) -> Result<Ladder, NoAnswer> {
        self.table.read(self.deployment.ladder()).await
    }

    /// Those of `counter`, upwards, each with whether it may be called exact now: nothing said otherwise when it was
    /// recorded, no loss is open in the counter's partition, and nothing was corrected behind it. Whether a loss is open is asked
    /// before anything is read as well: the corrections of one that is closed by then are in what is read.
    ///
    /// # Errors
    /// The tables have no answer.
    pub async fn of(&self, counter: &CounterId) -> Result<Vec<(Milestone, bool)>, NoAnswer> {
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

    /// The ladder as listeners are told it, ten seconds old at most.
    ///
    /// # Errors
    /// The tables have no answer.
    pub async fn ladder_for_listeners(&self) -> Result<Ladder, NoAnswer> {
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

    /// What is recorded of `counter`, which has come to `version`: read once, however many listen.
    ///
    /// # Errors
    /// The tables have no answer.
    pub async fn at(&self, counter: &CounterId, version: u64) -> Result<Judged, NoAnswer> {
        let place = self.told.place(counter);
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

impl Told {
    fn place(&self, counter: &CounterId) -> Place {
        let mut of = self.of.lock();
        if of.len() >= KEPT && !of.contains_key(counter) {
            of.retain(|_, place| Arc::strong_count(place) > 1);
        }
        Arc::clone(of.entry_ref(counter).or_default())
    }
}
