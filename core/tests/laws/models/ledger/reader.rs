//! The log, as its reader has counted it.

use std::collections::BTreeMap;

use tally_core::ids::Sequence;
use tally_core::ledger::{Filter, Message, Outgoing};

use super::{Ledger, PARTITIONS, Rule, place};

/// What was counted: by record, how often each of its sides, and by partition up to where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Log {
    filters: [Filter; PARTITIONS as usize],
    marks: [Option<Sequence>; PARTITIONS as usize],
    counted: BTreeMap<u8, [u8; 2]>,
}

impl Log {
    pub(super) fn counted(&self, at: u8) -> [u8; 2] {
        self.counted.get(&at).copied().unwrap_or_default()
    }

    /// The last record of the partition that was counted.
    pub(super) fn mark(&self, partition: u32) -> Option<Sequence> {
        self.marks[partition as usize]
    }
}

impl Ledger {
    /// The log once it has a message more, and the reader has counted that.
    pub(super) fn read(&self, log: &Log, outgoing: &Outgoing) -> Log {
        let Message { shard, changes } = Message::read(&outgoing.value).expect("the machine writes messages");
        let mut log = log.clone();
        let Log { filters, marks, counted } = &mut log;
        let filter = &mut filters[outgoing.partition as usize];
        let last = changes.last().expect("no message is empty").sequence;
        let whole = (!self.obeys(Rule::FilterByRecord)).then(|| filter.takes(shard, last));
        for change in changes {
            let halves: &[_] = if self.obeys(Rule::OneEntry) { &[&[0, 1][..]] } else { &[&[0], &[1]] };
            for sides in halves {
                let counts = whole.unwrap_or_else(|| filter.takes(shard, change.sequence));
                if counts || !self.obeys(Rule::Filter) {
                    let times = counted.entry(place(change.sequence)).or_default();
                    sides.iter().for_each(|side: &usize| times[*side] += 1);
                }
            }
        }
        marks[outgoing.partition as usize] = filter.mark(shard);
        log
    }
}
