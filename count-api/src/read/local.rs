//! Keeps counts in this process's memory, each for a second at most, and lets requests for the same counter share one
//! read. [`Reader`](super::Reader) asks [`Local::find`] first; for a number that is missing, one caller gets a
//! [`ReadLead`], the duty to read it.
//!
//! The law: **no request is answered by a read that began more than [`LONGEST`] before the request**, even if the
//! process was stopped meanwhile. So the time for which a number is kept counts from the beginning of its read, by the
//! clock that has moved further; and a request waits for a read that is under way only if that began less than
//! [`LONGEST`] ago, and else begins another one.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::{Mutex, MutexGuard};
use tally_core::ids::CounterId;
use tally_core::time::Now;
use tokio::sync::oneshot;

use super::number::Number;
use super::timing::Timing;
use crate::answer::Answer;
use crate::args::LONGEST;
use crate::error::{LoggedCause, Problem, Result};
use crate::value::Rendered;

/// The number of stripes. Each has a lock of its own, so that requests for different counters seldom wait for each
/// other.
const STRIPES: usize = 64;

/// A number that was read, and the bytes of its answer once it has been answered.
#[derive(Debug)]
pub struct Kept {
    pub number: Number,
    /// The layers that its read came through.
    timing: Timing,
    rendered: OnceLock<(Answer, Rendered)>,
}

impl Kept {
    fn new(number: Number, timing: Timing) -> Self {
        Self { number, timing, rendered: OnceLock::new() }
    }

    /// Returns the bytes of `answer`, and calls `render` if they are not kept.
    pub fn rendered(&self, answer: &Answer, render: impl Fn(&Answer) -> Rendered) -> Rendered {
        let (of, rendered) = self.rendered.get_or_init(|| (answer.clone(), render(answer)));
        if of == answer { rendered.clone() } else { render(answer) }
    }

    /// Returns the bytes of `answer`, if they are kept.
    pub fn rendered_before(&self, answer: &Answer) -> Option<Rendered> {
        self.rendered.get().filter(|(of, _)| of == answer).map(|(_, rendered)| rendered.clone())
    }
}

/// The result of a read, for all who wait for it.
type ReadResult = Result<Arc<Kept>>;

/// Where a number is.
#[derive(Clone, Debug)]
pub enum Found {
    /// It is in memory.
    Kept(Arc<Kept>),
    /// It is being read. If the read fails, the number that is kept, if any, is used.
    UnderWay(Shared<oneshot::Receiver<ReadResult>>, Option<Arc<Kept>>),
}

impl Found {
    /// Waits for the number. Returns it and the layers that it came through.
    pub async fn timed(self) -> Result<(Arc<Kept>, Timing)> {
        match self {
            Self::Kept(kept) => Ok((kept, Timing::LOCAL)),
            Self::UnderWay(read, kept) => {
                let given_up = |_| Err(Problem::StoreAway(LoggedCause::new("the read was given up")));
                let kept = read.await.unwrap_or_else(given_up).or_else(|fault| kept.ok_or(fault))?;
                let timing = kept.timing;
                Ok((kept, timing))
            }
        }
    }

    /// Returns whether the number is in memory, with no read to wait for.
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }
}

/// The duty to read one counter. Dropping it fails all who wait for the read.
#[derive(Debug)]
pub struct ReadLead {
    /// The counter.
    pub id: CounterId,
    began: Now,
    local: Local,
    /// The callers who wait; [`finish`](Self::finish) takes this.
    waiters: Option<oneshot::Sender<ReadResult>>,
}

impl ReadLead {
    /// Keeps what was read, and answers all who wait. A fault is answered and not kept.
    pub fn finish(mut self, read: Result<Number>, timing: Timing) {
        let result = {
            let mut stripe = self.local.stripe(&self.id);
            // Under one lock: the next request finds the number, or leads another read.
            stripe.ended(&self.id, self.began);
            read.map(|number| stripe.put(&self.id, Kept::new(number, timing), self.began, self.local.0.keep))
        };
        if let Some(waiters) = self.waiters.take() {
            // All who waited may have left.
            let _ = waiters.send(result);
        }
    }
}

impl Drop for ReadLead {
    fn drop(&mut self) {
        if self.waiters.is_some() {
            self.local.stripe(&self.id).ended(&self.id, self.began);
        }
    }
}

