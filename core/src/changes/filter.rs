//! Decides which entries of the log of changes a reader accepts. The log may have a message twice or lack one, so every
//! reader keeps a [`Filter`] of each partition: it accepts each entry once, knows which losses are open, and up to
//! which time all changes are in ([`Standing`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Body, Closed, Correction, Entry, LossNumber, Message, Opened, Opening, Place, Section};
use crate::ids::{Sequence, StreamShard};
use crate::milestone::Ladder;
use crate::time::UnixMillis;

/// How long after its sender read the stream a message may be appended and still be accepted.
const FRESH: Duration = Duration::from_secs(12 * 3600);
/// How long a filter remembers a closed stream shard and a repaired loss. Longer than `FRESH`, so a message about one
/// of them that is still accepted was appended long before the filter forgets it.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What a reader knows of one partition up to some place in it. It depends on the log before that place alone, so
/// a process that stores a place stores the filter with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Filter {
    shards: BTreeMap<StreamShard, Followed>,
    /// Whether all stream shards that feed the partition are known.
    listed: bool,
    /// The losses that no audit has repaired.
    open: BTreeSet<LossNumber>,
    /// The open losses that this reader found by itself and that no message has named yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unnamed: BTreeSet<LossNumber>,
    /// The losses that are repaired, and when: they never open again.
    repaired: BTreeMap<LossNumber, UnixMillis>,
    /// The place of the last announcement of a loss.
    loss: Option<Place>,
    /// The greatest loss number so far.
    newest: LossNumber,
}

/// What a partition of the log has of one stream shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Followed {
    /// Every entry up to here was accepted, or is part of an announced loss.
    reached: Option<Sequence>,
    /// Every change written to the stream shard before this time was accepted, or is part of an announced loss.
    fed: UnixMillis,
    /// When the message that closed it was appended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<UnixMillis>,
    /// The reader has skipped parts of the log. A section that begins behind `reached` then shows no further loss: the
    /// one of the skipped part is open already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unsure: bool,
}

/// What a message holds for the reader to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An entry that the filter accepts.
    Entry(&'a Entry),
    /// A correction. Whether the counter applies it is for the reader to decide.
    Correction(&'a Correction),
    /// A ladder (the thresholds of milestones) that is in force behind this place.
    Ladder(&'a Ladder),
}

/// Where and when a message was appended, and the loss that it shows.
struct Arrival {
    at: Place,
    appended: UnixMillis,
    hole: Option<LossNumber>,
}

/// What the filter noticed in a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The message shows that earlier ones are missing: a loss with this number is open from here on.
    pub hole: Option<LossNumber>,
    /// The message was appended too long after its sender had read the stream, so the filter skipped it.
    pub stale: bool,
}

/// What is known about the counters of one partition at some place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// Every change that was in the table by this time is before the place. `None` while the reader does not know all
    /// stream shards.
    pub as_of: Option<UnixMillis>,
    /// The last announcement of a loss before the place.
    pub loss: Option<Place>,
    /// The losses that are open at the place.
    pub open: BTreeSet<LossNumber>,
}

impl Filter {
    /// Takes the message at `at`. Calls `each` with every entry, correction and ladder to act on, and the place of the
    /// last announcement of a loss before it.
    pub fn take<'m>(
        &mut self,
        at: Place,
        appended: UnixMillis,
        message: &'m Message,
        mut each: impl FnMut(Item<'m>, Option<Place>),
    ) -> Taken {
        self.forget(appended);
        let of_stream = matches!(message.body, Body::Sections { .. } | Body::Opened(_) | Body::Closed(_));
        if of_stream && appended.since(message.read) > FRESH {
            return Taken { stale: true, ..Taken::default() };
        }
        let mut arrival = Arrival { at, appended, hole: None };
        match &message.body {
            Body::Sections { sections, losses } => {
                for number in losses {
                    self.hear(*number, at);
                }
                for section in sections {
                    self.section(section, &mut arrival, &mut each);
                }
            }
            Body::Opened(opened) => self.opened(opened, message.read, &mut arrival),
            Body::Closed(closed) => self.closing(closed, &mut arrival),
            Body::Lost(lost) => {
                self.hear(lost.number, at);
                if let Some((shard, next)) = &lost.next
                    && let Some(followed) = self.shards.get_mut(shard)
                    && next.before() > followed.reached
                {
                    followed.reached = next.before();
                    self.announce(at);
                }
            }
            Body::Repaired(number) => {
                self.open.remove(number);
                if self.unnamed.remove(number) {
                    self.announce(at);
                }
                self.repaired.entry(*number).or_insert(appended);
                self.newest = self.newest.max(*number);
            }
            Body::Correction(correction) => each(Item::Correction(correction), self.loss),
            Body::Ladder(ladder) => each(Item::Ladder(ladder), self.loss),
        }
        Taken { hole: arrival.hole, stale: false }
    }

