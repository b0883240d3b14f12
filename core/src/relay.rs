//! The relay: how one process copies stream shards of the table `likes` into the log of changes. A state machine
//! without I/O.
//!
//! 1. **Gather.** Each page of a stream shard becomes entries, each in the partition of its subject.
//! 2. **Cut.** A partition whose last message was acknowledged gets the next one. It has a section for each stream
//!    shard with entries, once the first entry has waited for the linger or there are enough. Once a second it has a
//!    section for every stream shard, which states up to which position and time each is fed.
//! 3. **Send.** One message of a partition is under way at a time, and is sent again until it is acknowledged. So the
//!    back-link of each section was acknowledged in its partition before the section was sent.
//! 4. **Store.** The caller stores how far every partition has acknowledged a stream shard: up to there it is *fed*.
//!
//! Announcements and closings go to every partition, behind what was gathered before. Any number of processes may
//! relay one stream shard: a section is a complete interval of it, whoever sends it, so readers accept each entry
//! once.
//!
//! The caller owns the clock and the clients. It passes one [`Input`] at a time and carries out every [`Effect`].
//! Dropping the machine loses nothing: the next one begins where the stream shard is stored as fed.

mod canary;
mod line;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::changes::{Body, Closed, DeploymentId, Entry, LossNumber, Message, partition_of};
use crate::ids::{Sequence, StreamShard};
use crate::time::{Now, UnixMillis};

pub use canary::Canary;
use line::Line;

/// How far a stream shard is in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fed {
    /// Every record up to here is in every partition; `None` is the beginning.
    pub to: Option<Sequence>,
    /// Everything that was written before this time is in every partition, too.
    pub at: UnixMillis,
}

/// The settings of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// How long an entry waits for others before a message is cut.
    pub linger: Duration,
    /// How many bytes of entries end the wait.
    pub bytes: usize,
    /// How often every stream shard is stated.
    pub state: Duration,
    /// How often the relay stores how far its stream shards are fed.
    pub store: Duration,
    /// How long a page may wait for Kafka before it is dropped and read again.
    pub patience: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(5),
            bytes: 256 * 1024,
            state: Duration::from_secs(1),
            store: Duration::from_secs(5),
            patience: Duration::from_secs(6 * 3600),
        }
    }
}

/// The number by which relay and caller name an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Announcement(pub u64);

/// What the caller tells the relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// This process relays the stream shard, from where it is stored as fed. If it was about to leave the shard, it
    /// stays.
    Begin(StreamShard, Fed),
    /// The next page of a stream shard.
    Page {
        shard: StreamShard,
        /// The entries of the records behind the last page, in order.
        entries: Vec<Entry>,
        /// The last record, even if it became no entry.
        to: Sequence,
        /// When the page was asked for, by the table's clock.
        read: UnixMillis,
    },
    /// The caller has passed everything that was written to the stream shard before this time.
    UpTo(StreamShard, UnixMillis),
    /// The stream shard has ended, and these continue it.
    End(StreamShard, Vec<StreamShard>),
    /// Another process has the stream shard: the caller passes no more of it.
    Leave(StreamShard),
    /// Append this message to every partition, behind everything that was passed before.
    Announce(Announcement, Body),
    /// The stored losses that are open.
    Losses(Vec<LossNumber>),
    /// The message under way in this partition was acknowledged, or its outcome is unknown.
    Sent(u32, Result<(), ()>),
    /// A stored position was acknowledged.
    Stored(StreamShard, Fed),
    /// The time of [`Relay::wake_at`] has come.
    Woke,
}

/// What the relay asks of its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Append the message to the partition, after a pause if it was tried before, and answer with [`Input::Sent`].
    Send {
        partition: u32,
        value: Arc<[u8]>,
        /// How often it was tried before.
        tries: u32,
    },
    /// Store how far the stream shard is fed, unless more is stored, and answer with [`Input::Stored`].
    Store(StreamShard, Fed),
    /// The announcement is in every partition.
    Announced(Announcement),
    /// All of the stream shard and its closing are in the log: store that, and begin with its children.
    Closed(StreamShard, Fed),
    /// The stream shard is left, and nothing of it is under way.
    Left(StreamShard),
    /// Kafka has accepted nothing for too long, and the relay has dropped everything. Begin each stream shard again
    /// where it is stored as fed. Pass no answers to earlier requests, which would be taken for answers to later ones.
    Restart,
}

/// The relay of one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Relay {
    deployment: DeploymentId,
    rules: Rules,
    lines: Vec<Line>,
    feeds: BTreeMap<StreamShard, Feed>,
    losses: Vec<LossNumber>,
    /// How many partitions have not yet acknowledged an announcement.
    announcing: BTreeMap<Announcement, usize>,
    /// When every stream shard is stated next.
    state_at: Duration,
    /// When the relay next checks what to store.
    store_at: Duration,
}

