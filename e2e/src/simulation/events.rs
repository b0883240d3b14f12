//! The events of a schedule: their users and posts, the counters defined in addition to likes, and every record of the log.
//!
//! Events of other counters use their own random numbers, so that they do not change the rest of the schedule.

use std::collections::{BTreeMap, BTreeSet};

use tally_adapters::memory::log::Broker;
use tally_core::definitions::{Definition, Definitions, Direction, Entry, MemberField};
use tally_core::event::{MAX_AMOUNT, Said, encode, partition_of};
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_service::Chance;

use crate::simulation::Draws;

/// The topic of likes.
pub(crate) const TOPIC: &str = "likes";
/// The topic of dead letters.
pub(crate) const LETTERS: &str = "likes.dlq";

/// Records that are not events, per thousand.
const POISONED: u64 = 10;

/// Values that no decoder accepts.
const POISON: [&[u8]; 6] = [
    b"",
    b"nonsense",
    b"[1,2]",
    b"{\"post_id\":\"p-1\",\"action\":\"like\"}",
    b"{\"post_id\":\"p-1\",\"user_id\":\"u-1\",\"action\":\"love\"}",
    b"\xff\xfe",
];

/// Values that are not events although their action is defined, or may be.
const POISON_OF_COUNTERS: [&[u8]; 4] = [
    b"{\"post_id\":\"p-1\",\"action\":\"view\",\"n\":0}",
    b"{\"post_id\":\"p-1\",\"action\":\"raise\",\"n\":1.5}",
    b"{\"post_id\":\"p-1\",\"action\":\"reply\",\"user_id\":\"u-1\"}",
    b"{\"post_id\":\"p-1\",\"action\":\"unview\"}",
];

/// The effect of an event on its counter.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Member { counter: CounterId, member: UserId, present: bool },
    Amount { counter: CounterId, n: i64 },
}

/// One record of a partition.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The effect; `None` if the record is not an event.
    pub(crate) effect: Option<Effect>,
    /// Whether it was produced before its action was defined.
    pub(crate) early: bool,
    /// When it was produced.
    pub(crate) at: UnixMillis,
}

/// Adds the region to an encoded event.
fn from(region: Option<&str>, mut value: Vec<u8>) -> Vec<u8> {
    if let Some(region) = region
        && value.pop_if(|last| *last == b'}').is_some()
    {
        value.extend_from_slice(format!(",\"region\":\"{region}\"}}").as_bytes());
    }
    value
}

/// The partition that a producer with another partitioner chooses for this key.
fn stray(key: &PostId, partitions: u32) -> u32 {
    (partition_of(key.as_bytes(), partitions) + 1) % partitions
}

/// All records, by partition and offset.
#[derive(Debug, Default)]
pub(crate) struct Events {
    said: BTreeMap<u32, Vec<Record>>,
}

impl Events {
    /// Produces another event about likes, or now and then a record that is not an event. With `strays`, it comes from a
    /// producer with another partitioner, for this number of partitions.
    pub(crate) fn produce(
        &mut self,
        broker: &Broker,
        chance: &Chance,
        crowd: Crowd,
        (region, strays): (Option<&str>, Option<u32>),
        at: UnixMillis,
    ) {
        let (post, user, direction) = crowd.draw(chance);
        let poison = chance.below(1_000) < POISONED;
        let like = encode(&Definition::likes(), &post, direction, Said::Member(&user), None, at);
        let value = from(region, like.expect("likes have both actions"));
        let value = if poison { chance.pick(&POISON).to_vec() } else { value };
        let (counter, present) = (CounterId::likes(post), direction == Direction::Add);
        let key = counter.post.clone();
        let effect = (!poison).then_some(Effect::Member { counter, member: user, present });
        let partition = strays.map(|partitions| stray(&key, partitions));
        self.append(broker, &key, partition, &value, Record { effect, early: false, at });
    }

    /// Produces an event about another counter, and returns its position.
    pub(crate) fn produce_other(
        &mut self,
        broker: &Broker,
        chance: &Chance,
        spoken: &OtherEvent,
        (region, strays): (Option<&str>, Option<u32>),
        at: UnixMillis,
    ) -> (u32, u64) {
        let poison = chance.below(1_000) < POISONED;
        let value = if poison { chance.pick(&POISON_OF_COUNTERS).to_vec() } else { from(region, spoken.value(at)) };
        let counter = spoken.counter();
        let effect = match spoken.membership() {
            Some((member, present)) => Effect::Member { counter, member, present },
            None => Effect::Amount { counter, n: spoken.amount() },
        };
        let record = Record { effect: (!poison).then_some(effect), early: spoken.early, at };
        let partition = strays.map(|partitions| stray(spoken.post(), partitions));
        self.append(broker, spoken.post(), spoken.partition.or(partition), &value, record)
    }

