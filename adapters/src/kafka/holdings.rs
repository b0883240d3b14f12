//! Which partitions are ours and which of them are asked back: the bookkeeping alone. What follows for the client is the
//! poller's.

use std::collections::BTreeMap;
use std::sync::Arc;

use tally_core::ports::log::{Over, Records};
use tokio::time::Instant;

use super::owned::Tenure;

/// A partition of ours as the poller sees it.
pub(super) struct Held {
    pub(super) tenure: Arc<Tenure>,
    /// What was read and not handed over yet.
    pub(super) read: Records,
    /// Whether what is read belongs to the position last started at.
    pub(super) started: bool,
}

/// Stays asked back whose workers are not through yet.
struct Handover {
    tenures: Vec<Arc<Tenure>>,
    deadline: Instant,
}

/// Everything that is ours.
#[derive(Default)]
pub(super) struct Holdings {
    held: BTreeMap<i32, Held>,
    handover: Option<Handover>,
}

impl Holdings {
    /// Begins a stay. An earlier one of the same partition that nobody has ended is lost.
    pub(super) fn begin(&mut self, index: i32, tenure: Arc<Tenure>) {
        let held = Held { tenure, read: Records::default(), started: false };
        if let Some(before) = self.held.insert(index, held) {
            before.tenure.end(Over::Lost);
        }
    }

    /// These are gone already.
    pub(super) fn lose(&mut self, indices: &[i32]) {
        for held in indices.iter().filter_map(|index| self.held.remove(index)) {
            held.tenure.end(Over::Lost);
        }
    }

    /// Everything is gone.
    pub(super) fn lose_all(&mut self) {
        for held in std::mem::take(&mut self.held).into_values() {
            held.tenure.end(Over::Lost);
        }
    }

    /// These are asked back: their workers may finish until `deadline`, or until the one of a handover under way.
    pub(super) fn ask_back(&mut self, indices: &[i32], deadline: Instant) {
        let handover = self.handover.get_or_insert(Handover { tenures: Vec::new(), deadline });
        for held in indices.iter().filter_map(|index| self.held.get(index)) {
            held.tenure.end(Over::Revoked);
            handover.tenures.push(Arc::clone(&held.tenure));
        }
    }

    /// A worker is through with `tenure`. The partition to stop reading now, if there is one: those asked back are
    /// stopped together.
    pub(super) fn release(&mut self, tenure: &Arc<Tenure>) -> Option<i32> {
        let (index, _) = self.held_by(tenure)?;
        self.held.remove(&index);
        let asked_back = |handover: &Handover| handover.tenures.iter().any(|asked| Arc::ptr_eq(asked, tenure));
        (!self.handover.as_ref().is_some_and(asked_back)).then_some(index)
    }

    /// What is held of a stay that has not ended.
    pub(super) fn held_by(&mut self, tenure: &Arc<Tenure>) -> Option<(i32, &mut Held)> {
        let index = i32::try_from(tenure.partition.index).ok()?;
        self.held.get_mut(&index).filter(|held| Arc::ptr_eq(&held.tenure, tenure)).map(|held| (index, held))
    }

    /// The stay that what is read of a partition belongs to.
    pub(super) fn reading(&mut self, index: i32) -> Option<&mut Held> {
        self.held.get_mut(&index).filter(|held| held.started)
    }

    /// Every partition that is read.
    pub(super) fn all_reading(&mut self) -> impl Iterator<Item = &mut Held> {
        self.held.values_mut().filter(|held| held.started)
    }

    /// When the handover under way is over whether the workers are through or not.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.handover.as_ref().map(|handover| handover.deadline)
    }

    /// Whether everybody is through with what is asked back, or time is up.
    pub(super) fn handed_over(&self) -> bool {
        self.handover.as_ref().is_some_and(|handover| {
            let waiting = handover.tenures.iter().any(|tenure| self.holds(tenure));
            !waiting || Instant::now() >= handover.deadline
        })
    }

    /// Ends the handover under way, ready or not. The partitions to stop reading, less those that are ours again by a
    /// later stay; `None` where nothing was asked back.
    pub(super) fn finish_handover(&mut self) -> Option<Vec<i32>> {
        let handover = self.handover.take()?;
        let mut stopped = Vec::new();
        for tenure in &handover.tenures {
            let Ok(index) = i32::try_from(tenure.partition.index) else { continue };
            if self.holds(tenure) {
                self.held.remove(&index);
            }
            if !self.held.contains_key(&index) {
                stopped.push(index);
            }
        }
        Some(stopped)
    }

    fn holds(&self, tenure: &Arc<Tenure>) -> bool {
        self.held.values().any(|held| Arc::ptr_eq(&held.tenure, tenure))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tally_core::fence::Partition;

    use super::*;

    fn tenure(index: u32) -> Arc<Tenure> {
        Tenure::new(Partition { topic: "likes".into(), index })
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_handover_waits_for_its_workers_and_stops_what_they_read_together() {
        let mut holdings = Holdings::default();
        let (one, two, kept) = (tenure(1), tenure(2), tenure(3));
        for (index, tenure) in [(1, &one), (2, &two), (3, &kept)] {
            holdings.begin(index, Arc::clone(tenure));
        }
        holdings.ask_back(&[1, 2], soon());
        assert_eq!(holdings.release(&one), None);
        assert!(!holdings.handed_over());
        assert_eq!(holdings.release(&two), None);
        assert!(holdings.handed_over());
        assert_eq!(holdings.finish_handover(), Some(vec![1, 2]));
        assert_eq!(holdings.finish_handover(), None);
        assert_eq!(holdings.release(&kept), Some(3));
        assert_eq!(holdings.release(&kept), None, "given back once");
    }

    #[test]
    fn a_partition_that_comes_back_while_its_handover_is_pending_stays_ours() {
        let mut holdings = Holdings::default();
        let (before, after) = (tenure(1), tenure(1));
        holdings.begin(1, Arc::clone(&before));
        holdings.ask_back(&[1], soon());
        holdings.lose(&[1]);
        assert_eq!(before.is_over(), Some(Over::Lost));
        holdings.begin(1, Arc::clone(&after));
        assert!(holdings.handed_over(), "the earlier stay is over");
        assert_eq!(holdings.finish_handover(), Some(vec![]), "the later stay goes on");
        assert!(holdings.held_by(&after).is_some());
        assert_eq!(after.is_over(), None);
    }

    #[test]
    fn a_stay_begun_over_another_ends_it() {
        let mut holdings = Holdings::default();
        let (before, after) = (tenure(1), tenure(1));
        holdings.begin(1, Arc::clone(&before));
        holdings.ask_back(&[1], soon());
        holdings.begin(1, Arc::clone(&after));
        assert_eq!(before.is_over(), Some(Over::Lost));
        assert_eq!(holdings.release(&before), None, "it has nothing to give back");
        assert_eq!(holdings.finish_handover(), Some(vec![]));
        assert!(holdings.held_by(&after).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_handover_ends_at_its_deadline_whoever_still_works() {
        let mut holdings = Holdings::default();
        let slow = tenure(1);
        holdings.begin(1, Arc::clone(&slow));
        holdings.ask_back(&[1], soon());
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(!holdings.handed_over());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(holdings.handed_over());
        assert_eq!(holdings.finish_handover(), Some(vec![1]));
        assert!(holdings.held_by(&slow).is_none());
    }
}
