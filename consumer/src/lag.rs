//! How far behind each partition of ours is: asked of the broker now and then, whatever the store is doing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tally_core::fence::Offset;
use tally_core::ports::OwnedPartition;
use tally_core::time::UnixMillis;
use tally_service::{Clock, Stop, Task};

use crate::metrics;

/// How often the lag is measured.
const EVERY: Duration = Duration::from_secs(10);

/// How far one partition has come, as its worker says.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Reached>);

#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    fence: Option<Offset>,
    /// When the oldest record that is read and not written was recorded.
    waiting: Option<UnixMillis>,
}

impl Progress {
    /// Everything before `fence` is written; the record recorded at `waiting` is the next, if it was read already.
    pub(crate) fn reached(&self, fence: Offset, waiting: Option<UnixMillis>) {
        *self.state() = Reached { fence: Some(fence), waiting };
    }

    /// A record recorded at `at` was read; the first since the last write counts.
    pub(crate) fn waiting(&self, at: UnixMillis) {
        self.state().waiting.get_or_insert(at);
    }

    fn state(&self) -> MutexGuard<'_, Reached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn held(&self) -> Vec<(u32, Arc<dyn OwnedPartition>, Arc<Progress>)> {
        let mut entries = self.entries();
        let mut held = Vec::new();
        entries.retain(|index, entry| match entry.log.upgrade() {
            Some(log) => {
                held.push((*index, log, Arc::clone(&entry.progress)));
                true
            }
            None => {
                metrics::lag(*index, 0, Duration::ZERO);
                false
            }
        });
        held
    }
}

/// The task that measures.
pub(crate) struct Meter {
    pub(crate) board: Board,
    pub(crate) clock: Clock,
}

impl Meter {
    async fn measure(&self) {
        for (index, log, progress) in self.board.held() {
            // A broker that does not answer is reported by whoever needs the answer.
            let Ok(found) = log.log().await else { continue };
            let Reached { fence, waiting } = *progress.state();
            let Some(fence) = fence else { continue };
            let (records, age) = lag(fence, found.end, waiting, self.clock.now());
            metrics::lag(index, records, age);
        }
    }
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
mod tests {
    use super::*;

    #[test]
    fn lag_is_counted_to_the_end_of_the_log_and_timed_by_the_oldest_record_not_written() {
        let now = UnixMillis(10_000);
        let lag = |fence, end, waiting| lag(Offset(fence), Offset(end), waiting, now);
        assert_eq!(lag(5, 5, None), (0, Duration::ZERO));
        assert_eq!(lag(5, 9, Some(UnixMillis(4_000))), (4, Duration::from_secs(6)));
        assert_eq!(lag(5, 5, Some(UnixMillis(4_000))), (0, Duration::ZERO), "written since");
        assert_eq!(lag(5, 3, None).0, 0, "a log that lost its tail is an alarm, not a lag");
    }

    #[test]
    fn the_oldest_waiting_record_stands_until_the_fence_moves() {
        let progress = Progress::default();
        progress.reached(Offset(1), None);
        progress.waiting(UnixMillis(7));
        progress.waiting(UnixMillis(9));
        assert_eq!(progress.state().waiting, Some(UnixMillis(7)));
        progress.reached(Offset(2), None);
        assert_eq!(progress.state().waiting, None);
    }
}
