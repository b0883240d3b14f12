//! Judges the answers that the API gives during the simulation and the attacks: what an answer claims has to be true
//! when it is given, not only when all is quiet.
//!
//! An answer with `exact: true` and `as_of` = t says that its number includes every change made before t, and that nothing
//! lost is missing in it. A count is a sum over row keys, each of which was followed up to its own point in time. So the
//! number must be a sum of values that its row keys had between t and the answer: it lies between the sums of their least and
//! greatest values. Answers with `exact: false` claim nothing and are not judged.
//!
//! The answer also says that the number includes every event that Kafka had acknowledged before t. A member's row has the time
//! of its event, so a like from before t that is a row by now must be included. This is judged only if the stream is not later
//! than the margin and no clock is ahead: otherwise the standing may be ahead of the count.
//!
//! The law is as strict as it can be. It makes five allowances, and none that the schedule does not require:
//! - A change made at t itself may or may not be included.
//! - The stream may show a change late, or after a later one, by the delay and reordering drawn for it. Claims stay two seconds
//!   behind the clock for this reason, so these two seconds are not allowed for.
//! - A local clock is used while it is at most two seconds wrong, so `as_of` may be ahead by as much as the schedule has set a
//!   streamer's clock ahead, up to that limit.
//! - The interval ends when the reader receives the answer, which is later than when the API made it.
//! - A counter that was changed by hand does not show it. Until a recount has undone the change, the number may differ by that
//!   amount, and by no more.
//!
//! An answer with `fresh: true` says that t is recent: at most `--fresh-within` ago by the API's clock.
//!
//! An unreadable row weighs nothing, and no answer is exact while there is one whose appearance lies before `as_of`.

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
    pub(crate) fresh: bool,
}

impl Answer {
    /// Describes how it was too old to be fresh before it was asked for, if it was.
    pub(crate) fn stale(&self, asked: UnixMillis) -> Option<String> {
        let age = asked.since(UnixMillis(self.as_of));
        (self.fresh && age > FRESH).then(|| format!("{self:?} is called fresh and is {age:?} old"))
    }
}

/// The default counter, for answers that do not name one.
fn likes() -> String {
    CounterName::LIKES.to_string()
}

/// How far a relay's claims stay behind the clock. A stream that is at most this late needs no allowance.
const MARGIN: Duration = Duration::from_secs(2);

/// The delay beyond which a stream counts as late.
const LATE: Duration = Duration::from_secs(30);

/// The largest error with which a local clock is used.
const BELIEVED: Duration = Duration::from_secs(2);

/// The greatest age of a fresh count: ten seconds by default, ten more for the entry of another Region, and ten by which an API's
/// estimate of the store's time may be behind while it keeps an answer.
const FRESH: Duration = Duration::from_secs(30);

/// The law and the number of judged answers. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Honesty(Arc<Judged>);

#[derive(Debug)]
struct Judged {
    /// The rows of each Region.
    histories: Vec<History>,
    /// How late the stream may show a change.
    delay: Duration,
    /// The greatest distance of two changes that the stream may swap.
    reorder: Duration,
    /// How far a streamer's clock was ahead of the store's, in milliseconds.
    ahead: AtomicU64,
    /// Edits by hand: the sums of negative and of positive changes of each counter.
    injected: Mutex<BTreeMap<String, (i64, i64)>>,
    count: Mutex<Count>,
    first_lie: OnceLock<String>,
}

/// The numbers of judged answers, of exact ones, of exact ones that are fresh, and of lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) answers: u64,
    pub(crate) exact: u64,
    pub(crate) fresh: u64,
    pub(crate) lies: u64,
}

impl Honesty {
    /// Judges answers that are sums over the rows of one or several Regions, whose changes the stream shows at most `delay`
    /// late and `reorder` out of order.
    pub(crate) fn of(histories: Vec<History>, delay: Duration, reorder: Duration) -> Self {
        let (ahead, injected, count) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        Self(Arc::new(Judged { histories, delay, reorder, ahead, injected, count, first_lie: OnceLock::new() }))
    }

