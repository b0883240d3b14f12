//! Part of the model of two Regions, A and B: the log of changes in Region A, and A's counters and their standing (up
//! to where they are complete, and which losses are open) at each place in the log.

use std::collections::BTreeMap;

use tally_core::cached::Value;
use tally_core::changes::{Amend, Body, Correction, LossNumber, Lost, Message, Place, Section, Standing};
use tally_core::fold::{Counter, Partition, Position};
use tally_core::ids::{CounterId, RowKey, Shard};
use tally_core::time::UnixMillis;

use super::super::{likes, opened, position, sections, sequence, stream_shard, weighed};
use super::World;

/// One thing that happens at A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A counter gains this much.
    Gains(usize, i8),
    /// A counter gains this much, but its record is lost, and the log has the announcement.
    Loses(usize, i8),
    /// An audit corrects a counter.
    Corrects(usize),
    /// The audit closes the loss.
    Closes,
    /// Time passes, and the log states so.
    Passes,
}

/// A's counters at a place, and their standing without `as_of`.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub(super) values: [Value; 2],
    pub(super) standing: Standing,
    counters: [Counter; 2],
    position: Position,
}

/// Returns the place behind this many items, which follow the announcement of the stream shard.
pub(super) fn place(items: usize) -> Place {
    super::super::place(items + 1)
}

/// The inverse of [`place`]; 0 for an absent entry.
pub(super) fn items(place: Place) -> u8 {
    super::super::offset::<u8>(place).saturating_sub(1)
}

/// Returns the id of one of A's counters.
pub(super) fn counter(counter: usize) -> CounterId {
    row(counter).counter
}

fn row(counter: usize) -> RowKey {
    likes(["p", "q"][counter], Shard::new(0).expect("a shard"))
}

impl World {
    /// Returns what the users of A have added to a counter in the first items.
    pub(super) fn truth(&self, counter: usize, items: usize) -> i64 {
        let gains = self.script.iter().take(items).map(|item| match item {
            Item::Gains(of, gain) | Item::Loses(of, gain) if *of == counter => i64::from(*gain),
            _ => 0,
        });
        gains.sum()
    }

    /// Returns A's counters after the first items, in a table that lacks as many items as `lacks` says.
    pub(super) fn counted(&self, lacks: u8, items: u8) -> Counted {
        self.counted.get((lacks, items), || {
            let Some(nth) = items.checked_sub(1) else {
                return self.take(Counted::default(), 0, opened([stream_shard(0)]));
            };
            let before = self.counted(if nth < lacks { 0 } else { lacks }, nth);
            let body = self.body(nth.into(), &before);
            let counted = self.take(before, items.into(), body);
            if items == lacks {
                Counted { values: Default::default(), counters: Default::default(), ..counted }
            } else {
                counted
            }
        })
    }

    /// Returns the counters after a message at an offset.
    fn take(&self, mut counted: Counted, offset: usize, body: Body) -> Counted {
        let message = Message { read: UnixMillis(0), body };
        let mut partition = Partition::new(counted.position.clone());
        let taken = partition.take(super::super::place(offset), UnixMillis(0), &message);
        assert_eq!(taken.hole, None, "{:?}", self.script);
        let flush = partition.flush();
        for (nth, before) in counted.counters.iter_mut().enumerate() {
            let pending = flush.counters.get(&counter(nth));
            if let Some(after) = pending.and_then(|pending| flush.apply(Some(before), pending, UnixMillis(0))) {
                *before = after.counter;
                counted.values[nth] = Value::from(&*before);
            }
        }
        Counted { standing: flush.standing, position: flush.position, ..counted }
    }

    fn body(&self, nth: usize, before: &Counted) -> Body {
        let items = self.script.iter().take(nth);
        let records: u8 = items.map(|item| u8::from(matches!(item, Item::Gains(..) | Item::Loses(..)))).sum();
        let record = records + 1;
        let section = |to, entries| Section {
            shard: stream_shard(0),
            back: position(records),
            to: position(to),
            fed: Some(UnixMillis(0)),
            entries,
        };
        match self.script.get(nth) {
            Some(Item::Gains(of, gain)) => {
                let entry = weighed(&row(*of), "u", [0, (*gain).into()], record);
                sections(vec![section(record, vec![entry])])
            }
            Some(Item::Loses(..)) => {
                let next = Some((stream_shard(0), sequence(record + 1)));
                Body::Lost(Lost { number: LossNumber(7), next })
            }
            Some(Item::Corrects(of)) => {
                let add = self.truth(*of, nth) - before.counters[*of].likes;
                let parts = BTreeMap::from([(row(*of).shard, Amend::Add(add))]);
                let seen = before.counters[*of].corrections;
                Body::Correction(Correction { counter: counter(*of), parts, seen, loss: before.standing.loss })
            }
            Some(Item::Closes) => Body::Repaired(LossNumber(7)),
            Some(Item::Passes) | None => sections(vec![section(records, Vec::new())]),
        }
    }
}
