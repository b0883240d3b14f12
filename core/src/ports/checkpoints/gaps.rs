//! Open losses of stream: while there is one, no answer is exact.

use async_trait::async_trait;

use crate::lineage::Loss;
use crate::ports::Outcome;
use crate::time::UnixMillis;

/// The name of one open gap: what was lost, so that opening it twice is opening it once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GapId(pub String);

/// A loss of stream not yet repaired by an audit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gap {
    /// Its name.
    pub id: GapId,
    /// The kind of loss.
    pub kind: String,
    /// What happened, for people.
    pub detail: String,
    /// When it was opened, last: only an audit that began later repairs it.
    pub opened: UnixMillis,
}

impl Gap {
    /// The gap that `loss`, met at `now`, opens: named after the kind of loss and the place of it.
    pub fn of(loss: &Loss, now: UnixMillis) -> Self {
        let place = match loss {
            Loss::Trimmed(shard) | Loss::Vanished(shard) | Loss::Unreadable(shard) => shard.to_string(),
            Loss::Outage { shard, .. } => shard.to_string(),
            Loss::Unfollowed(label) => label.to_string(),
            Loss::Refused(_) => "counters".to_owned(),
            Loss::FenceReset(partition) => partition.to_string(),
        };
        let id = GapId(format!("{}/{place}", loss.kind()));
        Self { id, kind: loss.kind().to_owned(), detail: loss.to_string(), opened: now }
    }
}

/// What a streamer has said last of how far the counters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Told {
    /// Everything that had reached the likes table by then is in every counter.
    pub as_of: UnixMillis,
    /// How often streamers have said so: one that finds it as it was before says it next.
    pub times: u64,
}

/// What one read of the gaps says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The open gaps.
    pub gaps: Vec<Gap>,
    /// How far the counters are, where a streamer says it.
    pub told: Option<Told>,
}

/// The open gaps, and beside them how far the counters are.
#[async_trait]
pub trait Gaps: Send + Sync {
    /// Records a loss durably and queues a full audit. Safe to repeat: the same loss is one gap. Its time moves forward
    /// with every call, whatever the caller's clock says, since a repeat cannot be told from a second loss at the same
    /// place, which an audit under way would not repair.
    async fn open_gap(&self, loss: &Loss, now: UnixMillis) -> Outcome<Gap>;

    /// The open gaps and how far the counters are, in one consistent read.
    async fn standing(&self) -> Outcome<Standing>;

    /// The open gaps, read consistently.
    async fn gaps(&self) -> Outcome<Vec<Gap>> {
        Ok(self.standing().await?.gaps)
    }

    /// Says how far the counters are. Safe to repeat, and to say late: what was said never moves back, and less is still true.
    /// Only what is later than `limit` gives way to less: a clock was ahead that said it.
    async fn tell(&self, as_of: UnixMillis, limit: UnixMillis) -> Outcome<()>;

    /// Closes `gap` if it is still the one opened then. Safe to repeat.
    async fn close_gap(&self, gap: &Gap) -> Outcome<()>;
}