    fn append(
        &mut self,
        broker: &Broker,
        key: &PostId,
        partition: Option<u32>,
        value: &[u8],
        record: Record,
    ) -> (u32, u64) {
        let said = Outgoing { topic: TOPIC, partition, key: Some(key.as_bytes()), value: Some(value), headers: &[] };
        let written = broker.append(said, record.at).expect("the topic is there");
        self.said.entry(written.partition).or_default().push(record);
        (written.partition, written.offset.0)
    }

    /// The number of records.
    pub(crate) fn len(&self) -> u64 {
        self.said.values().map(|said| said.len() as u64).sum()
    }

    /// The offset of the next record of each partition.
    pub(crate) fn end(&self, partition: u32) -> u64 {
        self.said.get(&partition).map_or(0, |said| said.len() as u64)
    }

    /// The record at a position.
    pub(crate) fn record(&self, partition: u32, offset: u64) -> Option<&Record> {
        self.said.get(&partition)?.get(usize::try_from(offset).ok()?)
    }

    /// Every record, with its partition and offset.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, u64, &Record)> {
        self.said
            .iter()
            .flat_map(|(partition, said)| (0..).zip(said).map(move |(offset, record)| (*partition, offset, record)))
    }

    /// How many of these positions hold events of members whose action was defined when they were produced.
    pub(crate) fn refused(&self, places: &BTreeSet<(u32, u64)>) -> u64 {
        let known = |record: &Record| !record.early && matches!(record.effect, Some(Effect::Member { .. }));
        places.iter().filter(|(partition, offset)| self.record(*partition, *offset).is_some_and(known)).count() as u64
    }

    /// Events that consist of these records of one partition.
    #[cfg(test)]
    pub(crate) fn of(partition: u32, records: Vec<Record>) -> Self {
        Self { said: BTreeMap::from([(partition, records)]) }
    }
}

/// The name and kind of a counter, the actions that add and remove, and the field of the member.
type Stated = (&'static str, &'static str, &'static str, Option<&'static str>, Option<&'static str>);

/// Every counter that a schedule may define.
const COUNTERS: [Stated; 4] = [
    ("retweets", "set", "retweet", Some("unretweet"), None),
    ("replies", "set", "reply", Some("unreply"), Some("reply_id")),
    ("views", "sum", "view", None, None),
    ("score", "sum", "raise", Some("lower"), None),
];

/// The counters of a schedule in addition to likes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mix {
    /// The definitions in order, each with its step.
    planned: Vec<(u64, Definition)>,
    /// Whether some actions are used before they are defined.
    pub(crate) early: bool,
    /// The share of events about these counters, in percent.
    share: u64,
}

/// An event about a counter of the mix.
#[derive(Clone, Debug)]
pub(crate) struct OtherEvent {
    definition: Definition,
    post: PostId,
    direction: Direction,
    /// The member, for a set.
    member: Option<UserId>,
    /// The amount, for a sum.
    amount: u32,
    /// The partition, if it is not that of the post. An amount may be in any partition.
    pub(crate) partition: Option<u32>,
    /// Whether it is produced before its action is defined.
    pub(crate) early: bool,
}

impl Mix {
    /// All counters in random order, each defined at the first step or a later one.
    pub(crate) fn draw(chance: &Chance, steps: u64) -> Self {
        let mut left: Vec<Definition> = defined().collect();
        let mut planned = Vec::new();
        while !left.is_empty() {
            let definition = left.swap_remove(chance.place(left.len()));
            let step = if chance.happens(40) { 0 } else { chance.between(1, steps / 2) };
            planned.push((step, definition));
        }
        planned.sort_by_key(|(step, _)| *step);
        Self { planned, early: chance.happens(40), share: chance.pick(&[40, 60, 80]) }
    }

    /// The same with all definitions at the start and mostly amounts, for tests of sums.
    pub(crate) fn of_sums(self) -> Self {
        let mut planned: Vec<_> = self.planned.into_iter().map(|(_, definition)| (0, definition)).collect();
        planned.sort_by_key(|(_, definition)| definition.kind() == CounterKind::Set);
        Self { planned, early: false, share: 80 }
    }

    /// Whether there are only likes.
    pub(crate) fn is_empty(&self) -> bool {
        self.planned.is_empty()
    }

    /// The definitions `stands` with those that are due at `step`, or `None` if none are.
    pub(crate) fn due(&self, step: u64, stands: &Definitions) -> Option<Definitions> {
        let due = self.planned.iter().filter(|(at, _)| *at <= step).map(|(_, definition)| Entry::from(definition));
        let wanted = Definitions::new(&due.collect::<Vec<_>>()).expect("the counters of the mix go together");
        let grown = stands.grown(&wanted).expect("nothing that stands is changed");
        (grown != *stands).then_some(grown)
    }

    /// The names of all possible counters, likes first.
    pub(crate) fn names(&self) -> impl Iterator<Item = CounterName> {
        let others = self.planned.iter().map(|(_, definition)| definition.name.clone());
        std::iter::once(CounterName::LIKES).chain(others)
    }

