//! The load of the local stack: users who like, retweet, reply, view and use hashtags through a real Kafka producer.
//!
//! Every user belongs to one lane (a writer that has one event under way at a time), and so does every reply and every
//! post with a hashtag. A lane writes its next event only once the one before is acknowledged, so the order of one
//! member's events is the order in which they are drawn. Where the outcome of a write is unknown the lane writes the
//! same event again until it is acknowledged: an event of a set that is in the log twice changes nothing, and nothing
//! newer of that member can stand between the two.
//!
//! A view is written once: in the log twice it counts twice. The producer is idempotent, so what it repeats by itself
//! is in the log once; but where it gives a record up, that record may be in the log or not, and the ledger has its
//! amount as open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tally_core::backoff::Backoff;
use tally_core::definitions::Direction;
use tally_core::event::{Said, encode};
use tally_core::ports::Producer;
use tally_core::ports::log::Outgoing;
use tally_service::{Chance, Stop, Stopped, Task};
use tokio::time::Instant;

use crate::args::LoadArgs;
use crate::counters::Counted;
use crate::engine::TOPIC;
use crate::ledger::{Deed, Event};
use crate::local::Local;
use crate::names::{Member, Names};

/// Between two tries of the same event.
const AGAIN: Backoff = Backoff { base: Duration::from_millis(20), cap: Duration::from_secs(1) };

/// Writes events, and records them in the ledger once they are acknowledged. Load and probes write through it.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) local: Arc<Local>,
    pub(crate) producer: Arc<dyn Producer>,
    pub(crate) chance: Chance,
}

impl Writer {
    /// Writes one event: of a set again and again until it is acknowledged, of a sum once. An event of a counter that the
    /// deployment has not is left out.
    pub(crate) async fn write(&self, event: Event, stop: &Stop) -> Result<(), Stopped> {
        let Local { ledger, clock, .. } = &*self.local;
        let Some(value) = self.value(event) else { return Ok(()) };
        let key = ledger.names.subjects(event.counted)[event.subject].as_str().as_bytes();
        let partition = self.partition(event);
        let record = Outgoing { topic: TOPIC, partition, key: Some(key), value: Some(&value), headers: &[] };
        let mut tries = 0;
        loop {
            let Err(fault) = stop.unless_requested(self.producer.send(record)).await? else { break };
            if let Deed::View { amount } = event.deed {
                tracing::warn!(error = %fault, "a view was not acknowledged: it may count or not");
                ledger.views.unknown(event.subject, amount);
                return Ok(());
            }
            tracing::warn!(error = %fault, "an event was not acknowledged: it is written again");
            let pause = AGAIN.wait(tries, self.chance.fraction());
            stop.unless_requested(clock.sleep(pause)).await?;
            tries += 1;
        }
        ledger.acknowledged(event);
        Ok(())
    }

    /// Where a view goes; `None` leaves it to the key, as all else.
    fn partition(&self, event: Event) -> Option<u32> {
        let Local { ledger, counters, sums, clock, .. } = &*self.local;
        let Deed::View { .. } = event.deed else { return None };
        let counter = counters.id(Counted::Views, &ledger.names.posts[event.subject])?;
        sums.partition(TOPIC, &counter, clock.reading().at, self.chance.token())
    }

    fn value(&self, event: Event) -> Option<Vec<u8>> {
        let Local { ledger, counters, clock, .. } = &*self.local;
        let Event { counted, subject, region, deed } = event;
        let (names, definition) = (&ledger.names, counters.ours.get(&counted)?);
        let (subject, region) = (names.subjects(counted)[subject].as_str(), &names.regions[region]);
        match deed {
            Deed::Member { member, direction } => {
                let said = Said::Member(&names.member(counted, member));
                encode(definition, subject, direction, said, Some(region), clock.now())
            }
            Deed::View { amount } => {
                encode(definition, subject, Direction::Add, Said::Amount(amount), None, clock.now())
            }
        }
    }
}

/// Writes events at a rate until its time is over.
pub(crate) struct Load {
    pub(crate) writer: Writer,
    pub(crate) config: LoadArgs,
    pub(crate) seed: u64,
    pub(crate) until: Option<Instant>,
}

impl Task for Load {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let pace = Pace::new(self.config.rate);
        let names = &self.writer.local.ledger.names;
        let lanes = (0..names.lanes()).map(|lane| {
            let draw = Draw::new(self.config, self.seed, lane, names);
            Lane { load: &self, pace: &pace, draw }.run(&stop)
        });
        join_all(lanes).await.into_iter().collect::<Result<(), Stopped>>()?;
        Ok(())
    }
}

