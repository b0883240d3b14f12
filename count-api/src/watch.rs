//! Live counts for `routes/stream.rs`. A task ([`Watches::follow`]) reads each counter that has listeners four times a second,
//! however many listen. Each listener gets the newest count, and its answer is made when it is sent. A slow listener
//! misses counts in between: the newer one replaces the older one, and nothing is queued.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use parking_lot::Mutex;
use tally_core::Map;
use tally_core::ids::CounterId;
use tally_service::metrics::OneMore;
use tally_service::{Clock, Stop};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::answer::{Answer, Edition};
use crate::error::{Problem, Result};
use crate::metrics::{LISTENERS, WATCHED_COUNTERS};
use crate::read::{Entries, Number, Reader, Standings};

/// The wait between two reads of the counters with listeners.
pub const EVERY: Duration = Duration::from_millis(250);

/// How many counters one read has.
const TOGETHER: usize = 100;

/// How many such reads run at once.
const AT_ONCE: usize = 8;

/// The counters with listeners. Clones share them.
#[derive(Clone)]
pub struct Watches {
    counters: Arc<Mutex<Map<CounterId, watch::Sender<Live>>>>,
    permits: Arc<Semaphore>,
    standings: Standings,
}

/// The newest numbers of a counter, and the edition of its answer when it was last made.
#[derive(Clone, Debug)]
struct Live {
    numbers: Entries<Number>,
    edition: Edition,
}

impl Watches {
    /// Allows clients to listen to this many posts; one that several clients listen to counts once for each.
    pub fn new(posts: usize, standings: Standings) -> Self {
        Self { counters: Arc::default(), permits: Arc::new(Semaphore::new(posts)), standings }
    }

    /// Admits one client that listens to so many posts or hashtags. Each takes a place, since it may be read for this
    /// client alone, with as many counters as the client listens to there. It is called before anything is read for the
    /// client.
    pub fn admit(&self, posts: usize) -> Result<ListenerPermit> {
        let posts = u32::try_from(posts).map_err(|_| Problem::TooManyListeners)?;
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(posts).map_err(|_| Problem::TooManyListeners)?;
        Ok(ListenerPermit { _place: Arc::new((permit, LISTENERS.one_more(&[]))) })
    }

    /// Listens to `id`, for which `numbers` were just read.
    pub fn listen(&self, permit: ListenerPermit, id: &CounterId, numbers: Entries<Number>) -> Listener {
        let mut counters = self.counters.lock();
        let live = match counters.get(id) {
            Some(sender) => {
                self.offer(id, sender, numbers);
                sender.subscribe()
            }
            None => {
                let edition = self.edition(id, &numbers);
                let sender = watch::Sender::new(Live { numbers, edition });
                let live = sender.subscribe();
                counters.insert(id.clone(), sender);
                live
            }
        };
        Listener { id: id.clone(), live, standings: self.standings.clone(), seen: None, _permit: permit }
    }

    /// Returns the counters that still have listeners, and forgets the others.
    fn listened(&self) -> Vec<CounterId> {
        let mut counters = self.counters.lock();
        counters.retain(|_, sender| sender.receiver_count() > 0);
        if counters.len() < counters.capacity() / 4 {
            counters.shrink_to_fit();
        }
        counters.keys().cloned().collect()
    }

    fn publish(&self, id: &CounterId, numbers: Entries<Number>) {
        if let Some(sender) = self.counters.lock().get(id) {
            self.offer(id, sender, numbers);
        }
    }

    /// Keeps those of `numbers` that replace older ones, and wakes the listeners if the edition has changed.
    fn offer(&self, id: &CounterId, sender: &watch::Sender<Live>, numbers: Entries<Number>) {
        sender.send_if_modified(|live| {
            live.numbers.renew(numbers);
            let edition = self.edition(id, &live.numbers);
            std::mem::replace(&mut live.edition, edition) != edition
        });
    }

    /// Wakes the listeners of a counter that could not be read, if its edition has changed with time.
    fn judge_again(&self, id: &CounterId) {
        if let Some(sender) = self.counters.lock().get(id) {
            let held = sender.borrow().numbers.clone();
            self.offer(id, sender, held);
        }
    }

    /// Reads the counters with listeners, for a task.
    pub(crate) async fn follow(self, reader: Reader, clock: Clock, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(clock.sleep(EVERY)).await.is_ok() {
            let counters = self.listened();
            WATCHED_COUNTERS.gauge(&[]).set(u32::try_from(counters.len()).unwrap_or(u32::MAX));
            let (watches, reader, reads) = (&self, &reader, stream::iter(counters.chunks(TOGETHER)));
            reads
                .for_each_concurrent(AT_ONCE, |counters| async move {
                    // A failure is not sent. The next look makes up for it, and until then the count gets older.
                    for (id, read) in counters.iter().zip(reader.read(counters).await) {
                        match read {
                            Ok(numbers) => watches.publish(id, numbers),
                            Err(_) => watches.judge_again(id),
                        }
                    }
                })
                .await;
        }
        Ok(())
    }

    fn edition(&self, id: &CounterId, numbers: &Entries<Number>) -> Edition {
        Edition::of(&self.standings.answer(id, numbers))
    }
}

/// The permission of one client to listen. Dropping its last clone gives the places back.
#[derive(Clone)]
pub struct ListenerPermit {
    _place: Arc<(OwnedSemaphorePermit, OneMore)>,
}

/// A client that listens to one counter.
pub struct Listener {
    id: CounterId,
    live: watch::Receiver<Live>,
    standings: Standings,
    seen: Option<Edition>,
    _permit: ListenerPermit,
}

impl Listener {
    /// Leaves out the count if its edition is `seen`, the last one that the client had before it reconnected.
    #[must_use]
    pub fn resuming(self, seen: Option<Edition>) -> Self {
        Self { seen, ..self }
    }