    /// Draws the next event, given the definitions `defined`; `None` stands for an event about likes.
    pub(crate) fn next_event(
        &self,
        chance: &Chance,
        crowd: Crowd,
        defined: &Definitions,
        partitions: u32,
    ) -> Option<OtherEvent> {
        if self.is_empty() || !chance.happens(self.share) {
            return None;
        }
        let stands = |definition: &Definition| defined.named(definition.name.as_str()).is_some();
        let early = self.early && chance.happens(20);
        let planned = self.planned.iter().map(|(_, definition)| definition);
        let sayable: Vec<_> = planned.filter(|definition| early || stands(definition)).collect();
        let definition = *sayable.get(chance.place(sayable.len()))?;
        let sum = definition.kind() == CounterKind::Sum;
        let removes = definition.remove.is_some() && chance.happens(crowd.unlikes);
        Some(OtherEvent {
            definition: definition.clone(),
            post: crowd.post(chance),
            direction: if removes { Direction::Remove } else { Direction::Add },
            member: (!sum).then(|| member(definition, chance.below(crowd.users))),
            amount: chance.pick(&[1, 1, 2, 25, 1_000, u32::try_from(MAX_AMOUNT).unwrap_or(1)]),
            partition: (sum && chance.happens(50)).then(|| u32::try_from(chance.below(partitions.into())).unwrap_or(0)),
            early: !stands(definition),
        })
    }
}

impl OtherEvent {
    /// The key of the record.
    pub(crate) fn post(&self) -> &PostId {
        &self.post
    }

    /// The value of the record.
    pub(crate) fn value(&self, at: UnixMillis) -> Vec<u8> {
        let said = self.member.as_ref().map_or(Said::Amount(self.amount), Said::Member);
        let value = encode(&self.definition, &self.post, self.direction, said, None, at);
        value.expect("the direction is one of the definition's")
    }

    /// The counter that it is about.
    pub(crate) fn counter(&self) -> CounterId {
        CounterId { post: self.post.clone(), name: self.definition.name.clone() }
    }

    /// The member of a set, and whether it is added.
    pub(crate) fn membership(&self) -> Option<(UserId, bool)> {
        Some((self.member.clone()?, self.direction == Direction::Add))
    }

    /// The gain of a sum.
    pub(crate) fn amount(&self) -> i64 {
        let amount = i64::from(self.amount);
        if self.direction == Direction::Add { amount } else { -amount }
    }
}

/// The counter with this name, without its kind, as answers contain it.
pub(crate) fn named(name: &str) -> CounterName {
    defined().map(|definition| definition.name).find(|defined| defined.as_str() == name).unwrap_or_default()
}

fn defined() -> impl Iterator<Item = Definition> {
    COUNTERS.into_iter().map(|(name, kind, add, remove, member)| {
        let entry = Entry {
            name: name.to_owned(),
            kind: kind.to_owned(),
            add: add.to_owned(),
            remove: remove.map(str::to_owned),
            member: member.map(str::to_owned),
            ..Entry::default()
        };
        Definition::try_from(&entry).expect("the counters of the mix are well formed")
    })
}

/// A member's id. Replies have ids of their own.
fn member(definition: &Definition, nth: u64) -> UserId {
    match definition.member {
        MemberField::Reply => UserId::new(&format!("r-{nth}")).expect("a letter and digits are an id"),
        _ => user(nth),
    }
}

/// Users, and the posts that they like and unlike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd {
    /// The number of posts.
    pub(crate) posts: u64,
    /// The number of users.
    pub(crate) users: u64,
    /// The share of events about the first post, in percent.
    pub(crate) hot: u64,
    /// The share of unlikes, in percent.
    pub(crate) unlikes: u64,
}

impl Crowd {
    /// Draws a post, a user, and whether the user likes or unlikes it.
    pub(crate) fn draw(&self, chance: &Chance) -> (PostId, UserId, Direction) {
        let post = self.post(chance);
        let user = user(chance.below(self.users));
        let direction = if chance.happens(self.unlikes) { Direction::Remove } else { Direction::Add };
        (post, user, direction)
    }

    /// Draws a post.
    pub(crate) fn post(&self, chance: &Chance) -> PostId {
        post(if chance.happens(self.hot) { 0 } else { chance.below(self.posts) })
    }

    /// Every post.
    pub(crate) fn posts(&self) -> impl Iterator<Item = PostId> + use<> {
        (0..self.posts).map(post)
    }

    /// The likes of every post.
    pub(crate) fn all_counters(&self) -> impl Iterator<Item = CounterId> + use<> {
        self.posts().map(CounterId::likes)
    }
}

fn post(nth: u64) -> PostId {
    PostId::new(&format!("p-{nth}")).expect("a letter and digits are an id")
}

/// One of the users.
pub(crate) fn user(nth: u64) -> UserId {
    UserId::new(&format!("u-{nth}")).expect("a letter and digits are an id")
}
