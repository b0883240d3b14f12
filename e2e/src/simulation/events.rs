//! Events said to the log.

use std::collections::{BTreeMap, BTreeSet};

use tally_adapters::memory::log::Broker;
use tally_core::definitions::{Definition, Direction};
use tally_core::event::{Said, encode, partition_of};
use tally_core::ids::{CounterId, PostId, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_service::Chance;

use super::chance::Draws;
use super::mix::Spoken;
use crate::crowd::Crowd;

/// The topic of likes.
pub(crate) const TOPIC: &str = "likes";
/// The topic of dead letters.
pub(crate) const LETTERS: &str = "likes.dlq";

/// Records that are no events, in a thousand.
const POISONED: u64 = 10;

/// What no decoder takes.
const POISON: [&[u8]; 6] = [
    b"",
    b"nonsense",
    b"[1,2]",
    b"{\"post_id\":\"p-1\",\"action\":\"like\"}",
    b"{\"post_id\":\"p-1\",\"user_id\":\"u-1\",\"action\":\"love\"}",
    b"\xff\xfe",
];

/// What is no event although its action is defined, or may be.
const POISON_OF_COUNTERS: [&[u8]; 4] = [
    b"{\"post_id\":\"p-1\",\"action\":\"view\",\"n\":0}",
    b"{\"post_id\":\"p-1\",\"action\":\"raise\",\"n\":1.5}",
    b"{\"post_id\":\"p-1\",\"action\":\"reply\",\"user_id\":\"u-1\"}",
    b"{\"post_id\":\"p-1\",\"action\":\"unview\"}",
];

/// What an event does to its counter.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    Member { counter: CounterId, member: UserId, present: bool },
    Amount { counter: CounterId, n: i64 },
}

/// One record of a partition.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// `None` of one that is no event.
    pub(crate) deed: Option<Deed>,
    /// Whether it was said before it was defined.
    pub(crate) early: bool,
    /// When it was said.
    pub(crate) at: UnixMillis,
}

/// The event that `value` is, with the region it comes from.
fn from(region: Option<&str>, mut value: Vec<u8>) -> Vec<u8> {
    if let Some(region) = region
        && value.pop_if(|last| *last == b'}').is_some()
    {
        value.extend_from_slice(format!(",\"region\":\"{region}\"}}").as_bytes());
    }
    value
}

/// Where a producer with another partitioner puts what has this key, in one of so many partitions.
fn stray(key: &PostId, partitions: u32) -> u32 {
    (partition_of(key.as_bytes(), partitions) + 1) % partitions
}

/// Everything said, by partition and offset.
#[derive(Debug, Default)]
pub(crate) struct Events {
    said: BTreeMap<u32, Vec<Record>>,
}

impl Events {
    /// Says one more event about likes, or something that is none now and then. Where it `strays`, it comes from a producer with
    /// another partitioner, of so many partitions.
    pub(crate) fn say(
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
        let deed = (!poison).then_some(Deed::Member { counter, member: user, present });
        let partition = strays.map(|partitions| stray(&key, partitions));
        self.append(broker, &key, partition, &value, Record { deed, early: false, at });
    }

    /// The same about a counter of the mix; where it is.
    pub(crate) fn say_other(
        &mut self,
        broker: &Broker,
        chance: &Chance,
        spoken: &Spoken,
        (region, strays): (Option<&str>, Option<u32>),
        at: UnixMillis,
    ) -> (u32, u64) {
        let poison = chance.below(1_000) < POISONED;
        let value = if poison { chance.pick(&POISON_OF_COUNTERS).to_vec() } else { from(region, spoken.value(at)) };
        let counter = spoken.counter();
        let deed = match spoken.membership() {
            Some((member, present)) => Deed::Member { counter, member, present },
            None => Deed::Amount { counter, n: spoken.amount() },
        };
        let record = Record { deed: (!poison).then_some(deed), early: spoken.early, at };
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

    /// How many were said.
    pub(crate) fn len(&self) -> u64 {
        self.said.values().map(|said| said.len() as u64).sum()
    }

    /// Where each partition's next record goes.
    pub(crate) fn end(&self, partition: u32) -> u64 {
        self.said.get(&partition).map_or(0, |said| said.len() as u64)
    }

    /// The record at a place.
    pub(crate) fn record(&self, partition: u32, offset: u64) -> Option<&Record> {
        self.said.get(&partition)?.get(usize::try_from(offset).ok()?)
    }

    /// Every record, with its partition and its offset.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, u64, &Record)> {
        self.said
            .iter()
            .flat_map(|(partition, said)| (0..).zip(said).map(move |(offset, record)| (*partition, offset, record)))
    }

    /// How many of these places are of members' events that were known when they were said.
    pub(crate) fn refused(&self, places: &BTreeSet<(u32, u64)>) -> u64 {
        let known = |record: &Record| !record.early && matches!(record.deed, Some(Deed::Member { .. }));
        places.iter().filter(|(partition, offset)| self.record(*partition, *offset).is_some_and(known)).count() as u64
    }

    /// These records of a partition.
    #[cfg(test)]
    pub(crate) fn of(partition: u32, records: Vec<Record>) -> Self {
        Self { said: BTreeMap::from([(partition, records)]) }
    }
}
