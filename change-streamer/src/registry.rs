//! Keeping the family of stream shards: finds them, numbers them ancestors first, opens a gap wherever one was lost
//! before anything is read on, and raises the floor. Every worker does it; nothing here needs to be done by one alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ids::StreamShardId;
use tally_core::lineage::{Hold, Lineage, Listed, Loss, first_sight};
use tally_core::ports::{
    ChangeStream, Checkpoints, Gap, GapId, Outcome, Position, ShardState, StreamFault, StreamInfo,
};
use tally_core::time::UnixMillis;
use tally_service::{Clock, Stop, Until};
use tokio::time::Instant;

use crate::closing::Born;
use crate::directory::Directory;
use crate::gaps::Gaps;
use crate::view::View;

/// The shortest time between two listings that something gave reason for.
const SPACING: Duration = Duration::from_secs(1);

/// What this process knows of the stream's shards.
pub(crate) struct Registry {
    stream: Arc<dyn ChangeStream>,
    directory: Directory,
    checkpoints: Arc<dyn Checkpoints>,
    gaps: Gaps,
    view: View,
    clock: Clock,
    /// How long a listing is good for.
    interval: Duration,
    info: StreamInfo,
    listing: Listing,
    /// Losses met here, until what lies behind them may be applied.
    holds: BTreeMap<GapId, Hold>,
}

/// The shards as last listed.
#[derive(Default)]
struct Listing {
    shards: Vec<Listed>,
    taken: Option<Instant>,
    /// What was known with the listing before.
    earlier: Option<Lineage>,
    /// Shards that listings leave out although they can be read.
    overlooked: BTreeMap<StreamShardId, Listed>,
    /// Somebody has reason to want a new one.
    wanted: bool,
    /// Why there cannot be one, though asking again may be answered some day.
    refused: Option<Fault>,
}

/// The stream as it stands: its shards, and who says to read them.
pub(crate) struct Sight {
    pub(crate) info: StreamInfo,
    pub(crate) lineage: Lineage,
    pub(crate) states: Vec<ShardState>,
    /// Why the table's stream is none that can be followed.
    pub(crate) refused: Option<Fault>,
}

impl Registry {
    /// Follows the life of the stream that `info` describes, until the table has another.
    pub(crate) fn new(
        stream: Arc<dyn ChangeStream>,
        directory: Directory,
        gaps: Gaps,
        clock: Clock,
        interval: Duration,
        info: StreamInfo,
    ) -> Self {
        let (checkpoints, view) = (Arc::clone(&gaps.checkpoints), gaps.view.clone());
        let (listing, holds) = (Listing::default(), BTreeMap::new());
        Self { stream, directory, checkpoints, gaps, view, clock, interval, info, listing, holds }
    }

    /// A shard has ended, and these continue it. Children of an earlier stream of the table are none of this one's.
    pub(crate) fn born(&mut self, born: Born) {
        if born.label != self.info.label {
            return;
        }
        self.listing.wanted |= born.children.is_empty();
        for child in born.children {
            if self.listing.shards.iter().all(|known| known.id != child.id) {
                self.listing.shards.push(child);
            }
        }
    }

    /// A shard that is listed answers as one that is gone does.
    pub(crate) fn doubt(&mut self) {
        self.listing.wanted = true;
    }

    /// Looks at everything once, sets right what can be, and shows the picture to the rest of the process.
    ///
    /// # Errors
    /// The first call that failed; the next look starts over.
    pub(crate) async fn look(&mut self, stop: &Stop) -> anyhow::Result<Sight> {
        let (losses, began) = (self.view.losses(), self.clock.reading());
        let open_gaps = !self.checkpoints.gaps().await?.is_empty();
        let listed_anew = match self.list_if_due().await {
            // What is known can be followed meanwhile, also where the stream was switched off: it may come back.
            Err(fault) if self.listing.taken.is_some() => {
                crate::metrics::faulted(&fault);
                tracing::warn!(error = %fault, "the stream's shards could not be listed");
                self.listing.refused = (!fault.is_retryable()).then_some(fault);
                false
            }
            listed => listed?,
        };
        let (mut states, mut lineage) = self.read().await?;
        if !lineage.unnumbered().is_empty() && self.may_follow(stop).await? && self.number(&lineage).await? {
            (states, lineage) = self.read().await?;
        }
        if listed_anew && self.give_up_vanished(&lineage, stop).await? {
            (states, lineage) = self.read().await?;
        }
        if listed_anew {
            self.listing.earlier = Some(lineage.clone());
        }
        // A shard that is gone or overlooked holds others up: look again soon.
        self.listing.wanted |= lineage.vanished(&lineage).next().is_some();
        self.tidy(&lineage).await?;
        self.view.show(began, lineage.clone(), open_gaps, losses);
        Ok(Sight { info: self.info.clone(), lineage, states, refused: self.listing.refused.clone() })
    }

    /// Checkpoints, registry and listing together.
    async fn read(&self) -> anyhow::Result<(Vec<ShardState>, Lineage)> {
        let label = &self.info.label;
        let registry = self.checkpoints.registry(label).await?;
        let states = self.checkpoints.shards(label).await?;
        let checkpoints = states.iter().map(|state| state.checkpoint.clone());
        let overlooked = self.listing.overlooked.values();
        let listing = self.listing.shards.iter().chain(overlooked).cloned();
        let lineage = Lineage::new(checkpoints, listing, registry.and_then(|registry| registry.floor));
        Ok((states, lineage))
    }

