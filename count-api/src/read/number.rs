//! Decides how an answer describes a count that was read: [`Number::answer`] sets `exact`, `as_of` and `fresh`. It
//! judges by the standing that was taken before the read: what is known of a partition of the log, namely up to when
//! its changes are counted and which losses are open.
//!
//! # Why no answer calls a number exact that was not
//!
//! An answer with `exact` and `as_of` = t says that the number is between the sum of the least and the sum of the
//! greatest values that the counter's shards had from t on. That holds because what is claimed depends on the
//! [standing](StandingAt) that the number is kept with, and that standing was taken *before* the counter was read:
//!
//! 1. The standing of a place says that every change that was in the table of likes by its `as_of` is before the place,
//!    unless it is part of a loss; and a loss is announced before anything that is behind it.
//! 2. The counter contains everything before the place. In the table, because the standing is stored once all of that
//!    is written, and the counter is read later, and consistently. In the cache, because both are read at one moment,
//!    and the standing moves there only behind the values.
//! 3. A counter with anything behind a loss carries the place of its announcement. It is exact only beside a standing
//!    that knows the announcement and has no loss open. The loss is repaired before the place of such a standing, so
//!    the corrections are before it, too, and in the counter.
//!
//! The standing speaks of the table of likes. An event is in Kafka before it is a row, so the answer's `as_of` is the
//! earlier of two times: that of the standing, and that up to which consumers have finished the partitions that the
//! counter's events come from. Where a consumer is behind, `as_of` is old; where none has stored a time yet, there is
//! no `as_of`, and nothing is exact.
//!
//! None of this depends on the time of the answer, and the range of values from t on only grows. So a reader may stop
//! for any time between two steps: before the standing and the counter, before the counter arrives, before it is kept,
//! filled into the cache or answered. It then answers an old `as_of`, and by its clock that is not fresh.
//!
//! A number that is kept is never given another standing or a later `as_of`. A newer standing of its partition can only
//! take `exact` away: while a loss is open there, or where it knows an announcement that the number's own standing does
//! not. The number was exact even so, as of its `as_of`; but nothing is called exact while it is known that something
//! is lost.
//!
//! # Corrections
//!
//! Once a correction is in the table, a request that begins a second later does not get the earlier number from memory:
//! no request is answered by a read that began more than a second before it. The cache has the earlier number until the
//! fold has written to the cache, which is what the fold does next. If the fold cannot, the standing in the cache gets
//! older, and once that is older than half of `--fresh-within`, the table is read.
//!
//! # Counters that are absent
//!
//! An absent counter carries no announcement: it is exact because the reserved row is in the table. Where a table was
//! lost and another one was adopted, the reserved row says since when, and the loss was open before that. A standing
//! whose `as_of` is later knows of the loss, since the relay repeats those that are open with each `as_of`; beside any
//! other standing what is absent is not exact. A fold that writes such a counter before its own standing knows of the
//! loss marks it as doubtful.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::counters::Read;
use tally_core::cached::{StandingAt, Value};
use tally_core::fold::Counter;
use tally_core::ids::CounterKind;
use tally_core::served::Served;
use tally_core::time::UnixMillis;

use crate::answer::Answer;

/// A counter as it was read, and the standing of its partition that was taken before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Number {
    /// The counter.
    pub value: Value,
    /// The standing. Without it nothing is known of the counter but its value.
    pub standing: Option<Arc<StandingAt>>,
    /// Every event that Kafka had acknowledged by this time is in the value. Never later than the standing allows, nor
    /// than the moment at which the counter arrived.
    pub as_of: Option<UnixMillis>,
}

/// What is known before a counter is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The standing of its partition.
    pub standing: Option<Arc<StandingAt>>,
    /// The `as_of` that a number read afterwards may have: see [`as_of`](tally_core::served::as_of).
    pub as_of: Option<UnixMillis>,
}

impl Number {
    /// Creates a number from a value that arrived at `now`, beside a standing that was taken before it was read.
    pub fn new(value: Value, Beside { standing, as_of }: Beside, now: UnixMillis) -> Self {
        Self { value, standing, as_of: as_of.map(|as_of| as_of.min(now)) }
    }

    /// Creates a number from a counter that was `read` and arrived at `now`. An absent counter is 0, and in doubt if
    /// the table may have lost it.
    pub fn read(counter: Option<&Counter>, read: &Read, beside: Beside, now: UnixMillis) -> Self {
        let stated = beside.standing.as_ref().and_then(|stated| stated.standing.as_of);
        let knows = read.since.is_none_or(|since| stated.is_some_and(|stated| stated > since));
        let absent = || Value { doubtful: !(read.reserved && knows), ..Value::default() };
        Self::new(counter.map_or_else(absent, Value::from), beside, now)
    }

