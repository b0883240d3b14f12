//! Live counts: each post that somebody listens to is read once an interval, however many listen, and every listener
//! sees the newest count there is. What a listener is slow to read is replaced, never queued.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use metrics::gauge;
use tally_core::Map;
use tally_core::ids::CounterId;
use tally_core::served::Served;
use tally_service::{Clock, Stop, Task};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::read::Reader;

/// How often a post is read while somebody listens to it.
pub const EVERY: Duration = Duration::from_millis(250);

/// Posts read together.
const TOGETHER: usize = 100;

/// Such reads at once.
const AT_ONCE: usize = 8;

/// The posts listened to. Clones share them.
#[derive(Clone)]
pub struct Watches {
    posts: Arc<Mutex<Map<CounterId, watch::Sender<Served>>>>,
    places: Arc<Semaphore>,
}

/// As many listen as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Watches {
    /// Room for this many listeners.
    pub fn new(listeners: usize) -> Self {
        Self { posts: Arc::default(), places: Arc::new(Semaphore::new(listeners)) }
    }

    /// A place, before anything is read for whoever asks for it.
    pub fn admit(&self) -> Result<Place, Full> {
        let permit = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Full)?;
        gauge!("tally_listeners").increment(1);
        Ok(Place { _permit: permit })
    }

    /// Listens to `id`, whose count was `now` a moment ago.
    pub fn listen(&self, place: Place, id: &CounterId, now: Served) -> Listener {
        let mut posts = self.posts();
        let counts = match posts.get(id) {
            Some(sender) => {
                offer(sender, now);
                sender.subscribe()
            }
            None => {
                let sender = watch::Sender::new(now);
                let counts = sender.subscribe();
                posts.insert(id.clone(), sender);
                counts
            }
        };
        Listener { counts, seen: None, _place: place }
    }

    /// The posts still listened to; the others are forgotten.
    fn listened(&self) -> Vec<CounterId> {
        let mut posts = self.posts();
        posts.retain(|_, sender| sender.receiver_count() > 0);
        if posts.len() < posts.capacity() / 4 {
            posts.shrink_to_fit();
        }
        posts.keys().cloned().collect()
    }

    fn publish(&self, id: &CounterId, served: Served) {
        if let Some(sender) = self.posts().get(id) {
            offer(sender, served);
        }
    }

    fn posts(&self) -> MutexGuard<'_, Map<CounterId, watch::Sender<Served>>> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells listeners of `served` if it says something new. A layer that lags behind never takes them back.
fn offer(sender: &watch::Sender<Served>, served: Served) {
    sender.send_if_modified(|known| {
        let news = served.version > known.version || (served.version == known.version && served.exact != known.exact);
        if news {
            *known = served;
        }
        news
    });
}

/// One of the places there are for listeners.
pub struct Place {
    _permit: OwnedSemaphorePermit,
}

impl Drop for Place {
    fn drop(&mut self) {
        gauge!("tally_listeners").decrement(1);
    }
}

/// What sets one state of a count apart from the next: its version, and whether it is exact. Also its ETag and its
/// event's id.
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

/// One who listens to one post.
pub struct Listener {
    counts: watch::Receiver<Served>,
    seen: Option<Edition>,
    _place: Place,
}

impl Listener {
    /// Begins behind `seen`, which the listener had before it was cut off.
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

    async fn next(&mut self) -> Option<Served> {
        loop {
            let served = *self.counts.borrow_and_update();
            let edition = Edition::of(&served);
            if self.seen != Some(edition) {
                self.seen = Some(edition);
                return Some(served);
            }
            self.counts.changed().await.ok()?;
        }
    }
}

/// The task that reads the posts listened to.
pub struct Watcher {
    /// Which.
    pub watches: Watches,
    /// How.
    pub reader: Reader,
    /// When.
    pub clock: Clock,
}

impl Watcher {
    async fn look(&self) {
        let posts = self.watches.listened();
        gauge!("tally_watched_posts").set(u32::try_from(posts.len()).unwrap_or(u32::MAX));
        let reads = stream::iter(posts.chunks(TOGETHER));
        reads
            .for_each_concurrent(AT_ONCE, |posts| async move {
                // Nobody is told of a failure: the next look makes up for it, and heartbeats go on.
                for (id, read) in posts.iter().zip(self.reader.counts(posts).await) {
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
    use tally_service::Switch;

    use super::*;

    fn served(version: u64, exact: bool) -> Served {
        Served { version, exact, ..Served::default() }
    }

    fn likes() -> CounterId {
        CounterId::likes("p".parse().unwrap())
    }

    #[tokio::test]
    async fn a_listener_sees_the_count_now_and_then_only_what_is_new() {
        let watches = Watches::new(9);
        let mut listener = watches.listen(watches.admit().unwrap(), &likes(), served(3, true));
        assert_eq!(listener.next().await, Some(served(3, true)));
        watches.publish(&likes(), Served { as_of: tally_core::time::UnixMillis(9), ..served(3, true) });
        watches.publish(&likes(), served(2, true));
        assert_eq!(listener.next().now_or_never(), None, "the same edition, and an older one");
        watches.publish(&likes(), served(3, false));
        assert_eq!(listener.next().await, Some(served(3, false)));
        watches.publish(&likes(), served(4, false));
        watches.publish(&likes(), served(6, false));
        assert_eq!(listener.next().await, Some(served(6, false)), "what it was slow to read was replaced");
    }

    #[tokio::test]
    async fn who_comes_back_is_told_only_what_it_has_not_seen() {
        let watches = Watches::new(9);
        let resume = |seen| watches.listen(watches.admit().unwrap(), &likes(), served(3, true)).resuming(seen);
        let mut same = resume(Edition::parse("3.1"));
        assert_eq!(same.next().now_or_never(), None);
        for other in ["2.1", "3.0", "9.1", "3", "x"] {
            assert_eq!(resume(Edition::parse(other)).next().await, Some(served(3, true)), "{other}");
        }
    }

    #[tokio::test]
    async fn many_listeners_of_a_post_are_one_watch_and_the_last_one_ends_it() {
        let watches = Watches::new(9);
        let listen = || watches.listen(watches.admit().unwrap(), &likes(), served(1, true));
        let (one, two) = (listen(), listen());
        assert_eq!(watches.listened(), [likes()]);
        drop(one);
        assert_eq!(watches.listened().len(), 1);
        drop(two);
        assert_eq!(watches.listened().len(), 0);
    }

    #[tokio::test]
    async fn listeners_are_bounded_and_a_place_is_given_back() {
        let watches = Watches::new(1);
        let place = watches.admit().unwrap();
        assert_eq!(watches.admit().err(), Some(Full));
        drop(watches.listen(place, &likes(), served(1, true)));
        assert!(watches.admit().is_ok());
    }

    #[tokio::test]
    async fn a_stop_ends_every_stream() {
        let (watches, switch) = (Watches::new(9), Switch::new());
        let listener = watches.listen(watches.admit().unwrap(), &likes(), served(1, true));
        let mut counts = Box::pin(listener.counts(switch.stop()));
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
