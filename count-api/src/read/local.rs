//! Counts in this process's memory for a moment, and which counters are being read. How they are read is not decided here.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::{Mutex, MutexGuard};
use tally_core::ids::CounterId;
use tally_core::served::Served;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::NoAnswer;
use crate::count::Rendered;
use crate::error::LoggedCause;

/// Stripes with a lock each, so that requests for different counters seldom meet.
const STRIPES: usize = 64;

/// A count that was read, and the bytes of its answer once it has been answered.
#[derive(Debug)]
pub struct KeptCount {
    served: Served,
    rendered: OnceLock<Rendered>,
}

impl KeptCount {
    fn new(served: Served) -> Self {
        Self { served, rendered: OnceLock::new() }
    }

    /// The count as it arrived.
    pub fn served(&self) -> Served {
        self.served
    }

    /// The answer about `id` when the count is judged to be `now`.
    pub fn rendered(&self, id: &CounterId, now: &Served) -> Rendered {
        if *now == self.served {
            self.rendered.get_or_init(|| Rendered::new(&id.post, now)).clone()
        } else {
            Rendered::new(&id.post, now)
        }
    }

    /// The same, if it was answered before.
    pub fn rendered_before(&self, now: &Served) -> Option<Rendered> {
        self.rendered.get().filter(|_| *now == self.served).cloned()
    }
}

/// What a read comes to, for all who wait for it.
type ReadResult = Result<Arc<KeptCount>, NoAnswer>;

/// Where a count is.
#[derive(Clone, Debug)]
pub enum Found {
    Kept(Arc<KeptCount>),
    UnderWay(Shared<oneshot::Receiver<ReadResult>>),
}

impl Found {
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }

    /// The count, once its read has ended.
    pub async fn count(self) -> ReadResult {
        match self {
            Self::Kept(kept) => Ok(kept),
            Self::UnderWay(read) => {
                read.await.unwrap_or_else(|_| Err(NoAnswer::Away(LoggedCause::new("the read was given up"))))
            }
        }
    }
}

/// The duty to read one counter. Dropping it fails all who wait for the read.
#[derive(Debug)]
pub struct ReadLead {
    pub id: CounterId,
    local: Local,
    /// Taken by [`finish`](Self::finish).
    waiters: Option<oneshot::Sender<ReadResult>>,
}

impl ReadLead {
    /// Keeps what was read and answers all who wait. A fault is answered and not kept.
    pub fn finish(mut self, read: Result<Served, NoAnswer>) {
        let result = {
            let mut stripe = self.local.stripe(&self.id);
            // Under one lock: the next request finds the count, or leads another read.
            stripe.under_way.remove(&self.id);
            read.map(|served| stripe.put(&self.id, served, self.local.0.ttl))
        };
        if let Some(waiters) = self.waiters.take() {
            // All of them may have left.
            let _ = waiters.send(result);
        }
    }
}

impl Drop for ReadLead {
    fn drop(&mut self) {
        if self.waiters.is_some() {
            self.local.stripe(&self.id).under_way.remove(&self.id);
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
    ttl: Duration,
}

impl Local {
    /// Keeps up to about `counts` for `ttl` each. With no `ttl` nothing is kept, and simultaneous reads are still one.
    pub fn new(counts: u64, ttl: Duration) -> Self {
        let generation = usize::try_from(counts).unwrap_or(usize::MAX).div_ceil(2 * STRIPES).max(1);
        let stripes = (0..STRIPES).map(|_| Mutex::new(Stripe::of(generation))).collect();
        Self(Arc::new(Stripes { stripes, hasher: RandomState::new(), ttl }))
    }

    /// The count of `id`, if it is in memory `now`.
    pub fn get(&self, id: &CounterId, now: Instant) -> Option<Arc<KeptCount>> {
        self.stripe(id).get(id, now)
    }

    /// Where the count of each of `ids` is, and the reads that the caller leads.
    pub fn find(&self, ids: &[CounterId]) -> (Vec<Found>, Vec<ReadLead>) {
        let (mut leads, now) = (Vec::new(), Instant::now());
        let found = ids.iter().map(|id| self.find_one(id, now, &mut leads)).collect();
        (found, leads)
    }

    fn find_one(&self, id: &CounterId, now: Instant, leads: &mut Vec<ReadLead>) -> Found {
        // Under one lock: between the end of a read and its count's being kept no second read begins.
        let mut stripe = self.stripe(id);
        if let Some(kept) = stripe.get(id, now) {
            return Found::Kept(kept);
        }
        if let Some(read) = stripe.under_way.get(id) {
            return Found::UnderWay(read.clone());
        }
        let (waiters, read) = oneshot::channel();
        let read = read.shared();
        stripe.under_way.insert(id.clone(), read.clone());
        leads.push(ReadLead { id: id.clone(), local: self.clone(), waiters: Some(waiters) });
        Found::UnderWay(read)
    }

    fn stripe(&self, id: &CounterId) -> MutexGuard<'_, Stripe> {
        let Stripes { stripes, hasher, .. } = &*self.0;
        let nth = usize::try_from(hasher.hash_one(id) % STRIPES as u64).unwrap_or_default();
        stripes[nth].lock()
    }
}

/// Two generations of counts. When the younger is full, the older is forgotten and the younger takes its place; a count
/// asked for meanwhile becomes young again.
#[derive(Debug)]
struct Stripe {
    generation: usize,
    young: HashMap<CounterId, Entry>,
    old: HashMap<CounterId, Entry>,
    under_way: HashMap<CounterId, Shared<oneshot::Receiver<ReadResult>>>,
}

#[derive(Debug)]
struct Entry {
    kept: Arc<KeptCount>,
    until: Instant,
}

impl Entry {
    fn alive(&self, now: Instant) -> Option<Arc<KeptCount>> {
        (now < self.until).then(|| Arc::clone(&self.kept))
    }
}

impl Stripe {
    fn of(generation: usize) -> Self {
        Self { generation, young: HashMap::new(), old: HashMap::new(), under_way: HashMap::new() }
    }

