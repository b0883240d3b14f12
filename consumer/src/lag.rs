//! Lag: how far behind each partition held here is, asked of the broker now and then, whatever the store is doing. What
//! the broker says of the log is handed to the partition's worker as well.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tally_core::consume::Look;
use tally_core::fence::{Fence, Fences, Log, Offset};
use tally_core::ports::{Outcome, OwnedPartition};
use tally_core::time::UnixMillis;
use tally_service::{Clock, Stop, Task};
use tokio::sync::Notify;

use crate::metrics;

/// How often the log is looked at.
const EVERY: Duration = Duration::from_secs(10);

/// How far one partition has come, as its worker says, and what the meter has to tell the worker.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    reached: Mutex<Reached>,
    looked: Notify,
}

#[derive(Clone, Debug, Default)]
struct Reached {
    /// The least lane's.
    fence: Option<Fence>,
    /// The offset of the lane that is furthest ahead.
    furthest: Offset,
    /// When the oldest record that is not written was recorded, as far as is known.
    waiting: Option<UnixMillis>,
    /// The last look at the log, until the worker takes it.
    look: Option<Look>,
}

impl Progress {
    /// The fences were read. What waits goes on waiting if the fence has not moved.
    pub(crate) fn loaded(&self, fences: &Fences) {
        let (fence, mut state) = (fences.least(), self.state());
        if state.fence.as_ref().is_none_or(|known| known.offset != fence.offset) {
            state.waiting = None;
        }
        (state.fence, state.furthest) = (Some(fence.clone()), fences.furthest());
        // A look from before is about an older fence.
        state.look = None;
    }

    /// Everything before `fence` is written, and some lane is at `furthest`; the record recorded at `waiting` is the next, if it was read already.
    pub(crate) fn reached(&self, fence: &Fence, furthest: Offset, waiting: Option<UnixMillis>) {
        let mut state = self.state();
        (state.fence, state.furthest) = (Some(fence.clone()), furthest);
        state.waiting = waiting;
    }

    /// A record recorded at `at` is not written; the oldest since the last write counts.
    pub(crate) fn waiting(&self, at: UnixMillis) {
        let mut state = self.state();
        state.waiting = Some(state.waiting.map_or(at, |oldest| oldest.min(at)));
    }

    /// The meter's next look at the log. Cancel safe.
    pub(crate) async fn looked(&self) -> Look {
        loop {
            let look = self.state().look.take();
            match look {
                Some(look) => return look,
                None => self.looked.notified().await,
            }
        }
    }

    /// Takes in what the broker says of the log: records and time behind. What is not read yet is at least as old as the
    /// first look at it.
    fn look(&self, look: Look, now: UnixMillis) -> (u64, Duration) {
        let mut state = self.state();
        let end = look.log.end;
        let fence = state.fence.as_ref().map_or(end, |fence| fence.offset);
        if fence < end {
            state.waiting.get_or_insert(now);
        }
        state.look = Some(look);
        let behind = lag(fence, end, state.waiting, now);
        drop(state);
        self.looked.notify_one();
        behind
    }

    /// The least lane's fence, and the offset of the lane that is furthest ahead.
    fn fences(&self) -> Option<(Fence, Offset)> {
        let state = self.state();
        Some((state.fence.clone()?, state.furthest))
    }

    fn state(&self) -> MutexGuard<'_, Reached> {
        self.reached.lock()
    }
}

/// The partitions that are measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board(Arc<Mutex<BTreeMap<u32, Entry>>>);

#[derive(Clone, Debug)]
struct Entry {
    log: Weak<dyn OwnedPartition>,
    progress: Arc<Progress>,
}

impl Board {
    /// Measures `log` for as long as its worker holds it.
    pub(crate) fn enter(&self, log: &Arc<dyn OwnedPartition>) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        let entry = Entry { log: Arc::downgrade(log), progress: Arc::clone(&progress) };
        self.entries().insert(log.partition().index, entry);
        progress
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<u32, Entry>> {
        self.0.lock()
    }

    /// The partitions still held. The others show no lag: their lag is another consumer's to show.
    fn held(&self) -> Vec<(u32, Entry)> {
        let mut entries = self.entries();
        entries.retain(|index, entry| {
            let held = entry.log.strong_count() > 0;
            if !held {
                metrics::lag(*index, 0, Duration::ZERO);
            }
            held
        });
        entries.iter().map(|(index, entry)| (*index, entry.clone())).collect()
    }
}

/// The task that measures.
pub(crate) struct Meter {
    pub(crate) board: Board,
    pub(crate) clock: Clock,
}

impl Meter {
    async fn measure(&self) {
        for (index, entry) in self.board.held() {
            // Held while it is looked at and no longer, and let go when it is revoked: a partition is handed over with its
            // last handle.
            let Some(log) = entry.log.upgrade() else { continue };
            let Some((fence, furthest)) = entry.progress.fences() else { continue };
            let looked = tokio::select! {
                biased;
                _ = log.revoked() => continue,
                looked = look(&*log) => looked,
            };
            let (partitions, log) = match looked {
                Ok(looked) => looked,
                // Lag stays as it was, so this is all that is seen of a broker that does not answer.
                Err(fault) => {
                    metrics::kafka_error(&fault);
                    continue;
                }
            };
            let (records, age) = entry.progress.look(Look { fence, furthest, log, partitions }, self.clock.now());
            metrics::lag(index, records, age);
        }
    }
}

async fn look(log: &dyn OwnedPartition) -> Outcome<(u32, Log)> {
    Ok((log.partitions().await?, log.log().await?))
}

fn lag(fence: Offset, end: Offset, waiting: Option<UnixMillis>, now: UnixMillis) -> (u64, Duration) {
    let records = end.0.saturating_sub(fence.0);
    let age = waiting.filter(|_| records > 0).map_or(Duration::ZERO, |waiting| now.since(waiting));
    (records, age)
}

impl Task for Meter {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            if stop.unless_requested(self.measure()).await.is_err() {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
