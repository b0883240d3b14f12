//! Who says events, and knows what must become of them.

use std::collections::BTreeMap;

use tally_core::event::{Action, LikeEvent, partition_of};
use tally_core::ids::{PostId, UserId};
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_service::Chance;

use super::world::{TOPIC, World};

const POSTS: u64 = 6;
const USERS: u64 = 40;

/// The last word on a like, and when it was said.
pub(super) type Ledger = BTreeMap<(PostId, UserId), (Action, UnixMillis)>;

/// Says events, a third of them about one post, about a third of them unlikes.
pub(super) struct Producer {
    chance: Chance,
    poisons: bool,
    said: u64,
    ledger: Ledger,
    poison: Vec<(u32, u64)>,
}

impl Producer {
    pub(super) fn new(chance: Chance, poisons: bool) -> Self {
        Self { chance, poisons, said: 0, ledger: Ledger::new(), poison: Vec::new() }
    }

    pub(super) fn said(&self) -> u64 {
        self.said
    }

    /// The fold of all that was said.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Where the poison is.
    pub(super) fn poison(&self) -> &[(u32, u64)] {
        &self.poison
    }

    pub(super) fn say(&mut self, world: &World, count: u64) {
        for _ in 0..count {
            self.said += 1;
            let draw = self.chance.token();
            let post = if draw.is_multiple_of(3) { 0 } else { (draw >> 8) % POSTS };
            let post = PostId::new(&format!("p#{post}")).expect("a valid id");
            let user = UserId::new(&format!("u\"{}", (draw >> 16) % USERS)).expect("a valid id");
            let action = if (draw >> 32) % 10 < 3 { Action::Unlike } else { Action::Like };
            let at = world.clock.now();
            let is_poison = self.poisons && (draw >> 40).is_multiple_of(100);
            let value = match is_poison {
                true => b"{\"post_id\":\"p\"".to_vec(),
                false => LikeEvent::new(&post, &user, action, at).encode(),
            };
            let partition = partition_of(post.as_str().as_bytes(), world.partitions);
            let (topic, key) = (TOPIC, Some(post.as_str().as_bytes()));
            let record = Outgoing { topic, partition: Some(partition), key, value: Some(&value), headers: &[] };
            let written = world.broker.append(record, at).expect("the topic is there");
            if is_poison {
                self.poison.push((written.partition, written.offset.0));
            } else {
                self.ledger.insert((post, user), (action, at));
            }
        }
    }

    /// The posts there are.
    pub(super) fn posts() -> impl Iterator<Item = PostId> {
        (0..POSTS).map(|post| PostId::new(&format!("p#{post}")).expect("a valid id"))
    }
}