/// Completes at this moment; never if there is none.
pub(crate) async fn over(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// A part of the users, and what they say one after the other.
struct Lane<'a> {
    load: &'a Load,
    pace: &'a Pace,
    draw: Draw,
}

impl Lane<'_> {
    async fn run(mut self, stop: &Stop) -> Result<(), Stopped> {
        let writer = &self.load.writer;
        while self.turn(stop).await? {
            writer.write(self.draw.event(), stop).await?;
        }
        Ok(())
    }

    /// Waits for the next turn; `false` once the time is over.
    async fn turn(&self, stop: &Stop) -> Result<bool, Stopped> {
        let Load { writer, until, .. } = self.load;
        let turn = async {
            writer.local.going().await;
            tokio::time::sleep_until(self.pace.next()).await;
        };
        stop.unless_requested(async {
            tokio::select! {
                biased;
                () = over(*until) => false,
                () = turn => true,
            }
        })
        .await
    }
}

/// Shares of the events that are retweets, replies, views and uses of hashtags; the rest, seven tenths, are likes and unlikes.
/// On a real site views are most of the events. Here each of them moves a cell that is there already, while likes make the
/// rows that a run is about.
const RETWEETS: f64 = 0.10;
const REPLIES: f64 = 0.06;
const VIEWS: f64 = 0.08;
const USES: f64 = 0.06;
/// The greatest amount of one view: a client that gathers views before it says them.
const MOST_VIEWS: u32 = 25;
/// Share of the events of a user that come from another region than the user's own.
const AWAY: f64 = 0.1;

/// Members of one counter that a lane has made and that stand, at most: what is beyond is taken back, so that a load can run
/// for days.
const LIVE: usize = 32;

/// The events of one lane: those of every `lanes`th user, and of the replies and posts that the lane makes.
pub(super) struct Draw {
    config: LoadArgs,
    lane: u16,
    lanes: u16,
    /// Where what it makes comes from.
    region: usize,
    /// How many hashtags and regions there are.
    hashtags: usize,
    regions: usize,
    /// The number of the next member that it makes.
    next: u32,
    /// What it has made of a counter and not taken back, in order: number and subject.
    live: BTreeMap<Counted, Vec<(u32, usize)>>,
    random: StdRng,
}

