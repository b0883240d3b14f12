//! What an answered update leaves to be done for its counter: row keys to be queued for a recount, and what is owed to a
//! count that the store refuses to change.

use std::collections::VecDeque;

use super::Request;
use crate::counter::{Counter, ShardTally, Touch, Update};
use crate::ids::{CounterId, CounterKind, RowKey, Shard};
use crate::lineage::Loss;
use crate::ports::QueueReason;

/// One thing to be done for a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowUp {
    /// Mark a shard's count as one that lacks records.
    MarkSuspect(Shard),
    /// Record that a shard's count lacks records and cannot even be marked.
    OpenGap(Shard),
    /// Read the counter as it stands, to publish it.
    ReadCounter,
    /// Queue a shard for a recount.
    Queue(Shard, QueueReason),
}

impl FollowUp {
    pub(super) fn request(self, counter: &CounterId) -> Request {
        let key = |shard| RowKey { counter: counter.clone(), shard };
        match self {
            Self::MarkSuspect(shard) => Request::MarkSuspect(key(shard)),
            Self::OpenGap(shard) => Request::OpenGap(Loss::Refused(key(shard))),
            Self::ReadCounter => Request::ReadCounter(counter.clone()),
            Self::Queue(shard, reason) => Request::Queue(key(shard), reason),
        }
    }
}

/// After an update was taken: queues the shards that it made negative or suspect. Each is queued by the update that did it.
pub(super) fn after_taken(update: &Update, counter: &Counter) -> VecDeque<FollowUp> {
    let total = update.total().unwrap_or(0);
    let total_fell = counter.likes < 0 && counter.likes.saturating_sub(total) >= 0;
    let reason = |touch: &Touch| {
        let tally = counter.shards.get(&touch.shard)?;
        let fell = tally.rows < 0 && tally.rows.saturating_sub(touch.delta) >= 0;
        if touch.makes_suspect() || is_beyond(tally) {
            Some(QueueReason::Suspect)
        } else {
            (fell || total_fell).then_some(QueueReason::Negative)
        }
    };
    queued(update, reason)
}

/// Whether what stands in the store is beyond 64 bits: it is read as the nearest that is not, and as suspect.
fn is_beyond(tally: &ShardTally) -> bool {
    tally.suspect && matches!(tally.rows, i64::MIN | i64::MAX)
}

/// After everything of an update turned out to be in the counter: queues its shards that stand negative or suspect. The
/// reply to the update that made them so may have been lost.
pub(super) fn after_known(update: &Update, counter: &Counter) -> VecDeque<FollowUp> {
    queued(update, |touch| {
        let tally = counter.shards.get(&touch.shard)?;
        match (tally.suspect, tally.rows < 0 || counter.likes < 0) {
            (true, _) => Some(QueueReason::Suspect),
            (false, true) => Some(QueueReason::Negative),
            (false, false) => None,
        }
    })
}

/// After the store refused an update for good: no answer calls what it would have changed exact any more, and a recount is
/// to repair it.
pub(super) fn after_poison(update: &Update) -> VecDeque<FollowUp> {
    let shards = || update.touched.iter().map(|touch| touch.shard);
    let marks = shards().map(FollowUp::MarkSuspect);
    let queued = shards().map(|shard| FollowUp::Queue(shard, QueueReason::Drift));
    marks.chain([FollowUp::ReadCounter]).chain(queued).collect()
}

/// What of `follow_ups` holds for a counter of a kind: a sum may be below zero, and is not recounted for that.
pub(super) fn of_kind(kind: CounterKind, mut follow_ups: VecDeque<FollowUp>) -> VecDeque<FollowUp> {
    if kind == CounterKind::Sum {
        follow_ups.retain(|follow_up| !matches!(follow_up, FollowUp::Queue(_, QueueReason::Negative)));
    }
    follow_ups
}

fn queued(update: &Update, reason: impl Fn(&Touch) -> Option<QueueReason>) -> VecDeque<FollowUp> {
    update.touched.iter().filter_map(|touch| Some(FollowUp::Queue(touch.shard, reason(touch)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Feeder;
    use crate::ids::Ordinal;
    use crate::time::UnixMillis;

    fn shard() -> Shard {
        Shard::new(3).unwrap()
    }

    fn update(delta: i64, feeder: Feeder) -> Update {
        Update {
            shard: Ordinal(1),
            first: 1.into(),
            last: 2.into(),
            at: UnixMillis(0),
            touched: vec![Touch { shard: shard(), delta, feeder, window: None, doubt: false }],
            ancestors: vec![],
            closed_through: None,
            prune: None,
            guard: None,
        }
    }

    fn counter(likes: i64, rows: i64, suspect: bool) -> Counter {
        let tally = ShardTally { rows, suspect, ..ShardTally::default() };
        Counter { likes, shards: [(shard(), tally)].into(), ..Counter::default() }
    }

    #[test]
    fn the_update_that_makes_a_count_negative_queues_it_and_later_ones_do_not() {
        let negative = [FollowUp::Queue(shard(), QueueReason::Negative)];
        assert_eq!(after_taken(&update(-2, Feeder::Usual), &counter(5, -1, false)), negative);
        assert_eq!(after_taken(&update(-2, Feeder::Usual), &counter(5, -3, false)), []);
        assert_eq!(after_taken(&update(-2, Feeder::Usual), &counter(-1, 4, false)), negative, "the total fell");
        assert_eq!(after_taken(&update(1, Feeder::Usual), &counter(5, 4, false)), []);
    }

    #[test]
    fn a_sum_is_queued_as_suspect_and_never_for_being_below_zero() {
        let contest = update(-1, Feeder::Contest { from: Ordinal(7) });
        for (kind, queued) in [(CounterKind::Set, 1), (CounterKind::Sum, 0)] {
            let fell = after_taken(&update(-2, Feeder::Usual), &counter(-1, -1, false));
            let suspect = after_taken(&contest, &counter(-1, -1, true));
            assert_eq!((of_kind(kind, fell).len(), of_kind(kind, suspect).len()), (queued, 1), "{kind:?}");
        }
    }

    #[test]
    fn a_contest_queues_its_shard_as_suspect() {
        let suspect = [FollowUp::Queue(shard(), QueueReason::Suspect)];
        let contest = update(1, Feeder::Contest { from: Ordinal(7) });
        assert_eq!(after_taken(&contest, &counter(5, 4, true)), suspect);
        assert_eq!(after_taken(&update(1, Feeder::Usual), &counter(5, 4, true)), [], "it was queued before");
    }

    #[test]
    fn a_count_beyond_64_bits_is_queued_as_suspect() {
        let suspect = [FollowUp::Queue(shard(), QueueReason::Suspect)];
        for nearest in [i64::MIN, i64::MAX] {
            assert_eq!(after_taken(&update(1, Feeder::Usual), &counter(5, nearest, true)), suspect);
        }
        assert_eq!(after_taken(&update(1, Feeder::Usual), &counter(5, i64::MAX, false)), [], "it is within");
    }

    #[test]
    fn after_a_lost_reply_every_shard_that_stands_wrong_is_queued() {
        let update = update(-1, Feeder::Usual);
        assert_eq!(after_known(&update, &counter(5, -3, false)), [FollowUp::Queue(shard(), QueueReason::Negative)]);
        assert_eq!(after_known(&update, &counter(5, 3, true)), [FollowUp::Queue(shard(), QueueReason::Suspect)]);
        assert_eq!(after_known(&update, &counter(5, 3, false)), []);
    }
}
