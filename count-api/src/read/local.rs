//! Counts in this process's memory for a moment, and one read at a time of those that are not: whoever asks for a post
//! that is being read waits for that read. How it is read is others' business.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use tally_core::ids::CounterId;
use tally_core::served::Served;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::NoAnswer;
use crate::count::Shown;
use crate::error::Cause;

/// Parts with a lock each, so that readers of different posts seldom meet.
const PARTS: usize = 64;

/// A count that was read, and the bytes it is sent in once somebody has asked for them.
#[derive(Debug)]
pub struct Kept {
    served: Served,
    shown: OnceLock<Shown>,
}

impl Kept {
    fn new(served: Served) -> Self {
        Self { served, shown: OnceLock::new() }
    }

    /// The count as it was read.
    pub fn served(&self) -> Served {
        self.served
    }

    /// The count of `id` as it is sent when it is judged to be `now`.
    pub fn shown(&self, id: &CounterId, now: &Served) -> Shown {
        if *now == self.served {
            self.shown.get_or_init(|| Shown::new(&id.post, now)).clone()
        } else {
            Shown::new(&id.post, now)
        }
    }

    /// The same, if it was sent before.
    pub fn at_hand(&self, now: &Served) -> Option<Shown> {
        self.shown.get().filter(|_| *now == self.served).cloned()
    }
}

/// What a read came to, for everybody who waits for it.
type Landed = Result<Arc<Kept>, NoAnswer>;

/// A read under way. Whoever waits for it may leave; it goes on.
#[derive(Clone, Debug)]
pub struct Flight(Shared<oneshot::Receiver<Landed>>);

impl Flight {
    /// What it comes to.
    pub async fn landed(self) -> Landed {
        self.0.await.unwrap_or_else(|_| Err(NoAnswer::Away(Cause::new("the read was given up"))))
    }
}

/// Where the count of a post is, for one who asks.
#[derive(Clone, Debug)]
pub enum Found {
    /// In memory.
    Kept(Arc<Kept>),
    /// On its way.
    Flight(Flight),
}

/// A read somebody has to do: of a post that nobody reads yet. Dropping it gives it up, for everybody who waits.
#[derive(Debug)]
pub struct Led {
    /// The counter.
    pub id: CounterId,
    local: Local,
    tell: Option<oneshot::Sender<Landed>>,
}

impl Led {
    /// Keeps what was read and tells everybody. A fault is told and not kept.
    pub fn land(mut self, read: Result<Served, NoAnswer>) {
        let landed = {
            let mut part = self.local.part(&self.id);
            // The next who asks finds the count, or begins another read.
            part.flights.remove(&self.id);
            read.map(|served| part.put(&self.id, served, self.local.0.ttl))
        };
        if let Some(tell) = self.tell.take() {
            // Everybody may have left.
            let _ = tell.send(landed);
        }
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        if self.tell.is_some() {
            self.local.part(&self.id).flights.remove(&self.id);
        }
    }
}

/// The memory, bounded: posts asked for once do not drive out those asked for again. Clones share it.
#[derive(Clone, Debug)]
pub struct Local(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    parts: Box<[Mutex<Part>]>,
    hasher: RandomState,
    ttl: Duration,
}

impl Local {
    /// Keeps up to about `posts` counts for `ttl` each; with no `ttl` nothing is kept, and simultaneous reads are still
    /// one.
    pub fn new(ids: u64, ttl: Duration) -> Self {
        let generation = usize::try_from(ids).unwrap_or(usize::MAX).div_ceil(2 * PARTS).max(1);
        let parts = (0..PARTS).map(|_| Mutex::new(Part::of(generation))).collect();
        Self(Arc::new(Parts { parts, hasher: RandomState::new(), ttl }))
    }

    /// The count of `id`, if it was read a moment before `now`.
    pub fn get(&self, id: &CounterId, now: Instant) -> Option<Arc<Kept>> {
        self.part(id).get(id, now)
    }

    /// Where the count of each of `ids` is, and those that it is now for the caller to read.
    pub fn find(&self, ids: &[CounterId]) -> (Vec<Found>, Vec<Led>) {
        let mut led = Vec::new();
        let found = ids.iter().map(|id| self.find_one(id, &mut led)).collect();
        (found, led)
    }

    fn find_one(&self, id: &CounterId, led: &mut Vec<Led>) -> Found {
        // One look under one lock: between a read's end and the count's being there, nobody begins another.
        let mut part = self.part(id);
        if let Some(kept) = part.get(id, Instant::now()) {
            return Found::Kept(kept);
        }
        if let Some(flight) = part.flights.get(id) {
            return Found::Flight(flight.clone());
        }
        let (tell, landed) = oneshot::channel();
        let flight = Flight(landed.shared());
        part.flights.insert(id.clone(), flight.clone());
        led.push(Led { id: id.clone(), local: self.clone(), tell: Some(tell) });
        Found::Flight(flight)
    }