/// A stream shard that this process relays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Feed {
    /// The caller has passed everything up to here.
    taken: Option<Sequence>,
    /// The caller has also passed everything that was written before this time.
    time: UnixMillis,
    /// How far it is stored as fed.
    stored: Fed,
    storing: bool,
    leaving: bool,
    /// How many partitions have not yet acknowledged its closing.
    closing: Option<usize>,
}

impl Relay {
    /// Returns a relay without stream shards, for a log of so many partitions.
    pub fn new(deployment: DeploymentId, partitions: u32, rules: Rules, now: Now) -> Self {
        Self {
            deployment,
            rules,
            lines: (0..partitions.max(1)).map(|_| Line::default()).collect(),
            feeds: BTreeMap::new(),
            losses: Vec::new(),
            announcing: BTreeMap::new(),
            state_at: now.at,
            store_at: now.at,
        }
    }

    /// Takes one input, and adds what follows from it to `effects`.
    pub fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Begin(shard, fed) => self.begin(shard, fed),
            Input::Page { shard, entries, to, read } => self.page(&shard, entries, to, read, now),
            Input::UpTo(shard, time) => {
                if let Some(feed) = self.feeds.get_mut(&shard) {
                    feed.time = feed.time.max(time);
                }
            }
            Input::End(shard, children) => self.close(&shard, children, now),
            Input::Leave(shard) => match self.feeds.get_mut(&shard) {
                Some(feed) => feed.leaving = true,
                // It was never begun, or is closed.
                None => effects.push(Effect::Left(shard)),
            },
            Input::Announce(name, body) => {
                self.announcing.insert(name, self.lines.len());
                let message = Message { read: now.wall, body };
                let value: Arc<[u8]> = message.write(&self.deployment).into();
                for line in &mut self.lines {
                    line.say(line::Said::Announcement(name), Arc::clone(&value));
                }
            }
            Input::Losses(losses) => self.losses = losses,
            Input::Sent(partition, outcome) => self.sent(partition, outcome, effects),
            Input::Stored(shard, fed) => {
                if let Some(feed) = self.feeds.get_mut(&shard) {
                    feed.storing = false;
                    feed.stored = feed.stored.later(fed);
                }
            }
            Input::Woke => {}
        }
        self.go_on(now, effects);
    }

    /// Returns when to pass [`Input::Woke`], by the monotonic clock, if no other input comes first.
    pub fn wake_at(&self) -> Option<Duration> {
        let lines = self.lines.iter().filter_map(|line| line.wake_at(&self.rules));
        let stated = (!self.feeds.is_empty()).then_some(self.state_at);
        lines.chain(stated).min()
    }

    /// Returns roughly how many bytes of entries are not acknowledged.
    pub fn waiting(&self) -> usize {
        self.lines.iter().map(Line::waiting).sum()
    }

    /// Returns the stream shards that this process relays, each with what every partition has acknowledged.
    pub fn feeds(&self) -> impl Iterator<Item = (&StreamShard, Fed)> {
        self.feeds.keys().map(|shard| (shard, self.fed(shard)))
    }

    /// Returns whether everything that the caller passed is acknowledged.
    pub fn is_idle(&self) -> bool {
        self.lines.iter().all(Line::is_idle)
    }

    fn begin(&mut self, shard: StreamShard, fed: Fed) {
        // A stream shard that was to be left may still have entries and a closing gathered or under way. It goes on.
        if let Some(feed) = self.feeds.get_mut(&shard).filter(|feed| feed.taken >= fed.to) {
            feed.leaving = false;
            feed.stored = feed.stored.later(fed);
            return;
        }
        for line in &mut self.lines {
            line.begin(&shard, fed);
        }
        let feed = Feed { taken: fed.to, time: fed.at, stored: fed, storing: false, leaving: false, closing: None };
        self.feeds.insert(shard, feed);
    }

    fn page(&mut self, shard: &StreamShard, entries: Vec<Entry>, to: Sequence, read: UnixMillis, now: Now) {
        let Some(feed) = self.feeds.get_mut(shard) else { return };
        let partitions = u32::try_from(self.lines.len()).expect("a topic has fewer partitions");
        for entry in entries {
            if Some(entry.sequence) > feed.taken {
                let partition = partition_of(&entry.key, partitions);
                self.lines[partition as usize].gather(shard, entry, read, now.at);
            }
        }
        feed.taken = feed.taken.max(Some(to));
    }

    /// Queues the closing of a stream shard behind everything of it.
    fn close(&mut self, shard: &StreamShard, children: Vec<StreamShard>, now: Now) {
        let Some(feed) = self.feeds.get_mut(shard).filter(|feed| feed.closing.is_none()) else { return };
        feed.closing = Some(self.lines.len());
        let closed = Closed { shard: shard.clone(), back: feed.taken, fed: feed.time, children };
        let message = Message { read: now.wall, body: Body::Closed(closed) };
        let value: Arc<[u8]> = message.write(&self.deployment).into();
        for line in &mut self.lines {
            // The closing's back-link is the end of the stream shard, even in a partition without its entries.
            line.say(line::Said::Closing(shard.clone()), Arc::clone(&value));
        }
    }

    fn sent(&mut self, partition: u32, outcome: Result<(), ()>, effects: &mut Vec<Effect>) {
        let Some(line) = self.lines.get_mut(partition as usize) else { return };
        let Ok(()) = outcome else {
            line.failed();
            return;
        };
        match line.acknowledged() {
            Some(line::Said::Announcement(name)) => {
                if let Some(left) = self.announcing.get_mut(&name) {
                    *left -= 1;
                    if *left == 0 {
                        self.announcing.remove(&name);
                        effects.push(Effect::Announced(name));
                    }
                }
            }
            Some(line::Said::Closing(shard)) => {
                let Some(left) = self.feeds.get_mut(&shard).and_then(|feed| feed.closing.as_mut()) else { return };
                *left -= 1;
                if *left == 0 {
                    let feed = self.feeds.remove(&shard).expect("it was there just now");
                    self.lines.iter_mut().for_each(|line| line.end(&shard));
                    effects.push(Effect::Closed(shard, Fed { to: feed.taken, at: feed.time }));
                }
            }
            None => {}
        }
    }

    fn go_on(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let too_long =
            |line: &Line| line.oldest().is_some_and(|oldest| now.at >= oldest.saturating_add(self.rules.patience));
        if self.lines.iter().any(too_long) {
            *self = Self::new(self.deployment.clone(), u32::try_from(self.lines.len()).unwrap_or(1), self.rules, now);
            effects.push(Effect::Restart);
            return;
        }
        if !self.feeds.is_empty() && now.at >= self.state_at {
            self.state_at = now.at.saturating_add(self.rules.state);
            self.lines.iter_mut().for_each(Line::state);
        }
        for (partition, line) in (0..).zip(&mut self.lines) {
            let feeds = &self.feeds;
            let taken = |shard: &StreamShard| feeds.get(shard).map(|feed| Fed { to: feed.taken, at: feed.time });
            let write = |read, sections| {
                let body = Body::Sections { sections, losses: self.losses.clone() };
                Message { read, body }.write(&self.deployment)
            };
            if let Some((value, tries)) = line.next(now, &self.rules, taken, write) {
                effects.push(Effect::Send { partition, value, tries });
            }
        }
        self.store(now, effects);
        self.take_leave(effects);
    }

    /// Returns what every partition has acknowledged of a stream shard.
    fn fed(&self, shard: &StreamShard) -> Fed {
        let fed = self.lines.iter().filter_map(|line| line.fed(shard));
        fed.reduce(Fed::earlier).unwrap_or_default()
    }

    /// Asks to store what was acknowledged: from time to time, and at once for a stream shard that is to be left.
    fn store(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let is_due = now.at >= self.store_at;
        if is_due {
            self.store_at = now.at.saturating_add(self.rules.store);
        }
        let may = |feed: &Feed| !feed.storing && (is_due || feed.leaving);
        let fed: Vec<_> = self
            .feeds
            .iter()
            .filter(|(_, feed)| may(feed))
            .map(|(shard, _)| (shard.clone(), self.fed(shard)))
            .collect();
        for (shard, fed) in fed {
            let feed = self.feeds.get_mut(&shard).expect("its key was listed just now");
            if fed.to > feed.stored.to || fed.at.since(feed.stored.at) >= Fed::TIME_ALONE {
                feed.storing = true;
                effects.push(Effect::Store(shard, fed));
            }
        }
    }

    fn take_leave(&mut self, effects: &mut Vec<Effect>) {
        let done = |shard: &StreamShard, feed: &Feed| {
            feed.leaving
                && !feed.storing
                && feed.stored.to >= feed.taken
                && self.lines.iter().all(|line| !line.has(shard))
        };
        let left: Vec<_> =
            self.feeds.iter().filter(|(shard, feed)| done(shard, feed)).map(|(shard, _)| shard.clone()).collect();
        for shard in left {
            self.feeds.remove(&shard);
            self.lines.iter_mut().for_each(|line| line.end(&shard));
            effects.push(Effect::Left(shard));
        }
    }
}

impl Fed {
    /// How far the time has to rise to be stored without a record. This is rare, as a take-over needs no exact time.
    pub const TIME_ALONE: Duration = Duration::from_secs(30);

    fn later(self, other: Self) -> Self {
        Self { to: self.to.max(other.to), at: self.at.max(other.at) }
    }

    fn earlier(self, other: Self) -> Self {
        Self { to: self.to.min(other.to), at: self.at.min(other.at) }
    }
}
