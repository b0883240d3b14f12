//! Says which records of a simulated run must be in the topic of dead letters at the end, and which may be. A record
//! that is no event must. One that came before its counter was defined may, and must if it became nothing. One that a
//! producer sent to the wrong partition may, beside a row that an event of the right one wrote; the last one of a member
//! and partition must, unless it was written.

use std::collections::{BTreeMap, BTreeSet};

use crate::simulation::events::{Effect, Events};
use crate::simulation::fold::{Fold, Row};
use crate::simulation::registers::version;

impl Fold {
    /// A description of a record for error messages.
    pub(crate) fn told(&self, events: &Events, partition: u32, offset: u64) -> String {
        let record = events.record(partition, offset);
        let row = match record.and_then(|record| record.effect.as_ref()) {
            Some(Effect::Member { counter, member, .. }) => self.rows.get(&(counter.clone(), member.clone())),
            _ => None,
        };
        format!("{record:?}, its row {row:?}")
    }

    /// The records that must have a dead letter, and those that may: records that are not events, events that were produced
    /// before their definition and became nothing, and misrouted ones whose row already had a routed event.
    pub(crate) fn letters(&self, events: &Events) -> [BTreeSet<(u32, u64)>; 2] {
        let (mut required, mut lawful) = (BTreeSet::new(), BTreeSet::new());
        let mut last_misrouted = BTreeMap::new();
        for (partition, offset, record) in events.all() {
            let place = (partition, offset);
            let [must, may] = match &record.effect {
                None => [true, true],
                Some(Effect::Amount { .. }) => [record.early && !self.counted.contains(&place), record.early],
                Some(Effect::Member { counter, member, .. }) => {
                    let member = (counter.clone(), member.clone());
                    let is_routed = self.is_routed(counter, partition);
                    let row = self.rows.get(&member);
                    if !is_routed && !record.early {
                        last_misrouted.insert((member.clone(), partition), offset);
                    }
                    let is_beside = !is_routed && row.is_some_and(Row::was_routed);
                    let is_nothing = row.is_none_or(|row| row.reached() < version(is_routed, offset));
                    [record.early && is_nothing, record.early || is_beside]
                }
            };
            required.extend(must.then_some(place));
            lawful.extend(may.then_some(place));
        }
        for ((member, partition), offset) in last_misrouted {
            // An event that gave way to a later one of its row is finished with that one.
            let row = &self.rows[&member];
            let was_in = row.misrouted.is_some_and(|misrouted| misrouted >= version(false, offset));
            let is_after_routed = row.newest.is_routed() && row.forgotten.is_none();
            required.extend((is_after_routed && !was_in).then_some((partition, offset)));
        }
        [required, lawful]
    }
}
