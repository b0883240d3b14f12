//! Events said to the log, and which of them must have a dead letter: those that are none, and may be those that nothing
//! defined yet.

use std::collections::{BTreeMap, BTreeSet};

use tally_adapters::memory::log::Broker;
use tally_core::event::{Action, LikeEvent};
use tally_core::ids::{CounterId, Lane, LaneCount, PostId, UserId};
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

impl Deed {
    /// Which of `lanes` it goes through.
    pub(crate) fn lane(&self, lanes: LaneCount) -> Lane {
        match self {
            Self::Member { member, .. } => lanes.lane_of_member(member.as_str()),
            Self::Amount { counter, .. } => lanes.lane_of_sum(counter),
        }
    }
}

/// One record of a partition.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// `None` of one that is no event.
    pub(crate) deed: Option<Deed>,
    /// How many definitions have to be in force for it to be understood.
    pub(crate) needs: u32,
    /// Whether it was said before it was defined.
    pub(crate) early: bool,
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

/// Everything said, by partition and offset.
#[derive(Debug, Default)]
pub(crate) struct Events {
    said: BTreeMap<u32, Vec<Record>>,
}

impl Events {
    /// Says one more event about likes, or something that is none now and then.
    pub(crate) fn say(&mut self, broker: &Broker, chance: &Chance, crowd: Crowd, region: Option<&str>, at: UnixMillis) {
        let (post, user, action) = crowd.draw(chance);
        let poison = chance.below(1_000) < POISONED;
        let value = from(region, LikeEvent::new(&post, &user, action, at).encode());
        let value = if poison { chance.pick(&POISON).to_vec() } else { value };
        let (counter, present) = (CounterId::likes(post), action == Action::Like);
        let key = counter.post.clone();
        let deed = (!poison).then_some(Deed::Member { counter, member: user, present });
        self.append(broker, &key, None, &value, Record { deed, needs: 1, early: false }, at);
    }

    /// The same about a counter of the mix.
    pub(crate) fn say_other(
        &mut self,
        broker: &Broker,
        chance: &Chance,
        spoken: &Spoken,
        region: Option<&str>,
        at: UnixMillis,
    ) {
        let poison = chance.below(1_000) < POISONED;
        let value = if poison { chance.pick(&POISON_OF_COUNTERS).to_vec() } else { from(region, spoken.value(at)) };
        let counter = spoken.counter();
        let deed = match spoken.membership() {
            Some((member, present)) => Deed::Member { counter, member, present },
            None => Deed::Amount { counter, n: spoken.amount() },
        };
        let record = Record { deed: (!poison).then_some(deed), needs: spoken.needs, early: spoken.early };
        self.append(broker, spoken.post(), spoken.partition, &value, record, at);
    }

    fn append(
        &mut self,
        broker: &Broker,
        key: &PostId,
        partition: Option<u32>,
        value: &[u8],
        record: Record,
        at: UnixMillis,
    ) {
        let said = Outgoing { topic: TOPIC, partition, key: Some(key.as_bytes()), value: Some(value), headers: &[] };
        let written = broker.append(said, at).expect("the topic is there");
        self.said.entry(written.partition).or_default().push(record);
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

    /// Where the records are that are no events.
    pub(crate) fn poisoned(&self) -> BTreeSet<(u32, u64)> {
        self.places(|record| record.deed.is_none())
    }

    /// Where the events are that were said before they were defined.
    pub(crate) fn early(&self) -> BTreeSet<(u32, u64)> {
        self.places(|record| record.early)
    }

    fn places(&self, meant: impl Fn(&Record) -> bool) -> BTreeSet<(u32, u64)> {
        let places = self.said.iter().flat_map(|(partition, said)| (0u64..).zip(said).map(|at| (*partition, at)));
        places.filter(|(_, (_, record))| meant(record)).map(|(partition, (offset, _))| (partition, offset)).collect()
    }

    /// These records of a partition.
    #[cfg(test)]
    pub(crate) fn of(partition: u32, records: Vec<Record>) -> Self {
        Self { said: BTreeMap::from([(partition, records)]) }
    }
}
