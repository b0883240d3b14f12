//! Events said to the log, and what must become of them: the rows their fold leaves, and a dead letter for each that is
//! no event.

use std::collections::{BTreeMap, BTreeSet};

use tally_adapters::memory::log::Broker;
use tally_core::event::{Action, LikeEvent};
use tally_core::ids::{PostId, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_service::Chance;

use super::chance::Draws;
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

/// One event of a partition; `None` for a record that is none.
type Said = Option<(PostId, UserId, Action)>;

/// Everything said, by partition and offset.
#[derive(Debug, Default)]
pub(crate) struct Events {
    said: BTreeMap<u32, Vec<Said>>,
}

impl Events {
    /// Says one more event, or something that is none now and then.
    pub(crate) fn say(&mut self, broker: &Broker, chance: &Chance, crowd: Crowd, at: UnixMillis) {
        let (post, user, action) = crowd.draw(chance);
        let poison = chance.below(1_000) < POISONED;
        let value = LikeEvent::new(&post, &user, action, at).encode();
        let value = if poison { chance.pick(&POISON).to_vec() } else { value };
        let record =
            Outgoing { topic: TOPIC, partition: None, key: Some(post.as_bytes()), value: Some(&value), headers: &[] };
        let written = broker.append(record, at).expect("the topic is there");
        self.said.entry(written.partition).or_default().push((!poison).then_some((post, user, action)));
    }

    /// How many were said.
    pub(crate) fn len(&self) -> u64 {
        self.said.values().map(|said| said.len() as u64).sum()
    }

    /// Where each partition's next record goes.
    pub(crate) fn end(&self, partition: u32) -> u64 {
        self.said.get(&partition).map_or(0, |said| said.len() as u64)
    }

    /// The rows that are the fold of the events before `fences`.
    pub(crate) fn fold(&self, fences: &BTreeMap<u32, u64>) -> BTreeSet<(String, String)> {
        let mut rows = BTreeSet::new();
        for (partition, said) in &self.said {
            let fence = usize::try_from(fences.get(partition).copied().unwrap_or(0)).unwrap_or(usize::MAX);
            for (post, user, action) in said.iter().take(fence).flatten() {
                let row = (post.as_str().to_owned(), user.as_str().to_owned());
                match action {
                    Action::Like => rows.insert(row),
                    Action::Unlike => rows.remove(&row),
                };
            }
        }
        rows
    }

    /// Where the records are that are no events.
    pub(crate) fn poisoned(&self) -> BTreeSet<(u32, u64)> {
        let places = self.said.iter().flat_map(|(partition, said)| (0u64..).zip(said).map(|at| (*partition, at)));
        places.filter(|(_, (_, said))| said.is_none()).map(|(partition, (offset, _))| (partition, offset)).collect()
    }
}
