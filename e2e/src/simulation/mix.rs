//! Counters beside likes: which of them a schedule defines, in which order and when, and what is said to them.
//!
//! All of it comes from draws of its own, so that it moves none of the others.

use tally_core::definitions::{Definition, Definitions, Direction, Entry, MemberField};
use tally_core::event::{MAX_AMOUNT, Said, encode};
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId, UserId};
use tally_core::time::UnixMillis;
use tally_service::Chance;

use super::chance::Draws;
use crate::crowd::{Crowd, user};

/// A counter's name, kind, the actions that add and remove, and the field of the member.
type Stated = (&'static str, &'static str, &'static str, Option<&'static str>, Option<&'static str>);

/// Every counter that a schedule may define.
const COUNTERS: [Stated; 4] = [
    ("retweets", "set", "retweet", Some("unretweet"), None),
    ("replies", "set", "reply", Some("unreply"), Some("reply_id")),
    ("views", "sum", "view", None, None),
    ("score", "sum", "raise", Some("lower"), None),
];

/// What a schedule has beside likes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mix {
    /// What is defined, in this order, each at a step.
    planned: Vec<(u64, Definition)>,
    /// Whether some actions are said before they are defined.
    pub(crate) early: bool,
    /// Events about these counters, in a hundred.
    share: u64,
}

/// One event about a counter of the mix.
#[derive(Clone, Debug)]
pub(crate) struct Spoken {
    definition: Definition,
    post: PostId,
    direction: Direction,
    /// The member of a set.
    member: Option<UserId>,
    /// The amount of a sum.
    amount: u32,
    /// Where it is said, where not in its post's partition: what adds to a sum may be said in any.
    pub(crate) partition: Option<u32>,
    /// Whether it is said before it is defined.
    pub(crate) early: bool,
}

impl Mix {
    /// All of them, in some order, each from the first step on or from a later one.
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

    /// The same with everything defined at once, and most of it said to sums: for what is about them.
    pub(crate) fn of_sums(self) -> Self {
        let mut planned: Vec<_> = self.planned.into_iter().map(|(_, definition)| (0, definition)).collect();
        planned.sort_by_key(|(_, definition)| definition.kind() == CounterKind::Set);
        Self { planned, early: false, share: 80 }
    }

    /// Whether there are likes alone.
    pub(crate) fn is_empty(&self) -> bool {
        self.planned.is_empty()
    }

    /// `stands`, and what is to be defined behind it at `step`; `None` where that is nothing.
    pub(crate) fn due(&self, step: u64, stands: &Definitions) -> Option<Definitions> {
        let due = self.planned.iter().filter(|(at, _)| *at <= step).map(|(_, definition)| Entry::from(definition));
        let wanted = Definitions::new(&due.collect::<Vec<_>>()).expect("the counters of the mix go together");
        let grown = stands.grown(&wanted).expect("nothing that stands is changed");
        (grown != *stands).then_some(grown)
    }

    /// The names of all counters there can be, likes first.
    pub(crate) fn names(&self) -> impl Iterator<Item = CounterName> {
        let others = self.planned.iter().map(|(_, definition)| definition.name.clone());
        std::iter::once(CounterName::LIKES).chain(others)
    }

    /// What is said next where `defined` stands; `None`: something about likes.
    pub(crate) fn speak(
        &self,
        chance: &Chance,
        crowd: Crowd,
        defined: &Definitions,
        partitions: u32,
    ) -> Option<Spoken> {
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
        Some(Spoken {
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

impl Spoken {
    /// The record's key.
    pub(crate) fn post(&self) -> &PostId {
        &self.post
    }

    /// The record's value.
    pub(crate) fn value(&self, at: UnixMillis) -> Vec<u8> {
        let said = self.member.as_ref().map_or(Said::Amount(self.amount), Said::Member);
        let value = encode(&self.definition, &self.post, self.direction, said, None, at);
        value.expect("the direction is one of the definition's")
    }

    /// Which counter it is about.
    pub(crate) fn counter(&self) -> CounterId {
        CounterId { post: self.post.clone(), name: self.definition.name.clone() }
    }

    /// The member of a set, and whether it is to be there.
    pub(crate) fn membership(&self) -> Option<(UserId, bool)> {
        Some((self.member.clone()?, self.direction == Direction::Add))
    }

    /// What a sum gains.
    pub(crate) fn amount(&self) -> i64 {
        let amount = i64::from(self.amount);
        if self.direction == Direction::Add { amount } else { -amount }
    }
}

/// The counter of a name, as an answer has it: without its kind.
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

/// Replies have ids of their own.
fn member(definition: &Definition, nth: u64) -> UserId {
    match definition.member {
        MemberField::Reply => UserId::new(&format!("r-{nth}")).expect("a letter and digits are an id"),
        _ => user(nth),
    }
}