    /// Returns the answer at `now`; `newest` is the newest known standing of the number's partition.
    pub fn answer(
        &self,
        kind: CounterKind,
        newest: Option<&StandingAt>,
        now: UnixMillis,
        fresh_within: Duration,
    ) -> Answer {
        let own = self.standing.as_deref();
        let served = own.map_or_else(
            || self.value.serve(&StandingAt::default().standing, kind),
            |own| self.value.serve(&own.standing, kind),
        );
        let is_withdrawn = newest.is_some_and(|newest| own.is_some_and(|own| withdraws(newest, own)));
        // The clock may have been set back.
        let as_of = self.as_of.unwrap_or_default().min(now);
        Answer {
            served: Served { exact: served.exact && self.as_of.is_some() && !is_withdrawn, as_of, ..served },
            fresh: now.since(as_of) <= fresh_within,
            summed: None,
        }
    }

    /// Returns whether this number takes the place of `held`, a number of the same counter: it does if its version is
    /// later, or equal and read beside the same or a later standing, which may know of more losses.
    pub fn replaces(&self, held: &Self) -> bool {
        let order = |number: &Self| (number.value.version, number.standing.as_ref().map(|standing| standing.at));
        order(self) >= order(held)
    }
}

/// Returns whether `newest` forbids to call a number exact that was exact beside `own`.
fn withdraws(newest: &StandingAt, own: &StandingAt) -> bool {
    newest.at > own.at && (!newest.standing.open.is_empty() || newest.standing.loss > own.standing.loss)
}

#[cfg(test)]
mod tests {
    use tally_core::changes::{LossNumber, Place, Standing};

    use super::*;

    const WITHIN: Duration = Duration::from_secs(10);

    fn place(at: u64) -> Place {
        Place::from_stored(at)
    }

    fn standing(at: u64, loss: Option<u64>, open: &[u64]) -> StandingAt {
        let open = open.iter().map(|number| LossNumber(*number)).collect();
        let standing = Standing { as_of: Some(UnixMillis(1000 * at)), loss: loss.map(place), open };
        StandingAt { at: place(at), standing }
    }

    fn number(value: Value, standing: StandingAt) -> Number {
        let as_of = standing.standing.as_of;
        Number { value, standing: Some(Arc::new(standing)), as_of }
    }

    fn likes(version: u64) -> Value {
        Value { likes: 3, version: place(version), ..Value::default() }
    }

    fn answer(number: &Number, newest: Option<&StandingAt>, now: u64) -> Answer {
        number.answer(CounterKind::Set, newest, UnixMillis(now), WITHIN)
    }

    #[test]
    fn a_number_that_is_kept_keeps_its_own_as_of_and_a_newer_standing_only_takes_exact_away() {
        let kept = number(likes(4), standing(5, Some(2), &[]));
        let exact = |newest: StandingAt| {
            let answer = answer(&kept, Some(&newest), 9_000);
            assert_eq!(answer.served.as_of, UnixMillis(5_000));
            answer.served.exact
        };
        assert!(exact(standing(9, Some(2), &[])));
        assert!(!exact(standing(9, Some(2), &[2])), "a loss is open");
        assert!(!exact(standing(9, Some(7), &[])), "an announcement is behind the number's own standing");
        assert!(exact(standing(4, Some(1), &[1])), "an older standing says nothing of the number");
    }

    #[test]
    fn nothing_makes_a_number_exact_that_was_not_so_beside_its_own_standing() {
        let behind_a_loss = Value { gap: Some(place(6)), ..likes(7) };
        let negative = Value { likes: -1, ..likes(4) };
        let doubtful = Value { doubtful: true, ..likes(4) };
        let open = number(likes(4), standing(5, Some(2), &[2]));
        let others = [behind_a_loss, negative, doubtful].map(|value| number(value, standing(5, Some(2), &[])));
        for kept in [open].iter().chain(&others) {
            assert!(!answer(kept, None, 9_000).served.exact);
            assert!(!answer(kept, Some(&standing(9, Some(8), &[])), 9_000).served.exact);
        }
    }

    #[test]
    fn a_number_is_fresh_while_its_as_of_is_recent_and_as_of_is_never_in_the_future() {
        let kept = number(likes(4), standing(5, None, &[]));
        let fresh = |now| answer(&kept, None, now).fresh;
        assert!(fresh(5_000) && fresh(15_000) && !fresh(15_001));
        let set_back = answer(&kept, None, 4_000);
        assert_eq!((set_back.served.as_of, set_back.fresh), (UnixMillis(4_000), true));
    }

    #[test]
    fn a_later_version_takes_the_place_of_an_earlier_one_and_of_one_version_what_was_read_later() {
        let earlier = number(likes(4), standing(9, None, &[]));
        let later = number(likes(6), standing(5, None, &[]));
        assert!(later.replaces(&earlier) && !earlier.replaces(&later));
        let again = number(likes(6), standing(7, None, &[]));
        assert!(again.replaces(&later) && !later.replaces(&again));
        assert!(again.replaces(&again.clone()), "an item that was edited by hand");
        assert!(later.replaces(&Number { value: likes(6), ..Number::default() }));
    }
}
