//! Live counts: each counter with a listener is read once an interval, however many listen, and every listener gets the newest
//! count there is, judged when it is sent. What a listener is slow to read is replaced, never queued.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use parking_lot::{Mutex, MutexGuard};
use tally_core::Map;
use tally_core::ids::CounterId;
use tally_core::served::Served;
use tally_service::{Clock, Stop, Task};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::metrics::{LISTENERS, WATCHED_COUNTERS};
use crate::read::{Judge, Reader};

/// How often a counter with a listener is read.
pub const EVERY: Duration = Duration::from_millis(250);

/// Counters read together.
const TOGETHER: usize = 100;

/// Such reads at once.
const AT_ONCE: usize = 8;

/// The counters listened to. Clones share them.
#[derive(Clone)]
pub struct Watches {
    counters: Arc<Mutex<Map<CounterId, watch::Sender<Live>>>>,
    permits: Arc<Semaphore>,
    judge: Judge,
}

/// The newest count of a counter, as it arrived, and the edition it had when it was last judged.
#[derive(Clone, Copy, Debug)]
struct Live {
    served: Served,
    edition: Edition,
}

/// No more clients may listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Watches {
    /// Room for this many posts that clients listen to: one counts once for each client, with one counter or with all.
    pub fn new(posts: usize, judge: Judge) -> Self {
        Self { counters: Arc::default(), permits: Arc::new(Semaphore::new(posts)), judge }
    }

    /// The permission to listen to one post: to be had before anything is read for the client.
    pub fn admit(&self) -> Result<ListenerPermit, Full> {
        self.admit_many(1)
    }

    /// The permission of one client to listen to several posts, or hashtags. Each takes a place: it may be read for this
    /// client alone. What a place costs is a read of as many counters as the client listens to there.
    pub fn admit_many(&self, posts: usize) -> Result<ListenerPermit, Full> {
        let posts = u32::try_from(posts).map_err(|_| Full)?;
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(posts).map_err(|_| Full)?;
        LISTENERS.gauge(&[]).increment(1);
        Ok(ListenerPermit { _place: Arc::new(Place { _permit: permit }) })
    }

    /// Listens to `id`, whose count has just arrived as `served`.
    pub fn listen(&self, permit: ListenerPermit, id: &CounterId, served: Served) -> Listener {
        let mut counters = self.counters();
        let live = match counters.get(id) {
            Some(sender) => {
                self.offer(sender, served);
                sender.subscribe()
            }
            None => {
                let edition = Edition::of(&self.judge.judge(served));
                let sender = watch::Sender::new(Live { served, edition });
                let live = sender.subscribe();
                counters.insert(id.clone(), sender);
                live
            }
        };
        Listener { live, judge: self.judge.clone(), seen: None, _permit: permit }
    }

    /// The counters still listened to; the others are forgotten.
    fn listened(&self) -> Vec<CounterId> {
        let mut counters = self.counters();
        counters.retain(|_, sender| sender.receiver_count() > 0);
        if counters.len() < counters.capacity() / 4 {
            counters.shrink_to_fit();
        }
        counters.keys().cloned().collect()
    }

    fn publish(&self, id: &CounterId, served: Served) {
        if let Some(sender) = self.counters().get(id) {
            self.offer(sender, served);
        }
    }

    /// Keeps `served` if it replaces what is held, and wakes the listeners if what is held is another edition now.
    fn offer(&self, sender: &watch::Sender<Live>, served: Served) {
        sender.send_if_modified(|live| {
            if served.replaces(&live.served) {
                live.served = served;
            }
            let edition = Edition::of(&self.judge.judge(live.served));
            std::mem::replace(&mut live.edition, edition) != edition
        });
    }

    fn counters(&self) -> MutexGuard<'_, Map<CounterId, watch::Sender<Live>>> {
        self.counters.lock()
    }
}

/// The permission of one client to listen. It is given back with the last of its clones.
#[derive(Clone)]
pub struct ListenerPermit {
    _place: Arc<Place>,
}

struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        LISTENERS.gauge(&[]).decrement(1);
    }
}

/// A state of a count: its version, and whether it is exact. It is the ETag of an answer and the id of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edition {
    version: u64,
    exact: bool,
}

