//! How far the stream is applied, as the change-streamers' checkpoints say it, and the time held against them.
//!
//! A recount holds times of its own against times that change-streamers wrote down, so a clock that is behind would let it
//! prove too much: its own times are moved forward by the greatest lead it has seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tally_core::audit::Horizon;
use tally_core::fault::Fault;
use tally_core::ids::StreamLabel;
use tally_core::lineage::Lineage;
use tally_core::ports::{ChangeStream, Checkpoints};
use tally_core::time::{Now, UnixMillis};
use tokio::sync::Mutex;

use crate::calls::Calls;
use crate::store::Store;

/// How old a reading may be that is shared.
const AGE: Duration = Duration::from_secs(1);

/// One reading of the checkpoints.
#[derive(Debug)]
pub(crate) struct Applied {
    /// What every counter was sure to have.
    pub(crate) horizon: Arc<Horizon>,
    /// The least `at` over the open stream shards.
    pub(crate) as_of: Option<UnixMillis>,
    /// The stream, and all that is known of its shards.
    pub(crate) label: StreamLabel,
    pub(crate) lineage: Lineage,
    /// When it was begun.
    taken: Duration,
}

/// The view of the stream that all parts of a process share.
pub(crate) struct StreamView {
    stream: Arc<dyn ChangeStream>,
    checkpoints: Arc<dyn Checkpoints>,
    calls: Calls,
    rules: StreamRules,
    lead: Lead,
    latest: Mutex<Option<Arc<Applied>>>,
}

/// When something is said about the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRules {
    /// A lead of a change-streamer's clock greater than this is worth a warning.
    pub(crate) guard: Duration,
    /// So long without progress is, too.
    pub(crate) passing: Duration,
}

impl StreamView {
    /// The stream behind `store`.
    pub(crate) fn new(store: &Store, rules: StreamRules) -> Self {
        let (stream, checkpoints) = (Arc::clone(&store.ports.stream), Arc::clone(&store.ports.checkpoints));
        Self { stream, checkpoints, calls: store.calls.clone(), rules, lead: Lead::default(), latest: Mutex::default() }
    }

    /// Now, the wall time by the clock that is furthest ahead, ours or a change-streamer's: what was read before was
    /// written before.
    pub(crate) fn now(&self) -> Now {
        let Now { at, wall } = self.calls.clock().reading();
        Now { at, wall: wall.plus(self.lead.greatest()) }
    }

    /// A reading at most a second old: an older one proves less, never too much.
    pub(crate) async fn recent(&self) -> anyhow::Result<Arc<Applied>> {
        let mut latest = self.latest.lock().await;
        let taken = self.calls.clock().reading().at;
        if let Some(applied) = latest.as_ref().filter(|applied| taken.saturating_sub(applied.taken) < AGE) {
            return Ok(Arc::clone(applied));
        }
        let (label, lineage) = self.lineage().await?;
        let horizon = Arc::new(Horizon::of(&lineage));
        let applied = Applied { horizon, as_of: lineage.as_of(), label, lineage, taken };
        Ok(Arc::clone(latest.insert(Arc::new(applied))))
    }

    /// Up to when every open stream shard is applied, read now.
    pub(crate) async fn as_of(&self) -> anyhow::Result<Option<UnixMillis>> {
        Ok(self.lineage().await?.1.as_of())
    }

    /// Up to when every open stream shard is applied, once that is after `past`. Without a change-streamer this does not
    /// end, but it is said why.
    pub(crate) async fn passed(&self, past: UnixMillis) -> anyhow::Result<UnixMillis> {
        let at = || self.calls.clock().reading().at;
        let mut said = at();
        loop {
            let as_of = self.recent().await?.as_of;
            if let Some(as_of) = as_of.filter(|as_of| *as_of > past) {
                return Ok(as_of);
            }
            if at().saturating_sub(said) >= self.rules.passing {
                tracing::warn!(?as_of, "waiting for the change-streamer: nothing can be proved until it has caught up");
                said = at();
            }
            self.calls.wait(AGE / 2).await?;
        }
    }

    /// What the stream and its checkpoints say now. The checkpoints are read first: where they say that a shard is
    /// closed, a listing read later has its children.
    async fn lineage(&self) -> anyhow::Result<(StreamLabel, Lineage)> {
        let info = || async { self.stream.info().await.map_err(Fault::from) };
        let label = self.calls.persist("look at the stream", info).await?.label;
        let states = self.calls.persist("read checkpoints", || self.checkpoints.shards(&label)).await?;
        let registry = self.calls.persist("read the registry", || self.checkpoints.registry(&label)).await?;
        let open = states.iter().filter(|state| !state.checkpoint.closed).map(|state| state.checkpoint.at);
        self.lead.see(open, self.calls.clock().now(), self.rules.guard);
        let listing = || async { self.stream.shards(&label).await.map_err(Fault::from) };
        let listing = self.calls.persist("list stream shards", listing).await?;
        let floor = registry.and_then(|registry| registry.floor);
        let lineage = Lineage::new(states.into_iter().map(|state| state.checkpoint), listing, floor);
        Ok((label, lineage))
    }
}

/// The greatest lead of a change-streamer's clock seen so far, in milliseconds. A checkpoint is always a little older than
/// its reading, so what is seen falls short of the truth by that age; the guard time is there for the rest.
#[derive(Debug, Default)]
struct Lead(AtomicU64);

impl Lead {
    /// Takes note of times that change-streamers wrote down before `now`, and says so where they cannot have been.
    fn see(&self, times: impl Iterator<Item = UnixMillis>, now: UnixMillis, guard: Duration) {
        let lead = times.max().map_or(0, |time| time.0.saturating_sub(now.0));
        let known = self.0.fetch_max(lead, Ordering::Relaxed);
        if lead > known && Duration::from_millis(lead) > guard {
            tracing::warn!(
                lead_ms = lead,
                "a change-streamer's clock is ahead of this one: that much longer is waited"
            );
        }
    }

    /// By how much to move our times forward.
    fn greatest(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_lead_seen_stays_and_a_lag_is_none() {
        let (lead, guard) = (Lead::default(), Duration::from_secs(2));
        let see = |times: &[u64], now| {
            lead.see(times.iter().map(|at| UnixMillis(*at)), UnixMillis(now), guard);
            lead.greatest().as_millis()
        };
        assert_eq!(see(&[], 1_000), 0);
        assert_eq!(see(&[400, 900], 1_000), 0);
        assert_eq!(see(&[400, 6_000], 1_000), 5_000);
        assert_eq!(see(&[7_000], 6_500), 5_000);
    }
}
