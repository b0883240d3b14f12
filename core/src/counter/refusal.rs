//! What follows from a refused update, decided from the counter as it was when it refused. The order of the questions
//! matters: a watermark that is there decides before a floor, and both before the feeder.

use super::{Counter, Feeder, Touch, Update};
use crate::ids::{Ordinal, Sequence};
use crate::watermark::Reach;

/// What the sender of an update knows of other stream shards.
pub trait ClosedAncestry {
    /// Whether `shard` is closed, all its records applied everywhere, and an ancestor of `of`.
    fn is_closed_ancestor(&self, shard: Ordinal, of: Ordinal) -> bool;
}

/// What to send next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Records up to this one are in the counter: leave them out, and send what is left, if anything.
    After(Sequence),
    /// The stream shard is finished: another worker has applied all of it, and this one has to stop.
    Finished,
    /// The same, changed so that this refusal cannot recur.
    Changed(Update),
    /// The counter shows no reason: wait, and send the same.
    Unexplained,
}

/// Decides what follows when `counter` refuses `update`. `None` is a counter that is not there: it refuses what an empty one
/// would.
pub fn after_refusal(update: &Update, counter: Option<&Counter>, ancestry: &impl ClosedAncestry) -> Retry {
    let absent = Counter::default();
    let counter = counter.unwrap_or(&absent);
    match counter.watermarks.reach(update.shard) {
        Reach::Through(mark) if mark >= update.first => return Retry::After(mark),
        Reach::Finished => return Retry::Finished,
        Reach::Through(_) | Reach::Untouched => {}
    }
    let floor_is_higher = |prune: &_| !counter.watermarks.admits_floor(*prune);
    let prune = update.prune.clone().filter(|prune| !floor_is_higher(&prune.floor));
    let touched =
        update.touched.iter().map(|touch| Touch { feeder: feeder(update, counter, touch, ancestry), ..*touch });
    let changed = Update { prune, touched: touched.collect(), ..update.clone() };
    if changed == *update { Retry::Unexplained } else { Retry::Changed(changed) }
}

