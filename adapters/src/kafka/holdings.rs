//! The bookkeeping of one member of a Kafka consumer group: which partitions it has, and which of them the group wants
//! back. It calls no client; the task that polls does what follows from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tally_core::ports::log::{Records, Revocation};
use tokio::time::Instant;

use super::owned::Assignment;

/// A partition of this member, as the task that polls sees it.
pub(super) struct Held {
    pub(super) assignment: Arc<Assignment>,
    /// Records that were read and are not delivered yet.
    pub(super) read: Records,
    /// Whether it was started at a position. What is read since then belongs to that position.
    pub(super) started: bool,
}

impl Held {
    fn is_one_of(&self, assignments: &[Arc<Assignment>]) -> bool {
        assignments.iter().any(|assignment| Arc::ptr_eq(&self.assignment, assignment))
    }
}

/// All partitions of this member.
#[derive(Default)]
pub(super) struct Holdings {
    held: BTreeMap<i32, Held>,
    /// A handover: revoked assignments, whose workers may finish until this moment.
    handover: Option<(Vec<Arc<Assignment>>, Instant)>,
}

impl Holdings {
    /// Begins an assignment. An earlier one of the same partition that has not ended is lost.
    pub(super) fn begin(&mut self, assignment: Arc<Assignment>) {
        let index = assignment.index;
        let held = Held { assignment, read: Records::default(), started: false };
        if let Some(before) = self.held.insert(index, held) {
            before.assignment.end(Revocation::Lost);
        }
    }

    /// Ends these assignments as lost.
    pub(super) fn lose(&mut self, indices: &[i32]) {
        for held in indices.iter().filter_map(|index| self.held.remove(index)) {
            held.assignment.end(Revocation::Lost);
        }
    }

    /// Ends all assignments as lost.
    pub(super) fn lose_all(&mut self) {
        for held in std::mem::take(&mut self.held).into_values() {
            held.assignment.end(Revocation::Lost);
        }
    }

    /// Begins a handover of partitions that the group wants back: their workers may finish until `deadline`, or until
    /// that of a handover under way.
    pub(super) fn ask_back(&mut self, indices: &[i32], deadline: Instant) {
        let (asked, _) = self.handover.get_or_insert((Vec::new(), deadline));
        for held in indices.iter().filter_map(|index| self.held.get(index)) {
            held.assignment.end(Revocation::Revoked);
            asked.push(Arc::clone(&held.assignment));
        }
    }

    /// Ends `assignment`, whose worker is done. Returns the partition to stop reading now; `None` for one of a
    /// handover, whose partitions are stopped together.
    pub(super) fn release(&mut self, assignment: &Arc<Assignment>) -> Option<i32> {
        self.held_by(assignment)?;
        let held = self.held.remove(&assignment.index)?;
        let in_handover = self.handover.as_ref().is_some_and(|(asked, _)| held.is_one_of(asked));
        (!in_handover).then_some(assignment.index)
    }

    /// Returns the partition of an assignment that has not ended.
    pub(super) fn held_by(&mut self, assignment: &Arc<Assignment>) -> Option<&mut Held> {
        self.held.get_mut(&assignment.index).filter(|held| Arc::ptr_eq(&held.assignment, assignment))
    }

    /// Returns the partition `index` to add a record to, if it was started.
    pub(super) fn reading(&mut self, index: i32) -> Option<&mut Held> {
        self.held.get_mut(&index).filter(|held| held.started)
    }

    /// Returns every partition that was started.
    pub(super) fn all_reading(&mut self) -> impl Iterator<Item = &mut Held> {
        self.held.values_mut().filter(|held| held.started)
    }

    /// Returns when the handover under way ends, whether the workers are done or not.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.handover.as_ref().map(|(_, deadline)| *deadline)
    }

    /// Returns whether all workers of the handover are done, or its time is up.
    pub(super) fn handed_over(&self) -> bool {
        self.handover.as_ref().is_some_and(|(asked, deadline)| {
            let waiting = self.held.values().any(|held| held.is_one_of(asked));
            !waiting || Instant::now() >= *deadline
        })
    }

    /// Ends the handover under way. Returns the partitions to stop reading, without those that were assigned again
    /// meanwhile; `None` where there is no handover.
    pub(super) fn finish_handover(&mut self) -> Option<Vec<i32>> {
        let (asked, _) = self.handover.take()?;
        self.held.retain(|_, held| !held.is_one_of(&asked));
        let stopped = asked.iter().map(|assignment| assignment.index);
        Some(stopped.filter(|index| !self.held.contains_key(index)).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tally_core::topic::Partition;

    use super::*;

    fn assignment(index: u32) -> Arc<Assignment> {
        Assignment::new(Partition { topic: "likes".into(), index })
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn a_handover_waits_for_its_workers_and_stops_what_they_read_together() {
        let mut holdings = Holdings::default();
        let [one, two, kept] = [1, 2, 3].map(assignment);
        for assignment in [&one, &two, &kept] {
            holdings.begin(Arc::clone(assignment));
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
    fn a_partition_that_is_assigned_again_during_its_handover_stays_assigned_and_the_earlier_assignment_is_lost() {
        for is_told in [true, false] {
            let mut holdings = Holdings::default();
            let [before, after] = [1, 1].map(assignment);
            holdings.begin(Arc::clone(&before));
            holdings.ask_back(&[1], soon());
            if is_told {
                holdings.lose(&[1]);
            }
            holdings.begin(Arc::clone(&after));
            assert_eq!(*before.revoked.borrow(), Some(Revocation::Lost));
            assert!(holdings.handed_over(), "the earlier assignment is over");
            assert_eq!(holdings.release(&before), None, "it has nothing to give back");
            assert_eq!(holdings.finish_handover(), Some(vec![]), "the later assignment goes on");
            assert!(holdings.held_by(&after).is_some() && after.revoked.borrow().is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handover_ends_at_its_deadline_whether_workers_are_done_or_not() {
        let mut holdings = Holdings::default();
        let slow = assignment(1);
        holdings.begin(Arc::clone(&slow));
        holdings.ask_back(&[1], soon());
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(!holdings.handed_over());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(holdings.handed_over());
        assert_eq!(holdings.finish_handover(), Some(vec![1]));
        assert!(holdings.held_by(&slow).is_none());
    }
}