    fn part(&self, id: &CounterId) -> MutexGuard<'_, Part> {
        let Parts { parts, hasher, .. } = &*self.0;
        let nth = usize::try_from(hasher.hash_one(id) % PARTS as u64).unwrap_or_default();
        parts[nth].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two generations of counts. When the younger is full, the older is forgotten and the younger takes its place; what is
/// asked for again meanwhile becomes young again.
#[derive(Debug)]
struct Part {
    generation: usize,
    young: HashMap<CounterId, Entry>,
    old: HashMap<CounterId, Entry>,
    flights: HashMap<CounterId, Flight>,
}

#[derive(Debug)]
struct Entry {
    kept: Arc<Kept>,
    until: Instant,
}

impl Entry {
    fn alive(&self, now: Instant) -> Option<Arc<Kept>> {
        (now < self.until).then(|| Arc::clone(&self.kept))
    }
}

impl Part {
    fn of(generation: usize) -> Self {
        Self { generation, young: HashMap::new(), old: HashMap::new(), flights: HashMap::new() }
    }

    fn get(&mut self, id: &CounterId, now: Instant) -> Option<Arc<Kept>> {
        if let Some(entry) = self.young.get(id) {
            return entry.alive(now);
        }
        let (id, entry) = self.old.remove_entry(id)?;
        let kept = entry.alive(now)?;
        self.insert(id, entry);
        Some(kept)
    }

    /// Keeps `served` unless a newer version is there, and answers which of them is.
    fn put(&mut self, id: &CounterId, served: Served, ttl: Duration) -> Arc<Kept> {
        let now = Instant::now();
        if let Some(held) = self.get(id, now).filter(|held| held.served.version > served.version) {
            return held;
        }
        let kept = Arc::new(Kept::new(served));
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
    use super::*;

    const TTL: Duration = Duration::from_millis(100);

    fn likes(post: &str) -> CounterId {
        CounterId::likes(post.parse().unwrap())
    }

    fn version(version: u64) -> Served {
        Served { version, ..Served::default() }
    }

    fn keep(local: &Local, post: &str, served: Served) {
        let (_, led) = local.find(&[likes(post)]);
        led.into_iter().for_each(|led| led.land(Ok(served)));
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

    #[tokio::test(start_paused = true)]
    async fn an_older_version_never_takes_the_place_of_a_newer_one() {
        let local = Local::new(100, TTL);
        let mut part = local.part(&likes("p"));
        for (read, kept) in [(5, 5), (4, 5), (6, 6)] {
            assert_eq!(part.put(&likes("p"), version(read), TTL).served().version, kept, "also for those who waited");
        }
        let exact = Served { exact: true, ..version(6) };
        assert_eq!(part.put(&likes("p"), exact, TTL).served(), exact, "the same version, known better");
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_and_what_is_asked_for_again_stays() {
        let local = Local::new(256, Duration::from_secs(10));
        keep(&local, "hot", version(1));
        for n in 0..10_000 {
            keep(&local, &format!("once-{n}"), version(1));
            assert_eq!(held(&local, "hot"), Some(1), "{n}");
        }
        let kept: usize = local
            .0
            .parts
            .iter()
            .map(|part| {
                let part = part.lock().unwrap();
                part.young.len() + part.old.len()
            })
            .sum();
        assert!(kept <= 256, "{kept}");
    }

    #[tokio::test]
    async fn one_reads_and_whoever_asks_meanwhile_waits_for_it() {
        let local = Local::new(100, TTL);
        let (found, mut led) = local.find(&[likes("p"), likes("q"), likes("p")]);
        assert_eq!(led.iter().map(|led| led.id.post.as_str()).collect::<Vec<_>>(), ["p", "q"]);
        assert_eq!(local.find(&[likes("q"), likes("p")]).1.len(), 0);
        led.pop().unwrap().land(Err(NoAnswer::Busy));
        led.pop().unwrap().land(Ok(version(4)));
        let mut landed = Vec::new();
        for found in found {
            let Found::Flight(flight) = found else { panic!("{found:?}") };
            landed.push(flight.landed().await.map(|kept| kept.served().version));
        }
        assert_eq!(landed, [Ok(4), Err(NoAnswer::Busy), Ok(4)]);
        let (found, led) = local.find(&[likes("p"), likes("q")]);
        assert!(matches!(&found[0], Found::Kept(kept) if kept.served().version == 4));
        assert_eq!(led.len(), 1, "a fault is not kept");
    }

    #[tokio::test]
    async fn a_read_that_is_given_up_fails_those_who_wait_and_nobody_later() {
        let local = Local::new(100, TTL);
        let (mut found, led) = local.find(&[likes("p")]);
        drop(led);
        let Some(Found::Flight(flight)) = found.pop() else { panic!("it was read") };
        assert!(matches!(flight.landed().await, Err(NoAnswer::Away(_))));
        assert_eq!(local.find(&[likes("p")]).1.len(), 1);
    }
}