    /// Returns the current count, unless it was seen, and each change.
    pub fn counts(self) -> impl stream::Stream<Item = Answer> + Send {
        stream::unfold(self, |mut listener| async move {
            let answer = listener.next().await?;
            Some((answer, listener))
        })
    }

    /// Returns the next edition. The answer is made here and not when the number arrived: the client may be slow, or
    /// the process may have been stopped meanwhile.
    pub async fn next(&mut self) -> Option<Answer> {
        loop {
            let answer = {
                let live = self.live.borrow_and_update();
                self.standings.answer(&self.id, &live.numbers)
            };
            let edition = Edition::of(&answer);
            if self.seen != Some(edition) {
                self.seen = Some(edition);
                return Some(answer);
            }
            self.live.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tally_core::cached::{StandingAt, Value};
    use tally_core::changes::{LossNumber, Place, Standing};
    use tally_core::served::Served;
    use tally_core::time::UnixMillis;
    use tally_service::Clock;

    use super::*;
    use crate::read::{Beside, Known};

    const WITHIN: Duration = Duration::from_secs(10);

    fn standing(at: u64, open: &[u64]) -> StandingAt {
        let open = open.iter().map(|number| LossNumber(*number)).collect();
        StandingAt { at: Place::from_stored(at), standing: Standing { as_of: Some(UnixMillis(0)), loss: None, open } }
    }

    /// A number of this version, read beside a standing at this place.
    fn number(version: u64, beside: u64) -> Entries<Number> {
        let value = Value { version: Place::from_stored(version), ..Value::default() };
        let standing = Some(Arc::new(standing(beside, &[])));
        Number::new(value, Beside { standing, as_of: Some(UnixMillis(0)) }, UnixMillis(0)).into()
    }

    fn answer(version: u64, exact: bool, fresh: bool) -> Answer {
        Answer { served: Served { version, exact, ..Served::default() }, fresh, summed: None }
    }

    fn likes() -> CounterId {
        CounterId::likes("p".parse().unwrap())
    }

    /// Watches with room for `listeners`, and the sender of their standings.
    fn watches(listeners: usize) -> (Watches, watch::Sender<Arc<Known>>) {
        let known = watch::Sender::new(Arc::new(Known::of_one(standing(1, &[]))));
        let standings = Standings::of(&known, Clock::starting_at(UnixMillis(0)), WITHIN);
        (Watches::new(listeners, standings), known)
    }

    fn listen(watches: &Watches, number: Entries<Number>) -> Listener {
        watches.listen(watches.admit(1).unwrap(), &likes(), number)
    }

    #[tokio::test]
    async fn a_listener_gets_the_count_now_and_then_only_what_is_new() {
        let (watches, _known) = watches(9);
        let mut listener = listen(&watches, number(3, 1));
        assert_eq!(listener.next().await, Some(answer(3, true, true)));
        watches.publish(&likes(), number(3, 2));
        watches.publish(&likes(), number(2, 3));
        assert_eq!(listener.next().now_or_never(), None, "the same edition, and a value that replaces nothing");
        watches.publish(&likes(), number(4, 2));
        assert_eq!(listener.next().await, Some(answer(4, true, true)));
        watches.publish(&likes(), number(5, 2));
        watches.publish(&likes(), number(6, 2));
        assert_eq!(listener.next().await, Some(answer(6, true, true)), "what it was slow to read was replaced");
    }

    #[tokio::test]
    async fn a_listener_is_told_of_an_open_loss_although_the_version_stays() {
        let (watches, known) = watches(9);
        let mut listener = listen(&watches, number(3, 1));
        assert_eq!(listener.next().await, Some(answer(3, true, true)));
        known.send_replace(Arc::new(Known::of_one(standing(2, &[7]))));
        watches.publish(&likes(), number(3, 1));
        assert_eq!(listener.next().await, Some(answer(3, false, true)));
        known.send_replace(Arc::new(Known::of_one(standing(3, &[]))));
        watches.publish(&likes(), number(3, 3));
        assert_eq!(listener.next().await, Some(answer(3, true, true)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_is_told_once_that_its_count_is_not_fresh_any_more_also_where_nothing_can_be_read() {
        let (watches, _known) = watches(9);
        let mut listener = listen(&watches, number(3, 1));
        assert_eq!(listener.next().await, Some(answer(3, true, true)));
        tokio::time::advance(WITHIN).await;
        watches.judge_again(&likes());
        assert_eq!(listener.next().now_or_never(), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        watches.judge_again(&likes());
        assert_eq!(listener.next().now_or_never(), Some(Some(answer(3, true, false))));
        tokio::time::advance(WITHIN).await;
        watches.publish(&likes(), number(3, 1));
        assert_eq!(listener.next().now_or_never(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_judged_when_it_is_sent_and_not_when_it_was_published() {
        let (watches, known) = watches(9);
        let mut listener = listen(&watches, number(3, 1));
        watches.publish(&likes(), number(4, 1));
        known.send_replace(Arc::new(Known::of_one(standing(2, &[7]))));
        tokio::time::advance(WITHIN + Duration::from_secs(1)).await;
        assert_eq!(listener.next().await, Some(answer(4, false, false)));
    }

    #[tokio::test]
    async fn many_listeners_of_a_post_are_one_watch_and_the_last_one_ends_it() {
        let (watches, _known) = watches(9);
        let (one, two) = (listen(&watches, number(1, 1)), listen(&watches, number(1, 1)));
        assert_eq!(watches.listened(), [likes()]);
        drop(one);
        assert_eq!(watches.listened().len(), 1);
        drop(two);
        assert_eq!(watches.listened().len(), 0);
    }
}