    fn get(&mut self, id: &CounterId, now: Instant) -> Option<Arc<KeptCount>> {
        if let Some(entry) = self.young.get(id) {
            return entry.alive(now);
        }
        let (id, entry) = self.old.remove_entry(id)?;
        let kept = entry.alive(now)?;
        self.insert(id, entry);
        Some(kept)
    }

    /// Keeps `served` if it replaces what is held, and answers which of the two is held now.
    fn put(&mut self, id: &CounterId, served: Served, ttl: Duration) -> Arc<KeptCount> {
        let now = Instant::now();
        if let Some(held) = self.get(id, now).filter(|held| !served.replaces(&held.served)) {
            return held;
        }
        let kept = Arc::new(KeptCount::new(served));
        if !ttl.is_zero() {
            self.insert(id.clone(), Entry { kept: Arc::clone(&kept), until: now + ttl });
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
    use proptest::prelude::{ProptestConfig, Strategy, any, prop_assert_eq, proptest};
    use tally_core::time::UnixMillis;

    use super::*;

    const TTL: Duration = Duration::from_millis(100);

    fn likes(post: &str) -> CounterId {
        CounterId::likes(post.parse().unwrap())
    }

    fn version(version: u64) -> Served {
        Served { version, ..Served::default() }
    }

    fn keep(local: &Local, post: &str, served: Served) {
        let (_, leads) = local.find(&[likes(post)]);
        leads.into_iter().for_each(|lead| lead.finish(Ok(served)));
    }

    fn held(local: &Local, post: &str) -> Option<u64> {
        local.get(&likes(post), Instant::now()).map(|kept| kept.served().version)
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_is_kept_for_its_time_and_not_longer() {
        let (local, nothing) = (Local::new(100, TTL), Local::new(100, Duration::ZERO));
        keep(&local, "p", version(3));
        keep(&nothing, "p", version(3));
        tokio::time::advance(TTL - Duration::from_millis(1)).await;
        assert_eq!((held(&local, "p"), held(&nothing, "p")), (Some(3), None));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(held(&local, "p"), None);
    }

    fn served() -> impl Strategy<Value = Served> {
        (0..3u64, any::<bool>(), 0..3u64).prop_map(|(version, exact, as_of)| Served {
            likes: 0,
            version,
            exact,
            as_of: UnixMillis(as_of),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn of_two_values_the_cores_order_decides_which_is_kept(first in served(), second in served()) {
            let (mut stripe, id) = (Stripe::of(9), likes("p"));
            stripe.put(&id, first, TTL);
            let kept = if second.replaces(&first) { second } else { first };
            prop_assert_eq!(stripe.put(&id, second, TTL).served(), kept, "for those who waited");
            prop_assert_eq!(stripe.get(&id, Instant::now()).map(|held| held.served()), Some(kept), "and for the next");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_and_what_is_asked_for_again_stays() {
        let local = Local::new(256, Duration::from_secs(10));
        keep(&local, "hot", version(1));
        for n in 0..10_000 {
            keep(&local, &format!("once-{n}"), version(1));
            assert_eq!(held(&local, "hot"), Some(1), "{n}");
        }
        let stripes = local.0.stripes.iter().map(|stripe| stripe.lock());
        let kept: usize = stripes.map(|stripe| stripe.young.len() + stripe.old.len()).sum();
        assert!(kept <= 256, "{kept}");
    }

    #[tokio::test]
    async fn one_request_leads_the_read_and_the_others_wait_for_it() {
        let local = Local::new(100, TTL);
        let (found, mut leads) = local.find(&[likes("p"), likes("q"), likes("p")]);
        assert_eq!(leads.iter().map(|lead| lead.id.clone()).collect::<Vec<_>>(), [likes("p"), likes("q")]);
        assert_eq!(local.find(&[likes("q"), likes("p")]).1.len(), 0);
        leads.pop().unwrap().finish(Err(NoAnswer::Busy));
        leads.pop().unwrap().finish(Ok(version(4)));
        let mut read = Vec::new();
        for found in found {
            assert!(!found.is_kept());
            read.push(found.count().await.map(|kept| kept.served().version));
        }
        assert_eq!(read, [Ok(4), Err(NoAnswer::Busy), Ok(4)]);
        let (found, leads) = local.find(&[likes("p"), likes("q")]);
        assert!(matches!(&found[0], Found::Kept(kept) if kept.served().version == 4));
        assert_eq!(leads.len(), 1, "a fault is not kept");
    }

    #[tokio::test]
    async fn a_read_that_is_given_up_fails_those_who_wait_and_no_later_request() {
        let local = Local::new(100, TTL);
        let (mut found, leads) = local.find(&[likes("p")]);
        drop(leads);
        assert!(matches!(found.remove(0).count().await, Err(NoAnswer::Away(_))));
        assert_eq!(local.find(&[likes("p")]).1.len(), 1);
    }
}
