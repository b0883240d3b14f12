//! What an answered update gives reason to worry about.

use tally_core::counter::{Counter, Feeder, Retry, Update};
use tally_core::ids::Shard;
use tally_core::ports::QueueReason;

/// Shards that this update, just taken, made negative or suspect: each is reported by the update that did it.
pub(super) fn after_update(update: &Update, counter: &Counter) -> Vec<(Shard, QueueReason)> {
    let total = update.total().unwrap_or(0);
    let total_fell = counter.likes < 0 && counter.likes.saturating_sub(total) >= 0;
    let reason = |touch: &tally_core::counter::Touch| {
        let rows = counter.shards.get(&touch.shard)?.rows;
        let fell = rows < 0 && rows.saturating_sub(touch.delta) >= 0;
        match touch.feeder {
            Feeder::Contest { .. } => Some(QueueReason::Suspect),
            _ if fell || total_fell => Some(QueueReason::Negative),
            _ => None,
        }
    };
    update.touched.iter().filter_map(|touch| Some((touch.shard, reason(touch)?))).collect()
}

/// Shards of `update` that stand negative or suspect in `counter`, whoever made them so: the reply to the update that
/// did may have been lost.
pub(super) fn standing(update: &Update, counter: &Counter) -> Vec<(Shard, QueueReason)> {
    let reason = |shard: &Shard| {
        let tally = counter.shards.get(shard)?;
        match (tally.suspect, tally.rows < 0 || counter.likes < 0) {
            (true, _) => Some(QueueReason::Suspect),
            (false, true) => Some(QueueReason::Negative),
            (false, false) => None,
        }
    };
    update.touched.iter().filter_map(|touch| Some((touch.shard, reason(&touch.shard)?))).collect()
}

/// Why `update` was refused, as a metric label, given what follows from it.
pub(super) fn cause(update: &Update, retry: &Retry) -> &'static str {
    match retry {
        Retry::After(_) => "applied",
        Retry::Finished => "finished",
        Retry::Changed(changed) if changed.prune != update.prune => "floor",
        Retry::Changed(_) => "feeder",
        Retry::Unexplained => "unexplained",
    }
}

#[cfg(test)]
mod tests {
    use tally_core::counter::{ShardTally, Touch};
    use tally_core::ids::Ordinal;
    use tally_core::time::UnixMillis;
    use tally_core::watermark::Prune;

    use super::*;

    fn shard() -> Shard {
        Shard::new(3).unwrap()
    }

    fn update(delta: i64, feeder: Feeder) -> Update {
        Update {
            shard: Ordinal(1),
            first: 1.into(),
            last: 2.into(),
            at: UnixMillis(0),
            touched: vec![Touch { shard: shard(), delta, feeder, window: None }],
            ancestors: vec![],
            closed_through: None,
            prune: None,
        }
    }

    fn counter(likes: i64, rows: i64, suspect: bool) -> Counter {
        let tally = ShardTally { rows, suspect, ..ShardTally::default() };
        Counter { likes, shards: [(shard(), tally)].into(), ..Counter::default() }
    }

    #[test]
    fn the_update_that_makes_a_count_negative_reports_it_and_later_ones_do_not() {
        let negative = vec![(shard(), QueueReason::Negative)];
        assert_eq!(after_update(&update(-2, Feeder::Usual), &counter(5, -1, false)), negative);
        assert_eq!(after_update(&update(-2, Feeder::Usual), &counter(5, -3, false)), []);
        assert_eq!(after_update(&update(-2, Feeder::Usual), &counter(-1, 4, false)), negative, "the total fell");
        assert_eq!(after_update(&update(1, Feeder::Usual), &counter(5, 4, false)), []);
    }

    #[test]
    fn a_contest_reports_its_shard_as_suspect() {
        let contest = update(1, Feeder::Contest { from: Ordinal(7) });
        assert_eq!(after_update(&contest, &counter(5, 4, true)), [(shard(), QueueReason::Suspect)]);
        assert_eq!(after_update(&update(1, Feeder::Usual), &counter(5, 4, true)), [], "it was reported before");
    }

    #[test]
    fn after_a_lost_reply_whatever_stands_wrong_is_reported() {
        let update = update(-1, Feeder::Usual);
        assert_eq!(standing(&update, &counter(5, -3, false)), [(shard(), QueueReason::Negative)]);
        assert_eq!(standing(&update, &counter(5, 3, true)), [(shard(), QueueReason::Suspect)]);
        assert_eq!(standing(&update, &counter(5, 3, false)), []);
    }

    #[test]
    fn a_refusal_is_named_by_what_follows_from_it() {
        let pruning = Update { prune: Some(Prune { floor: Ordinal(1), finished: vec![] }), ..update(1, Feeder::Usual) };
        assert_eq!(cause(&pruning, &Retry::Changed(update(1, Feeder::Usual))), "floor");
        let contest = Retry::Changed(update(1, Feeder::Contest { from: Ordinal(7) }));
        assert_eq!(cause(&update(1, Feeder::Usual), &contest), "feeder");
        assert_eq!(cause(&pruning, &Retry::After(1.into())), "applied");
    }
}
