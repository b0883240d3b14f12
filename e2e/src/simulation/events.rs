//! Draws the events that users produce in a run of the simulation, and remembers every record in Kafka, so that the
//! result can be compared with them. Also says which users, posts and counters in addition to likes there are.
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
    pub(crate) said: BTreeMap<u32, Vec<Record>>,
}

impl Events {
    /// Produces an event, or now and then a record that is not one, and returns its position. With `strays`, it comes from a
    /// producer with another partitioner, for this number of partitions.
    pub(crate) fn produce(
        &mut self,
        broker: &Broker,
        chance: &Chance,
        event: &Event,
        (region, strays): (Option<&str>, Option<u32>),
        at: UnixMillis,
    ) -> (u32, u64) {
        let poison = chance.below(1_000) < POISONED;
        let values = if event.definition.name == CounterName::LIKES { &POISON[..] } else { &POISON_OF_COUNTERS };
        let value = if poison { chance.pick(values).to_vec() } else { from(region, event.value(at)) };
        let key = &event.post;
        let partition = event.partition.or(strays.map(|partitions| stray(key, partitions)));
        let said = Outgoing { topic: TOPIC, partition, key: Some(key.as_bytes()), value: Some(&value), headers: &[] };
        let written = broker.append(said, at).expect("the topic is there");
        let record = Record { effect: (!poison).then(|| event.effect()), early: event.early, at };
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
        let all = self.said.iter();
        all.flat_map(|(partition, said)| (0..).zip(said).map(move |(offset, record)| (*partition, offset, record)))
    }

    /// How many of these positions hold events of members whose action was defined when they were produced.
    pub(crate) fn refused(&self, places: &BTreeSet<(u32, u64)>) -> u64 {
        let known = |record: &Record| !record.early && matches!(record.effect, Some(Effect::Member { .. }));
        places.iter().filter(|(partition, offset)| self.record(*partition, *offset).is_some_and(known)).count() as u64
    }
}

/// Every counter that a schedule may define.
pub(crate) fn entries() -> [Entry; 4] {
    let replies = Entry { member: Some("reply_id".to_owned()), ..Entry::set("replies", "reply", Some("unreply")) };
    let retweets = Entry::set("retweets", "retweet", Some("unretweet"));
    [retweets, replies, Entry::sum("views", "view", None), Entry::sum("score", "raise", Some("lower"))]
}

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

/// An event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    definition: Definition,
    post: PostId,
    direction: Direction,
    /// The member, for a set.
    member: Option<UserId>,
    /// The amount, for a sum.
    amount: u32,
    /// The partition, if it is not that of the post. An amount may be in any partition.
    partition: Option<u32>,
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
    ) -> Option<Event> {
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
        Some(Event {
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

impl Event {
    /// Draws an event about likes.
    pub(crate) fn like(chance: &Chance, crowd: Crowd) -> Self {
        let (post, user, direction) = crowd.draw(chance);
        let (definition, member) = (Definition::likes(), Some(user));
        Self { definition, post, direction, member, amount: 0, partition: None, early: false }
    }

    /// The value of the record.
    fn value(&self, at: UnixMillis) -> Vec<u8> {
        let said = self.member.as_ref().map_or(Said::Amount(self.amount), Said::Member);
        let value = encode(&self.definition, &self.post, self.direction, said, None, at);
        value.expect("the direction is one of the definition's")
    }

    fn effect(&self) -> Effect {
        let counter = CounterId { post: self.post.clone(), name: self.definition.name.clone() };
        let (amount, is_added) = (i64::from(self.amount), self.direction == Direction::Add);
        match &self.member {
            Some(member) => Effect::Member { counter, member: member.clone(), present: is_added },
            None => Effect::Amount { counter, n: if is_added { amount } else { -amount } },
        }
    }
}

/// The counter with this name, without its kind, as answers contain it.
pub(crate) fn named(name: &str) -> CounterName {
    defined().map(|definition| definition.name).find(|defined| defined.as_str() == name).unwrap_or_default()
}

fn defined() -> impl Iterator<Item = Definition> {
    entries().into_iter().map(|entry| Definition::try_from(&entry).expect("the counters of the mix are well formed"))
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

    /// The counters with these names of every post.
    pub(crate) fn counters(&self, names: Vec<CounterName>) -> impl Iterator<Item = CounterId> + use<> {
        self.posts()
            .flat_map(move |post| names.clone().into_iter().map(move |name| CounterId { post: post.clone(), name }))
    }
}

fn post(nth: u64) -> PostId {
    PostId::new(&format!("p-{nth}")).expect("a letter and digits are an id")
}

/// One of the users.
pub(crate) fn user(nth: u64) -> UserId {
    UserId::new(&format!("u-{nth}")).expect("a letter and digits are an id")
}