    /// Opens a loss and goes on at `at`, since the reader's own place is no longer in the log. Returns the number of
    /// the loss.
    pub fn jump(&mut self, at: Place, now: UnixMillis) -> LossNumber {
        self.listed = false;
        for followed in self.shards.values_mut() {
            followed.unsure = true;
        }
        self.discover(at, now)
    }

    /// Returns what is known about counters that have everything before the filter's place.
    pub fn standing(&self) -> Standing {
        let fed = self.shards.values().filter(|followed| followed.closed.is_none()).map(|followed| followed.fed).min();
        Standing { as_of: fed.filter(|_| self.listed), loss: self.loss, open: self.open.clone() }
    }

    /// Returns the place of the last announcement of a loss.
    pub fn loss(&self) -> Option<Place> {
        self.loss
    }

    /// Returns whether the loss was announced before the filter's place, even if it is repaired since.
    pub fn knows(&self, loss: LossNumber) -> bool {
        self.open.contains(&loss) || self.repaired.contains_key(&loss)
    }

    /// Returns the stream shards that are not closed, each with the position up to which it is in this partition.
    pub fn open_shards(&self) -> impl Iterator<Item = (&StreamShard, Option<Sequence>)> {
        self.shards
            .iter()
            .filter(|(_, followed)| followed.closed.is_none())
            .map(|(id, followed)| (id, followed.reached))
    }

    fn section<'m>(
        &mut self,
        section: &'m Section,
        arrival: &mut Arrival,
        each: &mut impl FnMut(Item<'m>, Option<Place>),
    ) {
        self.reach(&section.shard, section.back, arrival);
        let (loss, is_over) = (self.loss, self.is_over(&section.shard));
        let followed = self.shards.get_mut(&section.shard).expect("a stream shard that was reached is known");
        let is_over = is_over || followed.closed.is_some();
        for entry in &section.entries {
            // Entries of an earlier stream that were unread when it ended are lost, and an audit may have corrected
            // the counters by now. Entries that are missing of a closed shard are lost, too: now they would come after
            // later entries of their rows, in a child.
            if Some(entry.sequence) > followed.reached && !is_over {
                each(Item::Entry(entry), loss);
            }
        }
        followed.reached = followed.reached.max(section.to);
        followed.fed = followed.fed.max(section.fed.unwrap_or_default());
    }

    /// Requires that everything of `shard` up to `back` was accepted, and opens a loss otherwise. A stream shard that
    /// was not announced is a loss, too: the missing announcement may have closed another one, so `listed` ends until
    /// all are announced again.
    fn reach(&mut self, shard: &StreamShard, back: Option<Sequence>, arrival: &mut Arrival) {
        let Some(followed) = self.shards.get_mut(shard) else {
            let unannounced = Followed { reached: back, ..Followed::default() };
            self.shards.insert(shard.clone(), unannounced);
            self.listed = false;
            self.miss(arrival);
            return;
        };
        let missing = back > followed.reached;
        followed.reached = followed.reached.max(back);
        let known = std::mem::take(&mut followed.unsure);
        if missing && !known {
            self.miss(arrival);
        }
    }

    /// Returns whether the stream shard is of an earlier stream than the last one.
    fn is_over(&self, shard: &StreamShard) -> bool {
        // The map is ordered by stream.
        self.shards.last_key_value().is_some_and(|(last, _)| shard.label() < last.label())
    }

