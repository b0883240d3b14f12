//! Honesty: what an answer says of itself has to be true at the moment it is given, not only when all is quiet.
//!
//! An answer with `exact: true` and `as_of` = t says: every change made before t is in this number, and nothing that was
//! lost is missing from it. A count is a sum over row keys, each of which has been followed up to a moment of its own. So
//! the number must be a sum of values that its row keys had between t and the answer, and lies between the sum of the
//! least and the sum of the greatest of them. Answers with `exact: false` claim nothing and are not judged.
//!
//! It says as well: every event that Kafka had acknowledged before t is in this number. A member's row says when its event was
//! said, so a like of before t that is a row by now is among the changes that have to be in. This is judged where the stream is
//! not later than the margin and no clock is ahead: else the standing may be ahead of what is counted.
//!
//! The law is as strict as is lawful. It makes room for five things alone, each only as far as the schedule has done it:
//! - a change made at t itself may be in the number or not;
//! - the stream may show a change late, or behind a later one, by the delay and the reordering it was drawn with. What is
//!   claimed stays two seconds behind the clock for that, so of these two seconds none are given;
//! - a local clock is believed while it is no more than two seconds off, so `as_of` may be ahead by as much as the schedule
//!   has set a streamer's clock ahead within these, and by no more than that;
//! - the answer ends the span when its reader has it, which is later than when the API made it;
//! - a counter that was changed by hand says nothing of it: until a recount has undone the change, the number may differ
//!   by what was put in, and by no more.
//!
//! A row whose weight is not readable counts for nothing, and no answer is exact while there is one: from the moment that
//! `as_of` says on it is known to be there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Deserialize;
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId};
use tally_core::time::UnixMillis;

use crate::simulation::events::named;
use crate::simulation::history::{History, Since};

/// A count as the API answers it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Answer {
    pub(crate) post_id: String,
    #[serde(default = "likes")]
    pub(crate) counter: String,
    #[serde(alias = "likes")]
    pub(crate) value: i64,
    pub(crate) version: u64,
    pub(crate) exact: bool,
    pub(crate) as_of: u64,
}

/// What answers are about that name no counter.
fn likes() -> String {
    CounterName::LIKES.to_string()
}

/// How far behind the clock a relay stays with what it claims: a stream that is no later is no excuse.
const MARGIN: Duration = Duration::from_secs(2);

/// A stream that may be later than this is a late one.
const LATE: Duration = Duration::from_secs(30);

/// How far off a local clock may be and be believed.
const BELIEVED: Duration = Duration::from_secs(2);

/// The law, and what it has judged; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Honesty(Arc<Judged>);

#[derive(Debug)]
struct Judged {
    history: History,
    /// How late the stream may show a change.
    delay: Duration,
    /// How far apart two changes may be that it shows in the other order.
    reorder: Duration,
    /// How far ahead of the store's clock a streamer's clock has been, in milliseconds.
    ahead: AtomicU64,
    /// What was put into counters by hand: the sum of what lowered each, and of what raised it.
    injected: Mutex<BTreeMap<String, (i64, i64)>>,
    answers: AtomicU64,
    exact: AtomicU64,
    lies: AtomicU64,
    first_lie: OnceLock<String>,
}

/// How many answers were judged, how many of them said that they were exact, and how many were lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) answers: u64,
    pub(crate) exact: u64,
    pub(crate) lies: u64,
}

impl Honesty {
    /// Of answers about the rows of `history`, whose changes the stream shows after `delay` and `reorder` at most.
    pub(crate) fn of(history: History, delay: Duration, reorder: Duration) -> Self {
        let (ahead, injected) = (AtomicU64::new(0), Mutex::default());
        let (answers, exact, lies) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let first_lie = OnceLock::new();
        Self(Arc::new(Judged { history, delay, reorder, ahead, injected, answers, exact, lies, first_lie }))
    }

