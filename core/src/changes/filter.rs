//! What every reader of a partition of the log keeps: which entries it accepts, what is lost, and up to when all is in.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Body, Closed, Correction, Entry, LossNumber, Message, Opened, Opening, Place, Section};
use crate::ids::{Sequence, StreamShard};
use crate::milestone::Ladder;
use crate::time::UnixMillis;

/// How long after its page was read a message may be appended and still be taken.
const FRESH: Duration = Duration::from_secs(12 * 3600);
/// How long a stream shard is remembered after it was closed, and a loss after it was repaired. A message about it that is
/// still taken was appended long before.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What a reader knows of one partition of the log behind some place in it: a function of the log before that place. Whoever
/// stores a place stores the filter with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Filter {
    shards: BTreeMap<StreamShard, Followed>,
    /// Whether all stream shards that feed the partition are known.
    listed: bool,
    /// Losses that no audit has repaired.
    open: BTreeSet<LossNumber>,
    /// Those of them that this reader found by itself, and that no message has named yet.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unnamed: BTreeSet<LossNumber>,
    /// When losses were repaired: they never open again.
    repaired: BTreeMap<LossNumber, UnixMillis>,
    /// The last announcement of a loss.
    loss: Option<Place>,
    /// The greatest number of a loss so far.
    newest: LossNumber,
}

/// A stream shard as a partition of the log has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Followed {
    /// Every entry up to here was accepted, or is part of an announced loss.
    reached: Option<Sequence>,
    /// Everything written before this time was.
    fed: UnixMillis,
    /// When its closing was appended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    closed: Option<UnixMillis>,
    /// Parts of the log were not read: the next section may begin behind what was reached, as the loss says already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unsure: bool,
}

/// What a reader has to do something about, in the order of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An entry that is accepted.
    Entry(&'a Entry),
    /// A correction, whether or not its counter takes it.
    Correction(&'a Correction),
    /// A ladder in force behind this place.
    Ladder(&'a Ladder),
}

/// Where a message stands, and the loss that it shows.
struct Arrival {
    at: Place,
    appended: UnixMillis,
    hole: Option<LossNumber>,
}

/// What became of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The message shows a hole in the log, which is a loss of this number from here on.
    pub hole: Option<LossNumber>,
    /// It was appended too long after its page was read, and is passed over.
    pub stale: bool,
}

/// What can be said of the counters of one partition at some place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Standing {
    /// Every change that was in the table by then is before the place; `None` while not all stream shards are known.
    pub as_of: Option<UnixMillis>,
    /// The last announcement of a loss before the place.
    pub loss: Option<Place>,
    /// The losses that were open there.
    pub open: BTreeSet<LossNumber>,
}

impl Filter {
    /// Takes the message at `at`. `each` is given what it holds for the reader, with the last announcement of a loss before it.
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

    /// The reader's place is not in the log any more, and it goes on at `at`: a loss of this number.
    pub fn jump(&mut self, at: Place, now: UnixMillis) -> LossNumber {
        self.listed = false;
        for followed in self.shards.values_mut() {
            followed.unsure = true;
        }
        self.discover(at, now)
    }

    /// What can be said of counters that have everything before the filter's place.
    pub fn standing(&self) -> Standing {
        let fed = self.shards.values().filter(|followed| followed.closed.is_none()).map(|followed| followed.fed).min();
        Standing { as_of: fed.filter(|_| self.listed), loss: self.loss, open: self.open.clone() }
    }

    /// The last announcement of a loss.
    pub fn loss(&self) -> Option<Place> {
        self.loss
    }

    /// Whether the loss was announced before the filter's place, also if it is repaired since.
    pub fn knows(&self, loss: LossNumber) -> bool {
        self.open.contains(&loss) || self.repaired.contains_key(&loss)
    }

    /// The stream shards that are not closed, and up to where each is in this partition.
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
            // What an earlier stream had unread is lost, and an audit may have set the counters right by now. So is what is
            // missing of a shard that was closed: an entry of it would come behind later ones of its row, in a child.
            if Some(entry.sequence) > followed.reached && !is_over {
                each(Item::Entry(entry), loss);
            }
        }
        followed.reached = followed.reached.max(section.to);
        followed.fed = followed.fed.max(section.fed.unwrap_or_default());
    }

    /// Everything up to `back` has to be in: what is missing is a hole. So is a stream shard that was not announced: what
    /// announced it may have closed another one, so all have to be announced again.
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

    /// Whether the stream shard is of an earlier stream than the last one.
    fn is_over(&self, shard: &StreamShard) -> bool {
        // Stream shards are in the order of their streams.
        self.shards.last_key_value().is_some_and(|(last, _)| shard.label() < last.label())
    }

    /// An announcement of stream shards names all that are open, and those that ended lately. A reader that knew all of them
    /// learns nothing by it but of some that were listed late: what it knows otherwise is a message that it has not read. So is
    /// a stream shard that nobody has read for a day and that is not named: the service has it no more.
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
        // One of an earlier stream says nothing of the last.
        let lists = shards.iter().any(|opening| opening.shard.label() == newest);
        if lists {
            // One that is not named may have begun since. It was not fed for a day if it was forgotten after its closing.
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
        // Nobody reads on where another stream was announced meanwhile.
        let fed = followed.fed;
        let ended = self.is_over(&closed.shard).then_some(arrival.appended);
        for child in &closed.children {
            self.shards.entry(child.clone()).or_insert(Followed { fed, closed: ended, ..Followed::default() });
        }
    }

    /// A message names an open loss. The first time that is an announcement, also of one that this reader has found already:
    /// readers that found it at different places, since they jumped, agree on the last announcement from here on.
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

    /// The message shows a hole: one loss, however many stream shards miss something.
    fn miss(&mut self, arrival: &mut Arrival) {
        if arrival.hole.is_none() {
            arrival.hole = Some(self.discover(arrival.at, arrival.appended));
        }
    }

    /// Opens a loss that the log itself shows. Every reader gives it the same number: greater than all that the partition
    /// knows, so it is never the number of another one that the partition has heard of.
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
    /// Whether a counter read after this standing may be called exact, as far as losses go.
    pub fn covers(&self, gap: Option<Place>) -> bool {
        self.open.is_empty() && self.as_of.is_some() && gap <= self.loss
    }
}