impl Edition {
    /// The edition of `served`.
    pub fn of(served: &Served) -> Self {
        Self { version: served.version, exact: served.exact }
    }

    /// The edition written as `text`.
    pub fn parse(text: &str) -> Option<Self> {
        let (version, exact) = text.split_once('.')?;
        let edition = Self { version: version.parse().ok()?, exact: exact == "1" };
        (edition.to_string() == text).then_some(edition)
    }
}

impl std::fmt::Display for Edition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.version, u8::from(self.exact))
    }
}

/// A client that listens to one counter.
pub struct Listener {
    live: watch::Receiver<Live>,
    judge: Judge,
    seen: Option<Edition>,
    _permit: ListenerPermit,
}

impl Listener {
    /// Begins behind `seen`, which the client had before it was cut off.
    #[must_use]
    pub fn resuming(self, seen: Option<Edition>) -> Self {
        Self { seen, ..self }
    }

    /// The count now, unless it was seen, and at each change, until `stop`.
    pub fn counts(self, stop: Stop) -> impl stream::Stream<Item = Served> + Send {
        let stopping = async move { stop.requested().await };
        stream::unfold(self, |mut listener| async move {
            let served = listener.next().await?;
            Some((served, listener))
        })
        .take_until(stopping)
    }

    /// The next edition. It is judged here, and not when it was published: the client may be slow, the process may have
    /// stood still.
    async fn next(&mut self) -> Option<Served> {
        loop {
            let held = self.live.borrow_and_update().served;
            let served = self.judge.judge(held);
            let edition = Edition::of(&served);
            if self.seen != Some(edition) {
                self.seen = Some(edition);
                return Some(served);
            }
            self.live.changed().await.ok()?;
        }
    }
}

/// The task that reads the counters listened to.
pub struct Watcher {
    pub watches: Watches,
    pub reader: Reader,
    pub clock: Clock,
}

impl Watcher {
    async fn look(&self) {
        let counters = self.watches.listened();
        WATCHED_COUNTERS.gauge(&[]).set(u32::try_from(counters.len()).unwrap_or(u32::MAX));
        let reads = stream::iter(counters.chunks(TOGETHER));
        reads
            .for_each_concurrent(AT_ONCE, |counters| async move {
                // A failure is not sent: the next look makes up for it, and the stream's comments go on.
                for (id, read) in counters.iter().zip(self.reader.read(counters).await) {
                    if let Ok(served) = read {
                        self.watches.publish(id, served);
                    }
                }
            })
            .await;
    }
}

impl Task for Watcher {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.clock.sleep(EVERY)).await.is_ok() {
            self.look().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use proptest::prelude::{ProptestConfig, any, proptest};
    use tally_core::standing::{LIMIT, Reading};
    use tally_core::time::UnixMillis;
    use tally_service::Switch;

    use super::*;

    fn served(version: u64, exact: bool) -> Served {
        Served { version, exact, ..Served::default() }
    }

    fn likes() -> CounterId {
        CounterId::likes("p".parse().unwrap())
    }

    /// Room for `listeners`, and the readings they are judged by.
    fn watches(listeners: usize) -> (Watches, watch::Sender<Reading>) {
        let (judge, readings) = Judge::of(Clock::starting_at(UnixMillis(0)));
        (Watches::new(listeners, judge), readings)
    }

    fn listen(watches: &Watches, served: Served) -> Listener {
        watches.listen(watches.admit().unwrap(), &likes(), served)
    }

    #[tokio::test]
    async fn a_listener_gets_the_count_now_and_then_only_what_is_new() {
        let (watches, _readings) = watches(9);
        let mut listener = listen(&watches, served(3, true));
        assert_eq!(listener.next().await, Some(served(3, true)));
        watches.publish(&likes(), Served { as_of: UnixMillis(9), ..served(3, true) });
        watches.publish(&likes(), served(3, false));
        watches.publish(&likes(), served(2, true));
        assert_eq!(listener.next().now_or_never(), None, "the same edition, and values that replace nothing");
        watches.publish(&likes(), served(4, false));
        assert_eq!(listener.next().await, Some(served(4, false)));
        watches.publish(&likes(), served(4, true));
        assert_eq!(listener.next().await, Some(served(4, true)));
        watches.publish(&likes(), served(5, false));
        watches.publish(&likes(), served(6, false));
        assert_eq!(listener.next().await, Some(served(6, false)), "what it was slow to read was replaced");
    }

