//! What is kept of one threshold, for ever: who or what reached it first, when, and at which version of the counter.

use std::fmt;
use std::ops::Range;

use xxhash_rust::xxh64::xxh64;

use crate::changes::{Effect, Entry, Side};
use crate::ids::{CounterId, MemberKey, ReservedKey};
use crate::time::UnixMillis;

/// The record of one threshold of one counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Milestone {
    /// The threshold.
    pub n: i64,
    /// Who or what reached it first.
    pub by: Winner,
    /// When the winner's change reached the table, to the second; of a threshold without one, when it was found reached.
    pub at: UnixMillis,
    /// How long after that it was decided, in milliseconds: what the winner waited for.
    pub lag: u64,
    /// The version of the counter that has it.
    pub version: u64,
    /// Whether nothing said then that the total may be wrong.
    pub exact: bool,
    /// How many thresholds below it were crossed by the same update and have no record.
    pub skipped: u64,
}

/// Who or what reached a threshold first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Winner {
    /// A member of a set.
    Member(MemberKey),
    /// An event of a sum, among those that one write of a cell took in.
    Events(Events),
    /// No change can be named: a correction crossed it, or it was crossed before it was known.
    Unwitnessed,
}

/// The events that one write of a cell took in: those of the counter among the records of a generation from `from` and before
/// `to`. One that has a dead letter may be among them or not. The winner is the event with which their amounts reach `nth`.
///
/// Where the cell's last event before was of an earlier generation, or there was no cell, `from` is 0: the first of these
/// events is the first that is of the generation. What the same write took in of an earlier generation is in `gained`, and no
/// offsets name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Events {
    /// The topic.
    pub topic: Box<str>,
    /// The Kafka partition.
    pub partition: u32,
    /// The generation of its offsets.
    pub generation: u64,
    /// The first offset.
    pub from: u64,
    /// The offset behind the last.
    pub to: u64,
    /// How much of them it took to reach the threshold.
    pub nth: i64,
    /// What all of them came to.
    pub gained: i64,
}

impl Winner {
    /// Who or what lifted a total by what `entry` adds to it; `nth` of that was missing to the threshold.
    pub fn of(entry: &Entry, nth: i64) -> Self {
        let Effect::Weighed { member, before, after } = &entry.effect else { return Self::Unwitnessed };
        match ReservedKey::read(member.as_str()) {
            None => Self::Member(member.clone()),
            Some(ReservedKey::Cell { topic, partition }) => {
                let Some((generation, Range { start: from, end: to })) = taken_in(before, after) else {
                    return Self::Unwitnessed;
                };
                let gained = entry.gain();
                Self::Events(Events { topic: topic.into(), partition, generation, from, to, nth, gained })
            }
            Some(_) => Self::Unwitnessed,
        }
    }

    /// How far the winner is known, as answers say it.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Member(_) => "located",
            Self::Events(_) => "in_log",
            Self::Unwitnessed => "unwitnessed",
        }
    }
}

/// What a digest is made of: no two winners have one text.
impl fmt::Display for Winner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => write!(f, "member\n{member}"),
            Self::Events(Events { topic, partition, generation, from, to, nth, gained }) => {
                write!(f, "events\n{topic}\n{partition}\n{generation}\n{from}\n{to}\n{nth}\n{gained}")
            }
            Self::Unwitnessed => f.write_str("unwitnessed"),
        }
    }
}

/// The generation and the offsets of the events that a cell took in between two states. `None` where one of its versions is
/// not readable, or it went back: a person has edited it.
fn taken_in(before: &Side, after: &Side) -> Option<(u64, Range<u64>)> {
    let last = after.v?;
    let from = match before.v {
        Some(before) if before >= last => return None,
        Some(before) if before.generation() == last.generation() => before.offset().0 + 1,
        None if before.weight != 0 => return None,
        _ => 0,
    };
    Some((last.generation().into(), from..last.offset().0 + 1))
}

