//! How far behind each partition of ours is, and whether it still reads the log it thinks it reads: asked of the broker
//! now and then, whatever the store is doing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tally_core::fence::{self, Fence, Load, Log, Offset};
use tally_core::ports::{Outcome, OwnedPartition};
use tally_core::time::UnixMillis;
use tally_service::{Clock, Stop, Task};
use tokio::sync::watch;

use crate::metrics;

/// How often the log is looked at.
const EVERY: Duration = Duration::from_secs(10);

/// How far one partition has come, as its worker says, and what the meter has to tell the worker.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    reached: Mutex<Reached>,
    /// How many partitions the topic has.
    partitions: AtomicU32,
    /// The log no longer fits the fence.
    doubted: watch::Sender<bool>,
}

#[derive(Clone, Debug, Default)]
struct Reached {
    fence: Option<Fence>,
    /// When the oldest record that is not written was recorded, as far as is known.
    waiting: Option<UnixMillis>,
}

impl Progress {
    /// The fence was read. What waits goes on waiting if it still stands where it stood.
    pub(crate) fn loaded(&self, fence: &Fence) {
        let mut state = self.state();
        if state.fence.as_ref().is_none_or(|known| known.offset != fence.offset) {
            state.waiting = None;
        }
        state.fence = Some(fence.clone());
        drop(state);
        self.doubted.send_replace(false);
    }

    /// Everything before `fence` is written; the record recorded at `waiting` is the next, if it was read already.
    pub(crate) fn reached(&self, fence: &Fence, waiting: Option<UnixMillis>) {
        *self.state() = Reached { fence: Some(fence.clone()), waiting };
    }

    /// A record recorded at `at` is not written; the oldest since the last write counts.
    pub(crate) fn waiting(&self, at: UnixMillis) {
        let mut state = self.state();
        state.waiting = Some(state.waiting.map_or(at, |oldest| oldest.min(at)));
    }

    /// The topic has so many partitions.
    pub(crate) fn spread_over(&self, partitions: u32) {
        self.partitions.store(partitions, Ordering::Relaxed);
    }

    /// How many partitions the topic has.
    pub(crate) fn partitions(&self) -> u32 {
        self.partitions.load(Ordering::Relaxed)
    }

    /// Completes when the fence read last no longer fits the log: the topic was re-created, or has lost records.
    pub(crate) async fn doubted(&self) {
        let mut doubted = self.doubted.subscribe();
        // The sender is borrowed by this very call, so the channel is open.
        let _ = doubted.wait_for(|doubted| *doubted).await;
    }

    /// Takes in what the broker says of the log; `fence` was read before it was asked. What is not read yet is at least
    /// as old as the first look at it.
    fn compare(&self, fence: Fence, log: &Log, now: UnixMillis) -> (u64, Duration) {
        if let Load::Halt(_) = fence::load(Some(fence), log) {
            self.doubted.send_replace(true);
        }
        let mut state = self.state();
        let fence = state.fence.as_ref().map_or(log.end, |fence| fence.offset);
        if fence < log.end {
            state.waiting.get_or_insert(now);
        }
        lag(fence, log.end, state.waiting, now)
    }

    fn fence(&self) -> Option<Fence> {
        self.state().fence.clone()
    }

    fn state(&self) -> MutexGuard<'_, Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The partitions still held; the others show no lag any more, since it is another's now.
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
            // Held for its own turn alone, and given up when asked: a partition is handed over with its last handle.
            let Some(log) = entry.log.upgrade() else { continue };
            let Some(fence) = entry.progress.fence() else { continue };
            let looked = tokio::select! {
                biased;
                _ = log.over() => continue,
                looked = look(&*log) => looked,
            };
            // A broker that does not answer is reported by whoever needs the answer.
            let Ok((partitions, found)) = looked else { continue };
            entry.progress.spread_over(partitions);
            let (records, age) = entry.progress.compare(fence, &found, self.clock.now());
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