    #[tokio::test]
    async fn a_listener_is_told_of_an_open_gap_although_the_version_stays() {
        let (watches, readings) = watches(9);
        let mut listener = listen(&watches, served(3, true));
        assert_eq!(listener.next().await, Some(served(3, true)));
        readings.send_modify(|reading| reading.open_gaps = true);
        watches.publish(&likes(), served(3, true));
        assert_eq!(listener.next().await, Some(served(3, false)));
        readings.send_modify(|reading| reading.open_gaps = false);
        watches.publish(&likes(), served(3, true));
        assert_eq!(listener.next().await, Some(served(3, true)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_judged_when_it_is_sent_and_not_when_it_was_published() {
        let (watches, _readings) = watches(9);
        let mut listener = listen(&watches, served(3, true));
        watches.publish(&likes(), served(4, true));
        tokio::time::advance(LIMIT + Duration::from_secs(1)).await;
        assert_eq!(listener.next().await, Some(served(4, false)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn of_two_values_the_cores_order_decides_which_is_sent(
            (version, other) in (0..3u64, 0..3u64),
            (exact, other_exact) in any::<(bool, bool)>(),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (watches, _readings) = watches(9);
                let (first, second) = (served(version, exact), served(other, other_exact));
                let mut listener = listen(&watches, first);
                watches.publish(&likes(), second);
                let kept = if second.replaces(&first) { second } else { first };
                assert_eq!(listener.next().await, Some(kept));
            });
        }
    }

    #[tokio::test]
    async fn a_client_that_reconnects_is_sent_only_what_it_has_not_seen() {
        let (watches, _readings) = watches(9);
        let resume = |seen| listen(&watches, served(3, true)).resuming(seen);
        let mut same = resume(Edition::parse("3.1"));
        assert_eq!(same.next().now_or_never(), None);
        for other in ["2.1", "3.0", "9.1", "3", "x"] {
            assert_eq!(resume(Edition::parse(other)).next().await, Some(served(3, true)), "{other}");
        }
    }

    #[tokio::test]
    async fn many_listeners_of_a_post_are_one_watch_and_the_last_one_ends_it() {
        let (watches, _readings) = watches(9);
        let (one, two) = (listen(&watches, served(1, true)), listen(&watches, served(1, true)));
        assert_eq!(watches.listened(), [likes()]);
        drop(one);
        assert_eq!(watches.listened().len(), 1);
        drop(two);
        assert_eq!(watches.listened().len(), 0);
    }

    #[tokio::test]
    async fn listeners_are_bounded_and_a_permit_is_given_back() {
        let (watches, _readings) = watches(1);
        let permit = watches.admit().unwrap();
        assert_eq!(watches.admit().err(), Some(Full));
        drop(watches.listen(permit, &likes(), served(1, true)));
        assert!(watches.admit().is_ok());
    }

    #[tokio::test]
    async fn a_client_that_listens_to_several_posts_has_the_places_of_as_many_until_its_last_listener_is_gone() {
        let (watches, _readings) = watches(3);
        assert_eq!(watches.admit_many(4).err(), Some(Full));
        let permit = watches.admit_many(3).unwrap();
        let listeners = [permit.clone(), permit].map(|permit| watches.listen(permit, &likes(), served(1, true)));
        let [one, two] = listeners;
        drop(one);
        assert_eq!(watches.admit().err(), Some(Full));
        drop(two);
        assert!(watches.admit_many(3).is_ok());
    }

    #[tokio::test]
    async fn a_stop_ends_every_stream() {
        let ((watches, _readings), switch) = (watches(9), Switch::new());
        let mut counts = Box::pin(listen(&watches, served(1, true)).counts(switch.stop()));
        assert_eq!(counts.next().await, Some(served(1, true)));
        switch.request();
        assert_eq!(counts.next().await, None);
    }

    #[test]
    fn an_edition_has_one_spelling() {
        assert_eq!(Edition::parse("7.1").map(|edition| edition.to_string()).as_deref(), Some("7.1"));
        for text in ["", ".", "7", "7.", "7.2", "07.1", "+7.1", "7.1.1", "-1.0"] {
            assert_eq!(Edition::parse(text), None, "{text}");
        }
    }
}
