//! What the milestones of a counter have to be, from every change of its item and the records of the stream: what harnesses
//! hold those against that were recorded.

use std::collections::BTreeMap;

use super::{Events, Ladder, Milestone, Winner};
use crate::ids::{CounterId, MemberKey, Ordinal, ReservedKey, Sequence};
use crate::tally::{Record, RecordKind};
use crate::time::UnixMillis;

/// One change of a counter's item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The total before and after.
    pub before: i64,
    /// The total afterwards.
    pub after: i64,
    /// The version afterwards.
    pub version: u64,
    /// By the update of a stream shard: which one, the watermark before and the one afterwards.
    pub moved: Option<(Ordinal, Option<Sequence>, Sequence)>,
}

impl Change {
    /// The change of a counter's item, whose total and version are numbers and whose watermarks are texts.
    pub fn of<'a>(
        numbers: impl Fn(&str) -> (Option<i64>, Option<i64>),
        mut texts: impl Iterator<Item = (&'a str, Option<&'a str>, &'a str)>,
    ) -> Self {
        let (before, after) = numbers("likes");
        let version = numbers("version").1.and_then(|version| u64::try_from(version).ok()).unwrap_or(0);
        let moved = texts.find_map(|(name, before, after)| {
            let shard = Ordinal(name.strip_prefix('w')?.parse().ok()?);
            let moved = before != Some(after);
            moved.then(|| Some((shard, before.and_then(|mark| mark.parse().ok()), after.parse().ok()?)))?
        });
        Self { before: before.unwrap_or(0), after: after.unwrap_or(0), version, moved }
    }
}

/// What reached a threshold first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct First {
    /// Who or what.
    pub by: Winner,
    /// When its change was written; nothing of a threshold that was found reached.
    pub at: Option<UnixMillis>,
    /// The version of the counter that has it.
    pub version: u64,
}

impl From<&Milestone> for First {
    fn from(milestone: &Milestone) -> Self {
        let Milestone { by, at, version, .. } = milestone.clone();
        let at = Some(at).filter(|_| by != Winner::Unwitnessed);
        Self { by, at, version }
    }
}

/// The milestones that follow from changes.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    firsts: BTreeMap<i64, First>,
    /// The greatest threshold that was reached.
    through: Option<i64>,
}

impl Replay {
    /// Takes in one change and the records of the counter that its update has, in order.
    pub fn follow<'a>(&mut self, change: &Change, records: impl Iterator<Item = &'a Record>, ladder: &Ladder) {
        let (version, before) = (change.version, change.before);
        let mut total = before;
        // Each record that changes the total, with where it began and where it left it.
        let steps: Vec<(&Record, i64, i64)> = records
            .filter(|record| record.delta() != 0)
            .map(|record| {
                let from = total;
                total += record.delta();
                (record, from, total)
            })
            .collect();
        let Some(most) = steps.iter().map(|(_, _, after)| *after).max() else { return };
        for n in ladder.crossed(self.through, most.max(before)).thresholds {
            let step = steps.iter().find(|(_, _, after)| n > before && *after >= n);
            let (by, at) = match step {
                None => (Winner::Unwitnessed, None),
                Some((record, from, _)) => (winner(record, n - from), Some(record.written)),
            };
            self.firsts.insert(n, First { by, at, version });
            self.through = Some(n);
        }
    }

    /// The milestones, by threshold.
    pub fn firsts(&self) -> &BTreeMap<i64, First> {
        &self.firsts
    }
}

/// Whether a record is of `counter`, between two places of its stream shard: behind `from`, up to `to`.
pub fn is_within(record: &Record, counter: &CounterId, from: Option<Sequence>, to: Sequence) -> bool {
    let of_counter = matches!(&record.kind, RecordKind::Row { key, .. } if key.counter == *counter);
    of_counter && Some(record.sequence) > from && record.sequence <= to
}

/// The winner that a record names, of a cell's events that with which they reach `nth`.
fn winner(record: &Record, nth: i64) -> Winner {
    let RecordKind::Row { member, span, .. } = &record.kind else { return Winner::Unwitnessed };
    match (ReservedKey::read(member.as_str()), span) {
        (Some(ReservedKey::Cell { topic, partition }), Some(span)) => Winner::Events(Events {
            topic: topic.into(),
            partition,
            generation: span.generation,
            from: span.from,
            to: span.to,
            nth,
            gained: record.delta(),
        }),
        (Some(_), _) => Winner::Unwitnessed,
        (None, _) => Winner::Member(MemberKey::clone(member)),
    }
}