impl Draw {
    pub(super) fn new(config: LoadArgs, seed: u64, lane: u16, names: &Names) -> Self {
        let (lanes, hashtags, regions) = (names.lanes(), names.subjects(Counted::Uses).len(), names.regions.len());
        let random = StdRng::seed_from_u64(seed ^ u64::from(lane).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let region = usize::from(lane) % regions;
        Self { config, lane, lanes, region, hashtags, regions, next: 0, live: BTreeMap::new(), random }
    }

    /// The next event. It is written before another one is drawn.
    pub(super) fn event(&mut self) -> Event {
        let LoadArgs { posts, hot_share, unlike_ratio, .. } = self.config;
        let post = if self.random.random_bool(hot_share) { 0 } else { self.random.random_range(0..posts) } as usize;
        let kind: f64 = self.random.random();
        if kind < VIEWS {
            let deed = Deed::View { amount: self.random.random_range(1..=MOST_VIEWS) };
            return Event { counted: Counted::Views, subject: post, region: self.region, deed };
        }
        let direction = if self.random.random_bool(unlike_ratio) { Direction::Remove } else { Direction::Add };
        if kind < VIEWS + REPLIES {
            return self.made(Counted::Replies, post, direction);
        }
        if kind < VIEWS + REPLIES + USES {
            let hashtag = self.hashtag();
            return self.made(Counted::Uses, hashtag, direction);
        }
        let user = self.user();
        let counted = if kind < VIEWS + REPLIES + USES + RETWEETS { Counted::Retweets } else { Counted::Likes };
        let deed = Deed::Member { member: Member::User(user), direction };
        Event { counted, subject: post, region: self.region(user), deed }
    }

    fn user(&mut self) -> u32 {
        let (lane, lanes) = (u32::from(self.lane), u32::from(self.lanes));
        let mine = (self.config.users - lane).div_ceil(lanes);
        lane + lanes * self.random.random_range(0..mine)
    }

    /// Where a user is: mostly at home.
    fn region(&mut self, user: u32) -> usize {
        let away = if self.random.random_bool(AWAY) { self.random.random_range(0..self.regions) } else { 0 };
        (user as usize + away) % self.regions
    }

    /// A hashtag, the first ones more often.
    fn hashtag(&mut self) -> usize {
        let among = self.random.random_range(1..=self.hashtags);
        self.random.random_range(0..among)
    }

    /// A new member of `subject`, or one of those that stand taken back: always one where as many stand as may.
    fn made(&mut self, counted: Counted, subject: usize, direction: Direction) -> Event {
        let live = self.live.entry(counted).or_default();
        let back = !live.is_empty() && (direction == Direction::Remove || live.len() >= LIVE);
        let (direction, (nth, subject)) = if back {
            (Direction::Remove, live.remove(self.random.random_range(0..live.len())))
        } else {
            live.push((self.next, subject));
            self.next += 1;
            (Direction::Add, (self.next - 1, subject))
        };
        let deed = Deed::Member { member: Member::Made { lane: self.lane, nth }, direction };
        Event { counted, subject, region: self.region, deed }
    }
}

/// How far behind the schedule may fall before what was missed is not made up for.
const SLACK: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Pace {
    step: Duration,
    next: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(rate: u32) -> Self {
        Self { step: Duration::from_secs(1) / rate.max(1), next: Mutex::new(Instant::now()) }
    }

    /// Takes the next turn; when it is.
    pub(super) fn next(&self) -> Instant {
        let mut next = self.next.lock();
        let now = Instant::now();
        let turn = (*next).max(now.checked_sub(SLACK).unwrap_or(now));
        *next = turn + self.step;
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CONFIG: LoadArgs = LoadArgs { rate: 1, posts: 10, users: 7, unlike_ratio: 0.3, hot_share: 0.1 };

    /// Events of the second of three lanes.
    fn events(seed: u64, count: usize) -> Vec<Event> {
        let mut draw = Draw { lanes: 3, ..Draw::new(CONFIG, seed, 1, &Names::new(10, 7, 0, None)) };
        std::iter::repeat_with(|| draw.event()).take(count).collect()
    }

    #[test]
    fn likes_are_most_of_the_events_and_every_counter_and_region_is_drawn_with_a_lanes_own_users() {
        let drawn = events(1, 10_000);
        let share = |counted| drawn.iter().filter(|event| event.counted == counted).count() / 100;
        assert!((68..=72).contains(&share(Counted::Likes)), "{}", share(Counted::Likes));
        assert!(Counted::ALL.into_iter().all(|counted| share(counted) >= 5));
        let names = Names::new(10, 7, 0, None);
        for counted in Counted::ALL {
            let subjects = drawn.iter().filter(|event| event.counted == counted).map(|event| event.subject);
            let subjects: BTreeSet<usize> = subjects.collect();
            let count = names.subjects(counted).len();
            assert!(subjects.len() > 3 && subjects.iter().all(|subject| *subject < count), "{counted:?}: {subjects:?}");
        }
        let regions: BTreeSet<usize> = drawn.iter().map(|event| event.region).collect();
        assert!(regions.into_iter().eq(0..names.regions.len()));
        let user = |event: &Event| match event.deed {
            Deed::Member { member: Member::User(user), .. } => Some(user),
            _ => None,
        };
        assert_eq!(drawn.iter().filter_map(user).collect::<BTreeSet<_>>(), BTreeSet::from([1, 4]));
    }

    #[test]
    fn a_seed_draws_the_same_events_again() {
        assert_eq!(events(1, 500), events(1, 500));
        assert_ne!(events(1, 500), events(2, 500));
    }

    #[test]
    fn what_a_lane_makes_is_new_when_it_is_said_and_stands_when_it_is_taken_back() {
        let drawn = events(3, 20_000);
        for counted in [Counted::Replies, Counted::Uses] {
            let (mut said, mut live) = (BTreeSet::new(), BTreeSet::new());
            for event in drawn.iter().filter(|event| event.counted == counted) {
                let Deed::Member { member: made @ Member::Made { lane: 1, .. }, direction } = event.deed else {
                    panic!("{event:?}")
                };
                match direction {
                    Direction::Add => assert!(said.insert(made) && live.insert((made, event.subject))),
                    Direction::Remove => assert!(live.remove(&(made, event.subject))),
                }
                assert!(live.len() <= LIVE);
            }
            assert!(said.len() > LIVE, "{}", said.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn turns_are_evenly_spaced_and_a_long_pause_is_not_made_up_for() {
        let (pace, start) = (Pace::new(1_000), Instant::now());
        let due: Vec<u128> = (0..3).map(|_| (pace.next() - start).as_millis()).collect();
        assert_eq!(due, [0, 1, 2]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(pace.next(), start + Duration::from_secs(60) - SLACK);
    }
}