/// The memory, bounded: counters asked for once do not drive out those asked for again. Clones share it.
#[derive(Clone, Debug)]
pub struct Local(Arc<Stripes>);

#[derive(Debug)]
struct Stripes {
    stripes: Box<[Mutex<Stripe>]>,
    hasher: RandomState,
    keep: Duration,
}

impl Local {
    /// Keeps about `counts` numbers for `keep` each, at most a second. If `keep` is 0, nothing is kept, but
    /// simultaneous requests still share one read.
    pub fn new(counts: u64, keep: Duration) -> Self {
        let generation = usize::try_from(counts).unwrap_or(usize::MAX).div_ceil(2 * STRIPES).max(1);
        let stripes = (0..STRIPES).map(|_| Mutex::new(Stripe::of(generation))).collect();
        Self(Arc::new(Stripes { stripes, hasher: RandomState::new(), keep: keep.min(LONGEST) }))
    }

    /// Returns the number of `id`, if it is in memory at `now`.
    pub fn get(&self, id: &CounterId, now: Now) -> Option<Arc<Kept>> {
        self.stripe(id).get(id, now, self.0.keep)
    }

    /// Returns where the number of `id` is. If it is not in memory, or `outdone`, and no recent read of it is under
    /// way, adds a lead to `leads`, which the caller has to read. Other callers wait for that read, or get the number
    /// in memory.
    pub fn find(
        &self,
        id: &CounterId,
        now: Now,
        outdone: impl FnOnce(&Number) -> bool,
        leads: &mut Vec<ReadLead>,
    ) -> Found {
        // One lock covers both steps, so that no second read begins between the end of a read and the keeping of its
        // number.
        let mut stripe = self.stripe(id);
        let kept = stripe.get(id, now, self.0.keep);
        match (kept, stripe.under_way(id, now)) {
            (Some(kept), Some(_)) => Found::Kept(kept),
            (Some(kept), None) if !outdone(&kept.number) => Found::Kept(kept),
            (None, Some(read)) => Found::UnderWay(read, None),
            (kept, None) => {
                let (waiters, read) = oneshot::channel();
                let read = read.shared();
                stripe.under_way.insert(id.clone(), (now, read.clone()));
                leads.push(ReadLead { id: id.clone(), began: now, local: self.clone(), waiters: Some(waiters) });
                Found::UnderWay(read, kept)
            }
        }
    }

    fn stripe(&self, id: &CounterId) -> MutexGuard<'_, Stripe> {
        let Stripes { stripes, hasher, .. } = &*self.0;
        let nth = usize::try_from(hasher.hash_one(id) % STRIPES as u64).unwrap_or_default();
        stripes[nth].lock()
    }
}

/// Two generations of numbers. When the younger one is full, the older one is dropped and the younger takes its place.
/// A number that is asked for becomes young again.
#[derive(Debug)]
struct Stripe {
    generation: usize,
    young: HashMap<CounterId, Entry>,
    old: HashMap<CounterId, Entry>,
    /// The reads under way, with the beginning of each.
    under_way: HashMap<CounterId, (Now, Shared<oneshot::Receiver<ReadResult>>)>,
}

#[derive(Debug)]
struct Entry {
    kept: Arc<Kept>,
    /// When its read began.
    began: Now,
}

impl Entry {
    fn alive(&self, now: Now, keep: Duration) -> Option<Arc<Kept>> {
        (now.since(self.began) < keep).then(|| Arc::clone(&self.kept))
    }
}

impl Stripe {
    fn of(generation: usize) -> Self {
        Self { generation, young: HashMap::new(), old: HashMap::new(), under_way: HashMap::new() }
    }

    /// Returns the read that a request may wait for.
    fn under_way(&self, id: &CounterId, now: Now) -> Option<Shared<oneshot::Receiver<ReadResult>>> {
        self.under_way.get(id).filter(|(began, _)| now.since(*began) < LONGEST).map(|(_, read)| read.clone())
    }

    /// Forgets the read that began at this time. A later one may be under way.
    fn ended(&mut self, id: &CounterId, began: Now) {
        if self.under_way.get(id).is_some_and(|(of, _)| *of == began) {
            self.under_way.remove(id);
        }
    }