impl Milestone {
    /// A digest of everything that is kept of a threshold of `counter`, which shows that a field is another than it was
    /// written. It is no signature: who can write the record can make another.
    pub fn digest(&self, counter: &CounterId) -> String {
        let Self { n, by, at, lag, version, exact, skipped } = self;
        let text = format!("{}\n{n}\n{at}\n{lag}\n{version}\n{exact}\n{skipped}\n{by}", counter.stored());
        format!("{:016x}{:016x}", xxh64(text.as_bytes(), 0), xxh64(text.as_bytes(), 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PostId;
    use crate::register::Version;
    use crate::topic::Offset;

    /// What an entry of a row names that comes from 3 to 8 by a change from one version to another.
    fn winner(member: &str, versions: [Option<Version>; 2]) -> Winner {
        let [before, after] = versions;
        let before = before.map_or_else(Side::default, |before| Side { weight: 3, v: Some(before), ..Side::default() });
        let after = Side { weight: 8, v: after, ..Side::default() };
        Winner::of(&entry(Effect::Weighed { member: MemberKey::new(member).unwrap(), before, after }), 2)
    }

    fn entry(effect: Effect) -> Entry {
        Entry { key: "p#+views.0".parse().unwrap(), effect, second: 0, sequence: 1.into() }
    }

    const CELL: &str = "\u{1}cell/views/3";

    #[test]
    fn a_cell_names_the_events_behind_its_version_before_that_are_of_the_generation_of_the_one_after() {
        let v = |generation, offset| Some(Version::new(generation, true, Offset(offset)));
        for (before, after, generation, from, to, gained) in
            [(None, v(1, 4), 1, 0, 5, 8), (v(1, 4), v(1, 9), 1, 5, 10, 5), (v(1, 4), v(2, 3), 2, 0, 4, 5)]
        {
            let named = Events { topic: "views".into(), partition: 3, generation, from, to, nth: 2, gained };
            assert_eq!(winner(CELL, [before, after]), Winner::Events(named));
        }
    }

    #[test]
    fn a_cell_that_was_edited_by_hand_names_no_events() {
        let v = |generation, offset| Some(Version::new(generation, true, Offset(offset)));
        for versions in [[v(1, 4), v(1, 4)], [v(1, 4), v(1, 3)], [v(2, 1), v(1, 9)], [v(1, 4), None]] {
            assert_eq!(winner(CELL, versions), Winner::Unwitnessed, "{versions:?}");
        }
        let side = |weight, v| Side { weight, v, ..Side::default() };
        let member = MemberKey::new(CELL).unwrap();
        let unreadable = Effect::Weighed { member, before: side(3, None), after: side(8, v(1, 9)) };
        assert_eq!(Winner::of(&entry(unreadable), 2), Winner::Unwitnessed);
    }

    #[test]
    fn a_member_is_named_itself_and_what_weighs_nothing_known_names_none() {
        let member = MemberKey::new("u-7").unwrap();
        assert_eq!(winner("u-7", [None, None]), Winner::Member(member.clone()));
        assert_eq!(Winner::of(&entry(Effect::Unreadable { member }), 2), Winner::Unwitnessed);
    }

    fn milestone() -> Milestone {
        let by = Winner::Member(MemberKey::new("u-7").unwrap());
        Milestone { n: 100, by, at: UnixMillis(9_000), lag: 250, version: 17, exact: true, skipped: 0 }
    }

    #[test]
    fn a_digest_changes_with_every_field() {
        let likes = |post: &str| CounterId::likes(PostId::new(post).unwrap());
        let events = Events { topic: "likes".into(), partition: 3, generation: 0, from: 5, to: 9, nth: 2, gained: 4 };
        let of = |events: Events| Milestone { by: Winner::Events(events), ..milestone() };
        let mut all = vec![
            milestone(),
            Milestone { n: 101, ..milestone() },
            Milestone { by: Winner::Member(MemberKey::new("u-8").unwrap()), ..milestone() },
            Milestone { by: Winner::Unwitnessed, ..milestone() },
            Milestone { at: UnixMillis(9_001), ..milestone() },
            Milestone { lag: 251, ..milestone() },
            Milestone { version: 18, ..milestone() },
            Milestone { exact: false, ..milestone() },
            Milestone { skipped: 1, ..milestone() },
            of(events.clone()),
        ];
        all.extend([
            of(Events { topic: "views".into(), ..events.clone() }),
            of(Events { partition: 4, ..events.clone() }),
            of(Events { generation: 1, ..events.clone() }),
            of(Events { from: 6, ..events.clone() }),
            of(Events { to: 8, ..events.clone() }),
            of(Events { nth: 3, ..events.clone() }),
            of(Events { gained: 5, ..events }),
        ]);
        let mut digests: Vec<String> = all.iter().map(|milestone| milestone.digest(&likes("p"))).collect();
        digests.push(milestone().digest(&likes("q")));
        assert!(digests.iter().all(|digest| digest.len() == 32));
        let count = digests.len();
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), count);
    }
}