    /// Whether the stream's shards may get numbers, without which nothing of them is applied. Not while it may lack
    /// records and is held for that.
    async fn may_follow(&mut self, stop: &Stop) -> anyhow::Result<bool> {
        let StreamInfo { label, created, table_created } = self.info.clone();
        if self.checkpoints.registry(&label).await?.is_some() {
            return Ok(true);
        }
        match first_sight(&label, created, table_created, self.clock.now()) {
            None => Ok(true),
            Some(loss) => self.may_pass(&loss, stop).await,
        }
    }

    /// Whether what lies behind `loss` may be applied by now. It is recorded first, once by this process.
    async fn may_pass(&mut self, loss: &Loss, stop: &Stop) -> anyhow::Result<bool> {
        let id = Gap::of(loss, self.clock.now()).id;
        if let Some(hold) = self.holds.get(&id) {
            let over = hold.is_over(self.clock.reading().at);
            if over {
                self.holds.remove(&id);
            }
            return Ok(over);
        }
        self.gaps.record(loss, Until::Requested(stop)).await?;
        self.holds.insert(id, Hold::Recorded(self.clock.reading().at));
        Ok(false)
    }

    /// Lists the shards if it is time to; whether it did.
    async fn list_if_due(&mut self) -> Outcome<bool> {
        let age = self.listing.taken.map(|taken| taken.elapsed());
        let due = age.is_none_or(|age| age >= self.interval || self.listing.wanted && age >= SPACING);
        if !due {
            return Ok(false);
        }
        let info = self.stream.info().await.map_err(fault)?;
        if info.label != self.info.label {
            tracing::warn!(from = %self.info.label, to = %info.label, "the table has another stream now");
            (self.info, self.listing) = (info, Listing::default());
        }
        let shards = self.directory.shards(&self.info.label).await.map_err(fault)?.to_vec();
        let Listing { earlier, mut overlooked, .. } = std::mem::take(&mut self.listing);
        for listed in &shards {
            overlooked.remove(&listed.id);
        }
        let taken = Some(Instant::now());
        self.listing = Listing { shards, taken, earlier, overlooked, wanted: false, refused: None };
        Ok(true)
    }

    /// Numbers the shards that have no number; whether there were any.
    async fn number(&self, lineage: &Lineage) -> Outcome<bool> {
        let unnumbered = lineage.unnumbered();
        for id in &unnumbered {
            let parent = lineage.parent(id);
            // Nothing was written to a shard before its parent was read up to where it was known to be.
            let at = self.applied_before(lineage, parent);
            let ordinal = self.checkpoints.number(&self.info.label, id, parent, at).await?;
            tracing::info!(shard = %id, %ordinal, parent = parent.map(StreamShardId::as_str), "stream shard found");
        }
        Ok(!unnumbered.is_empty())
    }

    /// The time before which everything written to `shard` is known to be applied.
    fn applied_before(&self, lineage: &Lineage, shard: Option<&StreamShardId>) -> UnixMillis {
        let known = lineage.checkpoints().find(|known| Some(&known.id) == shard).map(|known| known.at);
        known.unwrap_or(self.info.created)
    }

    /// Closes shards that were not read to their end and are gone, each under its gap; whether there were any. What
    /// only listings leave out is asked for by name, with every listing that does: closing a living shard would lose
    /// all it is yet to get, and one overlooked yesterday may be gone today.
    async fn give_up_vanished(&mut self, lineage: &Lineage, stop: &Stop) -> anyhow::Result<bool> {
        let Some(earlier) = &self.listing.earlier else { return Ok(false) };
        let closed: BTreeSet<_> = lineage.checkpoints().filter(|known| known.closed).map(|known| &known.id).collect();
        let overlooked = self.listing.overlooked.keys().filter(|id| !closed.contains(id));
        let missing: Vec<StreamShardId> = lineage.vanished(earlier).chain(overlooked).cloned().collect();
        for id in &missing {
            match self.stream.iterator(&self.info.label, id, Position::Oldest).await {
                Ok(_) => {
                    tracing::warn!(shard = %id, "the service lists a stream shard no more that can still be read");
                    let listed = Listed { id: id.clone(), parent: lineage.parent(id).cloned(), ended: false };
                    self.listing.overlooked.insert(id.clone(), listed);
                }
                Err(StreamFault::Gone | StreamFault::Trimmed) => {
                    if !self.may_pass(&Loss::Vanished(id.clone()), stop).await? {
                        continue;
                    }
                    let at = self.applied_before(lineage, Some(id));
                    self.checkpoints.close(&self.info.label, id, at).await?;
                    self.listing.overlooked.remove(id);
                }
                Err(other) => return Err(fault(other).into()),
            }
        }
        Ok(!missing.is_empty())
    }

    /// Raises the floor, and drops checkpoints that nothing asks for any more.
    async fn tidy(&self, lineage: &Lineage) -> Outcome<()> {
        let label = &self.info.label;
        if let Some(floor) = lineage.closed_through().filter(|through| Some(*through) > lineage.floor()) {
            self.checkpoints.raise_floor(label, floor).await?;
        }
        for id in lineage.forgettable(self.clock.now()) {
            self.checkpoints.forget(label, id).await?;
        }
        Ok(())
    }
}

/// A stream's fault where its own kinds mean nothing: a stream that is gone will have a successor, or none.
pub(crate) fn fault(fault: StreamFault) -> Fault {
    match fault {
        StreamFault::Fault(fault) => fault,
        other => Fault::Transient(other.to_string()),
    }
}