    /// Takes an announcement of stream shards, which names all that are open and those that ended lately. A reader
    /// that knew all of them may learn only of shards that were listed late. If it learns anything else, it has missed
    /// a message. It has also missed one if a shard is not named and no relay has fed it for a day: the stream has
    /// deleted it.
    fn opened(&mut self, Opened { shards, ended }: &Opened, read: UnixMillis, arrival: &mut Arrival) {
        let mut unread = false;
        for Opening { shard, at, fed } in shards {
            if let Some(followed) = self.shards.get_mut(shard) {
                followed.fed = followed.fed.max(*fed);
                self.reach(shard, *at, arrival);
            } else {
                unread |= at.is_some();
                self.shards.insert(shard.clone(), Followed { reached: *at, fed: *fed, ..Followed::default() });
            }
        }
        for shard in ended {
            if let Some(followed) = self.shards.get_mut(shard).filter(|followed| followed.closed.is_none()) {
                unread = true;
                followed.closed = Some(arrival.appended);
            }
        }
        let newest = self.shards.last_key_value().map(|(last, _)| last.label().to_owned()).unwrap_or_default();
        for (_, followed) in self.shards.iter_mut().filter(|(shard, _)| shard.label() < newest.as_str()) {
            followed.closed.get_or_insert(arrival.appended);
        }
        // An announcement of an earlier stream says nothing about the last one.
        let lists = shards.iter().any(|opening| opening.shard.label() == newest);
        if lists {
            // A shard that is not named may have begun since the announcement was made. One that was forgotten after
            // its closing counts as not fed.
            let is_named = |shard: &StreamShard| shards.iter().any(|opening| opening.shard == *shard);
            let is_fed = |followed: &Followed| followed.closed.is_some() || read.since(followed.fed) <= REMEMBERED;
            let known = self.shards.len();
            self.shards.retain(|shard, followed| is_fed(followed) || is_named(shard));
            unread |= self.shards.len() < known;
        }
        if unread && self.listed {
            self.miss(arrival);
        }
        self.listed |= lists;
    }

    fn closing(&mut self, closed: &Closed, arrival: &mut Arrival) {
        self.reach(&closed.shard, closed.back, arrival);
        let followed = self.shards.get_mut(&closed.shard).expect("a stream shard that was reached is known");
        followed.fed = followed.fed.max(closed.fed);
        followed.closed.get_or_insert(arrival.appended);
        // The children of a shard of an earlier stream are closed from the start: no process reads them.
        let fed = followed.fed;
        let ended = self.is_over(&closed.shard).then_some(arrival.appended);
        for child in &closed.children {
            self.shards.entry(child.clone()).or_insert(Followed { fed, closed: ended, ..Followed::default() });
        }
    }

    /// Takes an open loss that a message names. The first message that names it announces it, even if this reader has
    /// found it already: readers that jumped and found it at different places agree on the last announcement from here
    /// on.
    fn hear(&mut self, number: LossNumber, at: Place) {
        if self.repaired.contains_key(&number) {
            return;
        }
        let is_new = self.open.insert(number);
        self.newest = self.newest.max(number);
        if self.unnamed.remove(&number) || is_new {
            self.announce(at);
        }
    }

    /// Opens one loss for the message, however many stream shards miss something.
    fn miss(&mut self, arrival: &mut Arrival) {
        if arrival.hole.is_none() {
            arrival.hole = Some(self.discover(arrival.at, arrival.appended));
        }
    }

    /// Opens a loss that the log itself shows. Every reader gives it the same number, which is greater than all that
    /// the partition knows. So it never equals the number of another loss that the partition has heard of.
    fn discover(&mut self, at: Place, appended: UnixMillis) -> LossNumber {
        let number = LossNumber(appended.0.max(self.newest.0.saturating_add(1)));
        self.newest = number;
        self.open.insert(number);
        self.unnamed.insert(number);
        self.announce(at);
        number
    }

    fn announce(&mut self, at: Place) {
        self.loss = self.loss.max(Some(at));
    }

    fn forget(&mut self, now: UnixMillis) {
        let remembered = |at: &UnixMillis| now.since(*at) <= REMEMBERED;
        self.shards.retain(|_, followed| followed.closed.as_ref().is_none_or(remembered));
        self.repaired.retain(|_, at| remembered(at));
    }
}

impl Standing {
    /// Returns whether a counter that was read after this standing may be called exact, as far as losses go. `gap` is
    /// the announcement that the counter carries.
    pub fn covers(&self, gap: Option<Place>) -> bool {
        self.open.is_empty() && self.as_of.is_some() && gap <= self.loss
    }
}