    fn get(&mut self, id: &CounterId, now: Now, keep: Duration) -> Option<Arc<Kept>> {
        if let Some(entry) = self.young.get(id) {
            return entry.alive(now, keep);
        }
        let (id, entry) = self.old.remove_entry(id)?;
        let kept = entry.alive(now, keep)?;
        self.insert(id, entry);
        Some(kept)
    }

    /// Keeps `kept`, whose read began at `began`, unless the number that is held is better. Returns the number that is
    /// held now.
    fn put(&mut self, id: &CounterId, kept: Kept, began: Now, keep: Duration) -> Arc<Kept> {
        if let Some(held) = self.get(id, began, keep).filter(|held| !kept.number.replaces(&held.number)) {
            return held;
        }
        let kept = Arc::new(kept);
        if !keep.is_zero() {
            self.insert(id.clone(), Entry { kept: Arc::clone(&kept), began });
        }
        kept
    }

    fn insert(&mut self, id: CounterId, entry: Entry) {
        if self.young.len() >= self.generation && !self.young.contains_key(&id) {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(id, entry);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, Strategy, prop_assert_eq, proptest};
    use tally_core::cached::{StandingAt, Value};
    use tally_core::changes::Place;
    use tally_core::time::UnixMillis;

    use super::*;

    const KEEP: Duration = Duration::from_millis(100);

    fn likes(post: &str) -> CounterId {
        CounterId::likes(post.parse().unwrap())
    }

    fn at(millis: u64) -> Now {
        Now { at: Duration::from_millis(millis), wall: UnixMillis(1_000_000 + millis) }
    }

    fn version(version: u64) -> Number {
        Number { value: Value { version: Place::from_stored(version), ..Value::default() }, ..Number::default() }
    }

    fn find(local: &Local, ids: &[CounterId], now: Now) -> (Vec<Found>, Vec<ReadLead>) {
        find_or(local, ids, now, false)
    }

    fn find_or(local: &Local, ids: &[CounterId], now: Now, is_outdone: bool) -> (Vec<Found>, Vec<ReadLead>) {
        let mut leads = Vec::new();
        let found = ids.iter().map(|id| local.find(id, now, |_| is_outdone, &mut leads)).collect();
        (found, leads)
    }

    fn keep(local: &Local, post: &str, number: &Number, now: Now) {
        let (_, leads) = find(local, &[likes(post)], now);
        leads.into_iter().for_each(|lead| lead.finish(Ok(number.clone()), Timing::default()));
    }

    fn held(local: &Local, post: &str, now: Now) -> Option<u64> {
        local.get(&likes(post), now).map(|kept| kept.number.value.version.stored())
    }

    #[test]
    fn a_number_is_kept_for_its_time_from_the_beginning_of_its_read_by_either_clock() {
        let [local, nothing, long] = [KEEP, Duration::ZERO, 600 * LONGEST].map(|keep| Local::new(100, keep));
        for local in [&local, &nothing, &long] {
            keep(local, "p", &version(3), at(0));
        }
        assert_eq!((held(&local, "p", at(99)), held(&nothing, "p", at(0))), (Some(3), None));
        // A longer time would serve a corrected counter's old value.
        assert_eq!((held(&long, "p", at(999)), held(&long, "p", at(1_000))), (Some(3), None));
        let slept = Now { wall: at(100).wall, ..at(5) };
        let set_back = Now { wall: UnixMillis(0), ..at(100) };
        for past in [at(100), slept, set_back] {
            assert_eq!(held(&local, "p", past), None, "{past:?}");
        }
    }

    fn number() -> impl Strategy<Value = Number> {
        (0..3u64, 0..3u64).prop_map(|(of, beside)| {
            let standing = StandingAt { at: Place::from_stored(beside), ..StandingAt::default() };
            Number { standing: Some(Arc::new(standing)), ..version(of) }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn of_two_numbers_one_order_decides_which_is_kept(first in number(), second in number()) {
            let (mut stripe, id) = (Stripe::of(9), likes("p"));
            stripe.put(&id, Kept::new(first.clone(), Timing::default()), at(0), KEEP);
            let kept = if second.replaces(&first) { second.clone() } else { first };
            prop_assert_eq!(&stripe.put(&id, Kept::new(second, Timing::default()), at(1), KEEP).number, &kept, "for those who waited");
            prop_assert_eq!(stripe.get(&id, at(2), KEEP).map(|held| held.number.clone()), Some(kept), "and the next");
        }
    }

    #[test]
    fn memory_is_bounded_and_what_is_asked_for_again_stays() {
        let local = Local::new(256, LONGEST);
        keep(&local, "hot", &version(1), at(0));
        for n in 0..10_000 {
            keep(&local, &format!("once-{n}"), &version(1), at(0));
            assert_eq!(held(&local, "hot", at(0)), Some(1), "{n}");
        }
        let stripes = local.0.stripes.iter().map(|stripe| stripe.lock());
        let kept: usize = stripes.map(|stripe| stripe.young.len() + stripe.old.len()).sum();
        assert!(kept <= 256, "{kept}");
    }

    #[tokio::test]
    async fn one_request_leads_the_read_and_the_others_wait_for_it() {
        let local = Local::new(100, KEEP);
        let (found, mut leads) = find(&local, &[likes("p"), likes("q"), likes("p")], at(0));
        assert_eq!(leads.iter().map(|lead| lead.id.clone()).collect::<Vec<_>>(), [likes("p"), likes("q")]);
        assert_eq!(find(&local, &[likes("q"), likes("p")], at(0)).1.len(), 0);
        leads.pop().unwrap().finish(Err(Problem::Busy), Timing::default());
        leads.pop().unwrap().finish(Ok(version(4)), Timing::default());
        let mut read = Vec::new();
        for found in found {
            assert!(!found.is_kept());
            read.push(found.timed().await.map(|(kept, _)| kept.number.value.version.stored()));
        }
        assert_eq!(read, [Ok(4), Err(Problem::Busy), Ok(4)]);
        let (found, leads) = find(&local, &[likes("p"), likes("q")], at(1));
        assert!(matches!(&found[0], Found::Kept(kept) if kept.number == version(4)));
        assert_eq!(leads.len(), 1, "a fault is not kept");
    }

    #[tokio::test]
    async fn a_number_that_is_outdone_is_read_again_by_one_caller_and_others_get_what_is_there() {
        let (local, p) = (Local::new(100, KEEP), [likes("p")]);
        keep(&local, "p", &version(4), at(0));
        let outdone = || find_or(&local, &p, at(1), true);
        let ((mut first, mut leads), (others, none)) = (outdone(), outdone());
        assert!(!first[0].is_kept() && others[0].is_kept() && none.is_empty());
        leads.pop().unwrap().finish(Ok(version(5)), Timing::default());
        assert_eq!(first.pop().unwrap().timed().await.unwrap().0.number, version(5));
        let (mut first, leads) = outdone();
        leads.into_iter().for_each(|lead| lead.finish(Err(Problem::Busy), Timing::default()));
        assert_eq!(
            first.pop().unwrap().timed().await.unwrap().0.number,
            version(5),
            "what is there is better than none"
        );
    }

    #[tokio::test]
    async fn a_request_does_not_wait_for_a_read_that_began_too_long_before_it() {
        let (local, p) = (Local::new(100, KEEP), [likes("p")]);
        let (_, mut earlier) = find(&local, &p, at(0));
        assert_eq!(find(&local, &p, at(999)).1.len(), 0);
        let (mut found, mut leads) = find(&local, &p, at(1_000));
        earlier.pop().unwrap().finish(Ok(version(3)), Timing::default());
        assert_eq!(find(&local, &p, at(1_001)).1.len(), 0, "the later read is still under way");
        leads.pop().unwrap().finish(Ok(version(4)), Timing::default());
        assert_eq!(found.pop().unwrap().timed().await.unwrap().0.number, version(4));
    }

    #[tokio::test]
    async fn a_read_that_is_given_up_fails_those_who_wait_and_no_later_request() {
        let (local, p) = (Local::new(100, KEEP), [likes("p")]);
        let (mut found, leads) = find(&local, &p, at(0));
        drop(leads);
        assert!(matches!(found.remove(0).timed().await, Err(Problem::StoreAway(_))));
        assert_eq!(find(&local, &p, at(0)).1.len(), 1);
    }
}
