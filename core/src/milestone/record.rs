//! The record of a milestone, stored for ever: who or what first brought a counter to a threshold, when, and at which
//! version of the counter.

use std::fmt;
use std::ops::Range;

use xxhash_rust::xxh64::xxh64;

use crate::changes::{Effect, Entry, Side};
use crate::ids::{CounterId, MemberKey, ReservedKey};
use crate::time::UnixMillis;

/// The record of one threshold of one counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Milestone {
    pub n: i64,
    /// Who or what reached it first.
    pub by: Winner,
    /// When the winner's change reached the table, to the second. Without a winner, when the threshold was found to be
    /// reached.
    pub at: UnixMillis,
    /// How many milliseconds later that was recorded.
    pub lag: u64,
    /// The version of the counter that reached it.
    pub version: u64,
    /// Whether nothing was known then that may make the total wrong.
    pub exact: bool,
    /// How many lower thresholds the same update crossed without a record.
    pub skipped: u64,
}

/// Who or what reached a threshold first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Winner {
    /// A member of a set.
    Member(MemberKey),
    /// An event of a sum, one of those that one write added to a cell.
    Events(Events),
    /// No change can be named: a correction crossed it, or it was crossed before the ladder was in force.
    Unwitnessed,
}

/// The events that one write added to a cell: those of the counter among the records from `from` to before `to`, in a
/// generation of the topic. A record with a dead letter may be one of them or not. The winner is the event with which
/// their amounts reach `nth`.
///
/// If the cell's previous event was of an earlier generation, or there was no cell, `from` is 0: the events begin with
/// the first one of the generation. Events of the earlier generation that the same write added are in `gained`, but no
/// offsets name them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Events {
    pub topic: Box<str>,
    pub partition: u32,
    /// The generation of the offsets.
    pub generation: u64,
    pub from: u64,
    pub to: u64,
    /// How much was missing to the threshold before them.
    pub nth: i64,
    /// The sum of their amounts.
    pub gained: i64,
}

impl Winner {
    /// Returns who or what reached a threshold by `entry`, where the total was `nth` below the threshold before.
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

    /// Returns how well the winner is known, as answers state it.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Member(_) => "located",
            Self::Events(_) => "in_log",
            Self::Unwitnessed => "unwitnessed",
        }
    }
}

/// Writes the text that a digest is made of: no two winners have the same.
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

/// Returns the generation and the offsets of the events that a cell gained between two states. Returns `None` where a
/// version is unreadable, or does not rise because a person edited it.
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
    /// Returns a digest of all fields and the counter, which shows whether a field was changed afterwards. It is no
    /// signature: whoever can write the record can compute another digest.
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

    /// Returns the winner for a row whose weight rises from 3 to 8 and whose version changes.
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

    /// Stored digests are of this text: a change here makes every stored record look altered.
    #[test]
    fn a_digest_is_pinned_and_has_every_field() {
        let events = Events { topic: "likes".into(), partition: 3, generation: 1, from: 5, to: 9, nth: 2, gained: 4 };
        let (at, counter) = (UnixMillis(9_000), CounterId::likes(PostId::new("p").unwrap()));
        for (by, digest) in [
            (Winner::Events(events), "ed21ddaeabd4f19063fe2892787874fa"),
            (Winner::Member(MemberKey::new("u-7").unwrap()), "0dd1458c2e4b91c531c5bbb417761321"),
            (Winner::Unwitnessed, "fe71e32e0be038f49852d51014d52cbd"),
        ] {
            let milestone = Milestone { n: 100, by, at, lag: 250, version: 17, exact: true, skipped: 6 };
            assert_eq!(milestone.digest(&counter), digest);
        }
    }
}