    /// From now on `as_of` may be `by` ahead: a streamer has a clock that is, unless it is one that nobody believes.
    pub(crate) fn clock_is_ahead(&self, by: Duration) {
        let by = if by > BELIEVED { 0 } else { by.as_millis() };
        self.0.ahead.fetch_max(u64::try_from(by).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether the stream may be later than what is claimed allows for at first.
    pub(crate) fn is_of_a_late_stream(&self) -> bool {
        self.0.delay > LATE
    }

    /// `counter` was changed by `amount`, which its rows were not.
    pub(crate) fn injected(&self, counter: &CounterId, amount: i64) {
        let mut injected = self.0.injected.lock();
        let (lowered, raised) = injected.entry(counter.stored().into_owned()).or_default();
        *lowered += amount.min(0);
        *raised += amount.max(0);
    }

    /// The lie that `answer` is, if it is one; its reader has it now.
    pub(crate) fn lie(&self, answer: &Answer) -> Option<String> {
        let Judged { history, delay, reorder, ahead, injected, answers, exact, lies, first_lie } = &*self.0;
        answers.fetch_add(1, Ordering::Relaxed);
        if !answer.exact {
            return None;
        }
        exact.fetch_add(1, Ordering::Relaxed);
        let ahead = Duration::from_millis(ahead.load(Ordering::Relaxed));
        let late = delay.saturating_add(*reorder).saturating_sub(MARGIN);
        let from = UnixMillis(answer.as_of).minus(late).minus(ahead);
        let id = CounterId { post: PostId::new(&answer.post_id).ok()?, name: named(&answer.counter) };
        let said = (late + ahead).is_zero().then_some(from);
        let (least, greatest) = history.bounds(&id, Since { rows: from, said }, *reorder);
        let injected = injected.lock();
        let (lowered, raised) = injected.get(&*id.stored()).copied().unwrap_or_default();
        // Fewer than none are answered as none.
        let least_shown = if id.name.kind() == CounterKind::Set { 0 } else { i64::MIN };
        let lawful = (least + lowered).max(least_shown)..=(greatest + raised).max(least_shown);
        let unreadable = history.unreadable_since(&id).filter(|since| *since < from);
        if lawful.contains(&answer.value) && unreadable.is_none() {
            return None;
        }
        lies.fetch_add(1, Ordering::Relaxed);
        let Answer { value, version, as_of, .. } = answer;
        let mut lie = format!(
            "{id} was answered as exactly {value} (version {version}, as of {as_of}), and its rows, with what was said before \
             {said:?}, have been between {} and {} from {from} on",
            lawful.start(),
            lawful.end()
        );
        if let Some(since) = unreadable {
            let _ = write!(lie, ", and one of them is not readable since {since}");
        }
        first_lie.get_or_init(|| lie.clone());
        Some(lie)
    }

    /// What was judged, if none of it was a lie.
    pub(crate) fn verdict(&self) -> anyhow::Result<Count> {
        let count = self.count();
        let first = self.0.first_lie.get();
        anyhow::ensure!(first.is_none(), "{count:?}; the first lie: {first:?}");
        Ok(count)
    }

    /// What was judged so far.
    pub(crate) fn count(&self) -> Count {
        let [answers, exact, lies] =
            [&self.0.answers, &self.0.exact, &self.0.lies].map(|count| count.load(Ordering::Relaxed));
        Count { answers, exact, lies }
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::{RowKey, Shard};

    use super::*;

    fn of_post(name: CounterName) -> CounterId {
        CounterId { post: PostId::new("p").expect("an id"), name }
    }

    /// Rows that go 20, 10 at 1,000 and 13 at 2,000.
    fn honesty(settles: u64) -> Honesty {
        let history = History::default();
        let key = RowKey { counter: of_post(CounterName::LIKES), shard: Shard::new(0).expect("a shard") };
        for (at, change) in [(1, 20), (1_000, -10), (2_000, 3)] {
            history.add(key.clone(), (UnixMillis(at), None), change);
        }
        Honesty::of(history, Duration::from_millis(settles), Duration::ZERO)
    }

    fn answer(value: i64, as_of: u64) -> Answer {
        Answer { post_id: "p".to_owned(), counter: "likes".to_owned(), value, version: 7, exact: true, as_of }
    }

    #[test]
    fn a_number_that_the_rows_never_had_is_a_lie_and_one_they_had_before_as_of_is_too() {
        let honesty = honesty(0);
        assert_eq!(honesty.lie(&answer(20, 900)), None);
        assert_eq!(honesty.lie(&answer(12, 1_500)), None, "between what they had");
        assert!(honesty.lie(&answer(23, 900)).is_some());
        assert!(honesty.lie(&answer(20, 1_001)).is_some());
        assert!(honesty.lie(&answer(10, 2_001)).is_some());
        assert_eq!(honesty.lie(&Answer { exact: false, ..answer(23, 900) }), None, "it claims nothing");
        assert_eq!(honesty.count(), Count { answers: 6, exact: 5, lies: 3 });
    }

    #[test]
    fn room_is_made_for_a_late_stream_a_clock_ahead_and_what_was_put_in_by_hand() {
        let (strict, late) = (honesty(2_000), honesty(2_400));
        assert!(strict.lie(&answer(20, 1_400)).is_some());
        assert_eq!(late.lie(&answer(20, 1_400)), None);
        strict.clock_is_ahead(Duration::from_millis(400));
        strict.clock_is_ahead(Duration::from_millis(200));
        strict.clock_is_ahead(Duration::from_secs(600));
        assert_eq!(strict.lie(&answer(20, 1_400)), None);
        assert!(strict.lie(&answer(20, 1_401)).is_some());
        assert!(late.lie(&answer(17, 2_500)).is_some());
        late.injected(&of_post(CounterName::LIKES), 4);
        late.injected(&of_post(CounterName::LIKES), -2);
        assert_eq!(late.lie(&answer(17, 2_500)), None);
        assert_eq!(late.lie(&answer(11, 2_500)), None);
        assert!(late.lie(&answer(18, 2_500)).is_some());
    }

    #[test]
    fn a_sum_may_be_below_zero_and_likes_and_sums_of_one_post_are_apart() {
        let history = History::default();
        let key = RowKey { counter: of_post(named("score")), shard: Shard::new(0).expect("a shard") };
        history.add(key, (UnixMillis(1), None), -5);
        let honesty = Honesty::of(history, Duration::ZERO, Duration::ZERO);
        let score = |value| Answer { counter: "score".to_owned(), ..answer(value, 10) };
        assert_eq!(honesty.lie(&score(-5)), None);
        assert!(honesty.lie(&score(0)).is_some() && honesty.lie(&score(-6)).is_some());
        assert_eq!(honesty.lie(&answer(0, 10)), None);
    }

    #[test]
    fn no_answer_is_exact_while_a_row_is_not_readable_that_was_there_before_as_of() {
        let honesty = honesty(0);
        let counter = of_post(CounterName::LIKES);
        honesty.0.history.unreadable(&counter, UnixMillis(2_500), 1);
        assert_eq!(honesty.lie(&answer(13, 2_500)), None, "it may not be known yet");
        assert!(honesty.lie(&answer(13, 2_501)).is_some());
        honesty.0.history.unreadable(&counter, UnixMillis(2_600), -1);
        assert_eq!(honesty.lie(&answer(13, 2_700)), None);
    }
}
