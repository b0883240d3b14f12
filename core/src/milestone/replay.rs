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
pub struct Replay(BTreeMap<i64, First>);

impl Replay {
    /// Takes in one change and the records of the counter that its update has, in order.
    pub fn follow<'a>(&mut self, change: &Change, records: impl Iterator<Item = &'a Record>, ladder: &Ladder) {
        let version = change.version;
        let mut records = records.filter(|record| record.delta() != 0).peekable();
        if records.peek().is_none() {
            return;
        }
        let mut total = change.before;
        self.settle(ladder, total, |_| First { by: Winner::Unwitnessed, at: None, version });
        for record in records {
            let before = total;
            total += record.delta();
            self.settle(ladder, total, |n| First { by: winner(record, n - before), at: Some(record.written), version });
        }
    }

    fn settle(&mut self, ladder: &Ladder, total: i64, first: impl Fn(i64) -> First) {
        for n in ladder.crossed(None, total).thresholds {
            self.0.entry(n).or_insert_with(|| first(n));
        }
    }

    /// The milestones, by threshold.
    pub fn firsts(&self) -> &BTreeMap<i64, First> {
        &self.0
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