/// How `update` may feed the shard of `touch`, given the stream shard that fed it last.
fn feeder(update: &Update, counter: &Counter, touch: &Touch, ancestry: &impl ClosedAncestry) -> Feeder {
    match counter.shards.get(&touch.shard).and_then(|tally| tally.feeder) {
        Some(from) if !update.feeds_after(from) => {
            if ancestry.is_closed_ancestor(from, update.shard) {
                Feeder::Inherit { from }
            } else {
                Feeder::Contest { from }
            }
        }
        _ => Feeder::Usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::Refusal;
    use crate::ids::Shard;
    use crate::time::UnixMillis;
    use crate::watermark::Prune;

    struct Family(Vec<Ordinal>);
    impl ClosedAncestry for Family {
        fn is_closed_ancestor(&self, shard: Ordinal, _: Ordinal) -> bool {
            self.0.contains(&shard)
        }
    }
    const STRANGERS: Family = Family(vec![]);

    fn update(shard: u64, first: u64, last: u64) -> Update {
        let touch =
            Touch { shard: Shard::new(0).unwrap(), delta: 1, feeder: Feeder::Usual, window: None, doubt: false };
        Update {
            shard: Ordinal(shard),
            first: first.into(),
            last: last.into(),
            at: UnixMillis(1),
            touched: vec![touch],
            ancestors: vec![],
            closed_through: None,
            prune: None,
            guard: None,
        }
    }

    fn after(updates: &[Update]) -> Counter {
        updates.iter().fold(Counter::default(), |counter, update| {
            assert_eq!(counter.refusal(update), None);
            counter.updated(update).unwrap()
        })
    }

    #[test]
    fn records_already_counted_are_left_out_of_the_retry() {
        let counter = after(&[update(1, 5, 9)]);
        let late = update(1, 7, 12);
        assert_eq!(counter.refusal(&late), Some(Refusal::Applied));
        assert_eq!(after_refusal(&late, Some(&counter), &STRANGERS), Retry::After(9.into()));
    }

    #[test]
    fn a_watermark_decides_before_a_floor_that_would_say_finished() {
        let mut counter = after(&[update(3, 5, 9)]);
        counter.watermarks.prune(&Prune { floor: Ordinal(3), finished: vec![] });
        assert_eq!(after_refusal(&update(3, 5, 9), Some(&counter), &STRANGERS), Retry::After(9.into()));
        assert_eq!(after_refusal(&update(2, 5, 9), Some(&counter), &STRANGERS), Retry::Finished);
    }

    #[test]
    fn a_prune_below_the_floor_is_dropped_and_the_rest_sent_again() {
        let mut counter = after(&[update(9, 1, 1)]);
        counter.watermarks.prune(&Prune { floor: Ordinal(4), finished: vec![] });
        let pruning = Update { prune: Some(Prune { floor: Ordinal(3), finished: vec![] }), ..update(9, 2, 2) };
        assert_eq!(counter.refusal(&pruning), Some(Refusal::Floor));
        assert_eq!(after_refusal(&pruning, Some(&counter), &STRANGERS), Retry::Changed(update(9, 2, 2)));
    }

    #[test]
    fn two_open_stream_shards_on_one_row_key_are_counted_and_flagged() {
        let counter = after(&[update(1, 5, 9)]);
        let other = update(2, 3, 3);
        assert_eq!(counter.refusal(&other), Some(Refusal::Feeder));
        let Retry::Changed(contest) = after_refusal(&other, Some(&counter), &STRANGERS) else { panic!() };
        let counter = counter.updated(&contest).unwrap();
        let tally = &counter.shards[&Shard::new(0).unwrap()];
        assert_eq!((tally.rows, tally.switches, tally.suspect, tally.feeder), (2, 1, true, Some(Ordinal(2))));
        assert!(!counter.is_sound());
    }

    #[test]
    fn a_contest_whose_opponent_has_changed_is_fought_anew() {
        let counter = after(&[update(1, 5, 9)]);
        let Retry::Changed(contest) = after_refusal(&update(3, 3, 3), Some(&counter), &STRANGERS) else { panic!() };
        let Retry::Changed(second) = after_refusal(&update(2, 3, 3), Some(&counter), &STRANGERS) else { panic!() };
        let counter = counter.updated(&second).unwrap();
        assert_eq!(counter.refusal(&contest), Some(Refusal::Feeder));
        let Retry::Changed(again) = after_refusal(&contest, Some(&counter), &STRANGERS) else { panic!() };
        assert_eq!(again.touched[0].feeder, Feeder::Contest { from: Ordinal(2) });
        assert_eq!(counter.refusal(&again), None);
    }

    #[test]
    fn a_closed_ancestor_hands_over_without_suspicion() {
        let counter = after(&[update(1, 5, 9)]);
        let listed = Update { ancestors: vec![Ordinal(1)], ..update(2, 3, 3) };
        let floored = Update { closed_through: Some(Ordinal(1)), ..update(2, 3, 3) };
        let Retry::Changed(far) = after_refusal(&update(2, 3, 3), Some(&counter), &Family(vec![Ordinal(1)])) else {
            panic!()
        };
        for update in [listed, floored, far] {
            assert_eq!(counter.refusal(&update), None, "{update:?}");
            assert!(counter.clone().updated(&update).unwrap().is_sound());
        }
    }

    #[test]
    fn an_item_that_is_gone_has_no_feeder_to_contest() {
        let counter = after(&[update(1, 5, 9)]);
        let Retry::Changed(contest) = after_refusal(&update(2, 3, 3), Some(&counter), &STRANGERS) else { panic!() };
        assert_eq!(Counter::default().refusal(&contest), Some(Refusal::Feeder));
        assert_eq!(after_refusal(&contest, None, &STRANGERS), Retry::Changed(update(2, 3, 3)));
    }

    #[test]
    fn a_refusal_that_nothing_explains_is_waited_out() {
        assert_eq!(after_refusal(&update(1, 5, 9), None, &STRANGERS), Retry::Unexplained);
        assert_eq!(after_refusal(&update(1, 5, 9), Some(&Counter::default()), &STRANGERS), Retry::Unexplained);
    }
}
