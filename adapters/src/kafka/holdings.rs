//! The bookkeeping of this member's partitions: which it has, and which of them the group wants back. It calls no
//! client; the task that polls does what follows from it.

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

/// A handover: revoked assignments, whose workers may finish until the deadline.
struct Handover {
    assignments: Vec<Arc<Assignment>>,
    deadline: Instant,
}

/// All partitions of this member.
#[derive(Default)]
pub(super) struct Holdings {
    held: BTreeMap<i32, Held>,
    handover: Option<Handover>,
}

impl Holdings {
    /// Begins an assignment. An earlier one of the same partition that has not ended is lost.
    pub(super) fn begin(&mut self, index: i32, assignment: Arc<Assignment>) {
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
        let handover = self.handover.get_or_insert(Handover { assignments: Vec::new(), deadline });
        for held in indices.iter().filter_map(|index| self.held.get(index)) {
            held.assignment.end(Revocation::Revoked);
            handover.assignments.push(Arc::clone(&held.assignment));
        }
    }

    /// Ends `assignment`, whose worker is done. Returns the partition to stop reading now; `None` for one of a
    /// handover, whose partitions are stopped together.
    pub(super) fn release(&mut self, assignment: &Arc<Assignment>) -> Option<i32> {
        let (index, _) = self.held_by(assignment)?;
        self.held.remove(&index);
        let in_handover = |handover: &Handover| handover.assignments.iter().any(|asked| Arc::ptr_eq(asked, assignment));
        (!self.handover.as_ref().is_some_and(in_handover)).then_some(index)
    }

    /// Returns the partition of an assignment that has not ended.
    pub(super) fn held_by(&mut self, assignment: &Arc<Assignment>) -> Option<(i32, &mut Held)> {
        let index = i32::try_from(assignment.partition.index).ok()?;
        self.held.get_mut(&index).filter(|held| Arc::ptr_eq(&held.assignment, assignment)).map(|held| (index, held))
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
        self.handover.as_ref().map(|handover| handover.deadline)
    }

    /// Returns whether all workers of the handover are done, or its time is up.
    pub(super) fn handed_over(&self) -> bool {
        self.handover.as_ref().is_some_and(|handover| {
            let waiting = handover.assignments.iter().any(|assignment| self.holds(assignment));
            !waiting || Instant::now() >= handover.deadline
        })
    }

    /// Ends the handover under way. Returns the partitions to stop reading, without those that were assigned again
    /// meanwhile; `None` where there is no handover.
    pub(super) fn finish_handover(&mut self) -> Option<Vec<i32>> {
        let handover = self.handover.take()?;
        let mut stopped = Vec::new();
        for assignment in &handover.assignments {
            let Ok(index) = i32::try_from(assignment.partition.index) else { continue };
            if self.holds(assignment) {
                self.held.remove(&index);
            }
            if !self.held.contains_key(&index) {
                stopped.push(index);
            }
        }
        Some(stopped)
    }

    fn holds(&self, assignment: &Arc<Assignment>) -> bool {
        self.held.values().any(|held| Arc::ptr_eq(&held.assignment, assignment))
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
        let (one, two, kept) = (assignment(1), assignment(2), assignment(3));
        for (index, assignment) in [(1, &one), (2, &two), (3, &kept)] {
            holdings.begin(index, Arc::clone(assignment));
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
    fn a_partition_that_is_assigned_again_during_its_handover_stays_assigned() {
        let mut holdings = Holdings::default();
        let (before, after) = (assignment(1), assignment(1));
        holdings.begin(1, Arc::clone(&before));
        holdings.ask_back(&[1], soon());
        holdings.lose(&[1]);
        assert_eq!(*before.revoked.borrow(), Some(Revocation::Lost));
        holdings.begin(1, Arc::clone(&after));
        assert!(holdings.handed_over(), "the earlier assignment is over");
        assert_eq!(holdings.finish_handover(), Some(vec![]), "the later assignment goes on");
        assert!(holdings.held_by(&after).is_some());
        assert_eq!(*after.revoked.borrow(), None);
    }

    #[test]
    fn an_assignment_ends_an_earlier_one_of_the_same_partition() {
        let mut holdings = Holdings::default();
        let (before, after) = (assignment(1), assignment(1));
        holdings.begin(1, Arc::clone(&before));
        holdings.ask_back(&[1], soon());
        holdings.begin(1, Arc::clone(&after));
        assert_eq!(*before.revoked.borrow(), Some(Revocation::Lost));
        assert_eq!(holdings.release(&before), None, "it has nothing to give back");
        assert_eq!(holdings.finish_handover(), Some(vec![]));
        assert!(holdings.held_by(&after).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_handover_ends_at_its_deadline_whether_workers_are_done_or_not() {
        let mut holdings = Holdings::default();
        let slow = assignment(1);
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