    /// From now on `as_of` may be `by` ahead because of a streamer's clock, unless the error is so large that the clock is not
    /// used.
    pub(crate) fn clock_is_ahead(&self, by: Duration) {
        let by = if by > BELIEVED { 0 } else { by.as_millis() };
        self.0.ahead.fetch_max(u64::try_from(by).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether the stream may be later than the margin of claims.
    pub(crate) fn is_of_a_late_stream(&self) -> bool {
        self.0.delay > LATE
    }

    /// `counter` was changed by `amount` without its rows.
    pub(crate) fn injected(&self, counter: &CounterId, amount: i64) {
        let mut injected = self.0.injected.lock();
        let (lowered, raised) = injected.entry(counter.stored().into_owned()).or_default();
        *lowered += amount.min(0);
        *raised += amount.max(0);
    }

    /// Whether `counter` was ever changed without its rows.
    pub(crate) fn is_injected(&self, counter: &CounterId) -> bool {
        self.0.injected.lock().contains_key(&*counter.stored())
    }

    /// Describes the lie in `answer`, which its reader has just received, if there is one.
    pub(crate) fn lie(&self, answer: &Answer) -> Option<String> {
        let Judged { histories, delay, reorder, ahead, injected, count, first_lie } = &*self.0;
        count.lock().answers += 1;
        if !answer.exact {
            return None;
        }
        count.lock().exact += 1;
        count.lock().fresh += u64::from(answer.fresh);
        let ahead = Duration::from_millis(ahead.load(Ordering::Relaxed));
        let late = delay.saturating_add(*reorder).saturating_sub(MARGIN);
        let from = UnixMillis(answer.as_of).minus(late).minus(ahead);
        let id = CounterId { post: PostId::new(&answer.post_id).ok()?, name: named(&answer.counter) };
        let said = (late + ahead).is_zero().then_some(from);
        let bounds = histories.iter().map(|history| history.bounds(&id, Since { rows: from, said }, *reorder));
        let (least, greatest) = bounds.fold((0, 0), |sum, bounds| (sum.0 + bounds.0, sum.1 + bounds.1));
        let injected = injected.lock();
        let (lowered, raised) = injected.get(&*id.stored()).copied().unwrap_or_default();
        // Negative counts of sets are answered as 0.
        let least_shown = if id.name.kind() == CounterKind::Set { 0 } else { i64::MIN };
        let lawful = (least + lowered).max(least_shown)..=(greatest + raised).max(least_shown);
        let unreadable = histories.iter().filter_map(|history| history.unreadable_since(&id));
        let unreadable = unreadable.min().filter(|since| *since < from);
        if lawful.contains(&answer.value) && unreadable.is_none() {
            return None;
        }
        count.lock().lies += 1;
        let Answer { value, version, as_of, .. } = answer;
        let mut lie = format!(
            "{id} was answered as exactly {value} (version {version}, as of {as_of}), and its rows, with what was said before \
             {said:?}, have been between {} and {} from {from} on",
            lawful.start(),
            lawful.end()
        );
        if let Some(since) = unreadable {
            let _ = write!(lie, ", and one of its rows has been unreadable since {since}");
        }
        first_lie.get_or_init(|| lie.clone());
        Some(lie)
    }

    /// The counts, or an error if there was a lie.
    pub(crate) fn verdict(&self) -> anyhow::Result<Count> {
        let count = self.count();
        let first = self.0.first_lie.get();
        anyhow::ensure!(first.is_none(), "{count:?}; the first lie: {first:?}");
        Ok(count)
    }

    /// The counts so far.
    pub(crate) fn count(&self) -> Count {
        *self.0.count.lock()
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::RowKey;

    use super::*;

    fn id() -> CounterId {
        CounterId::likes(PostId::new("p").expect("an id"))
    }

    /// Rows that weigh 20, then 10 at 1,000 and 13 at 2,000.
    fn honesty(delay: u64) -> Honesty {
        let history = History::default();
        for (at, change) in [(1, 20), (1_000, -10), (2_000, 3)] {
            history.add(RowKey::first(&id()), (UnixMillis(at), None), change);
        }
        Honesty::of(vec![history], Duration::from_millis(delay), Duration::ZERO)
    }

    fn answer(value: i64, as_of: u64) -> Answer {
        Answer { post_id: "p".to_owned(), counter: likes(), value, version: 7, exact: true, as_of, fresh: true }
    }

    #[test]
    fn allowances_are_made_for_a_late_stream_a_clock_ahead_and_edits_by_hand() {
        let (strict, late) = (honesty(2_000), honesty(2_400));
        assert!(strict.lie(&answer(20, 1_400)).is_some());
        assert_eq!(late.lie(&answer(20, 1_400)), None);
        strict.clock_is_ahead(Duration::from_millis(400));
        strict.clock_is_ahead(Duration::from_millis(200));
        strict.clock_is_ahead(Duration::from_secs(600));
        assert_eq!(strict.lie(&answer(20, 1_400)), None);
        assert!(strict.lie(&answer(20, 1_401)).is_some());
        assert!(late.lie(&answer(17, 2_500)).is_some());
        late.injected(&id(), 4);
        late.injected(&id(), -2);
        assert_eq!(late.lie(&answer(17, 2_500)), None);
        assert_eq!(late.lie(&answer(11, 2_500)), None);
        assert!(late.lie(&answer(18, 2_500)).is_some());
    }

    #[test]
    fn an_answer_that_is_called_fresh_is_not_old() {
        let stale = |fresh, asked| Answer { fresh, ..answer(20, 500) }.stale(UnixMillis(asked)).is_some();
        assert!(!stale(true, 30_500) && stale(true, 30_501) && !stale(false, 30_501));
    }

    #[test]
    fn a_sum_may_be_negative_and_likes_and_sums_of_one_post_are_separate() {
        let history = History::default();
        let score = CounterId { name: named("score"), ..id() };
        history.add(RowKey::first(&score), (UnixMillis(1), None), -5);
        let honesty = Honesty::of(vec![history], Duration::ZERO, Duration::ZERO);
        let lies = |value| honesty.lie(&Answer { counter: "score".to_owned(), ..answer(value, 10) }).is_some();
        assert_eq!([-6, -5, 0].map(lies), [true, false, true]);
        assert_eq!(honesty.lie(&answer(0, 10)), None);
    }

    #[test]
    fn no_answer_is_exact_while_a_row_has_been_unreadable_since_before_as_of() {
        let honesty = honesty(0);
        honesty.0.histories[0].unreadable(&id(), UnixMillis(2_500), 1);
        assert_eq!(honesty.lie(&answer(13, 2_500)), None, "it may not be known yet");
        assert!(honesty.lie(&answer(13, 2_501)).is_some());
        honesty.0.histories[0].unreadable(&id(), UnixMillis(2_600), -1);
        assert_eq!(honesty.lie(&answer(13, 2_700)), None);
    }
}
