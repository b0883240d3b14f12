//! The identity of the record that a dead letter is about, and receipts: messages in the topic of dead letters that
//! name records which a replay has put back.
//!
//! A replay writes the receipt in the same transaction as the records that it puts back, and into the same partition as
//! their letters. So Kafka keeps it at least as long as the letters.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tally_consumer::letter::Letter;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{Header, Record};
use tally_core::topic::Partition;

use crate::health::say;

/// The header with the deployment whose records were put back.
const DEPLOYMENT: &str = "__tally.replayed.deployment";
/// The header with the topic that they were put back on.
const TOPIC: &str = "__tally.replayed.topic";

/// The identity of a record within its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::verbs) struct Identity {
    pub(in crate::verbs) partition: u32,
    pub(in crate::verbs) offset: u64,
    /// When the record was written, in milliseconds; 0 if not known. If the topic was created anew, it tells apart two
    /// records of one offset.
    pub(in crate::verbs) at: u64,
}

/// A set of records of one topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::verbs) struct Identities(BTreeSet<Identity>);

impl Identity {
    /// Returns which record of `topic` a letter is about; `None` for another topic or a letter of another deployment.
    pub(in crate::verbs) fn of(letter: &Letter<'_>, deployment: &str, topic: &str) -> Option<Self> {
        let (_, partition, offset) = letter.from.filter(|(from, ..)| *from == topic)?;
        letter.foreign(deployment).is_none().then_some(Self { partition, offset: offset.0, at: letter.at })
    }
}

impl Identities {
    /// Returns whether the set has the record: at the same place and, if both times are known, of the same time.
    pub(in crate::verbs) fn has(&self, of: Identity) -> bool {
        let written = |at| Identity { at, ..of };
        let mut there = self.0.range(written(0)..=written(u64::MAX));
        there.any(|known| known.at == 0 || of.at == 0 || known.at == of.at)
    }

    pub(in crate::verbs) fn insert(&mut self, of: Identity) {
        self.0.insert(of);
    }
}

pub(in crate::verbs) fn receipt_headers<'a>(deployment: &'a str, topic: &'a str) -> [Header<'a>; 2] {
    [(DEPLOYMENT, Some(deployment.as_bytes())), (TOPIC, Some(topic.as_bytes()))]
}

pub(in crate::verbs) fn receipt(of: &[Identity]) -> Vec<u8> {
    serde_json::to_vec(of).expect("integers always serialise")
}

/// Reads `record` of the dead-letter topic as a letter; `None` if it is a receipt.
pub(in crate::verbs) fn letter(record: Record<'_>) -> Option<Letter<'_>> {
    (!is_receipt(record)).then(|| Letter::read(record))
}

/// Returns whether `record` is a receipt. A letter is none, whatever headers its record had: older builds kept those
/// that receipts have.
fn is_receipt(record: Record<'_>) -> bool {
    !Letter::is_one(record) && record.header(DEPLOYMENT).is_some()
}

/// What the receipts of a topic say.
#[derive(Debug, Default)]
pub(in crate::verbs) struct Receipts {
    known: Identities,
    /// The places of the receipts that cannot be read. No command can tell which records they name.
    unreadable: Vec<String>,
}

impl Receipts {
    /// Adds what `record` of `partition` says, if it is a receipt about `topic` and `deployment`.
    pub(in crate::verbs) fn read(&mut self, partition: &Partition, record: Record<'_>, deployment: &str, topic: &str) {
        let is = |name, wanted: &str| record.header(name) == Some(wanted.as_bytes());
        if !is_receipt(record) || !is(DEPLOYMENT, deployment) || !is(TOPIC, topic) {
            return;
        }
        match serde_json::from_slice::<Vec<Identity>>(record.value.unwrap_or_default()) {
            Ok(known) => known.into_iter().for_each(|of| self.known.insert(of)),
            Err(_) => self.unreadable.push(format!("{partition}, offset {}", record.offset)),
        }
    }

    /// Returns the records that were put back. Warns of each receipt that cannot be read.
    pub(in crate::verbs) fn with_warnings(self) -> Identities {
        for place in self.unreadable {
            say(&format!("warning: a receipt that cannot be read is passed over: {place}"));
        }
        self.known
    }

    /// Returns the records that were put back.
    ///
    /// # Errors
    /// A receipt cannot be read.
    pub(in crate::verbs) fn complete(self) -> Outcome<Identities> {
        match self.unreadable.first() {
            None => Ok(self.known),
            Some(place) => Err(Fault::Poison(format!(
                "the receipt at {place} cannot be read, and may name records that were put back before: nothing is \
                 sent. Delete the topic's records up to it, once you have looked at them"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_known_by_its_place_and_the_time_at_which_it_was_written() {
        let of = |offset, at| Identity { partition: 1, offset, at };
        let mut known = Identities::default();
        [of(1, 50), of(2, 0)].into_iter().for_each(|each| known.insert(each));
        assert!(known.has(of(1, 50)));
        assert!(!known.has(of(1, 51)), "the topic was created anew");
        assert!(known.has(of(1, 0)) && known.has(of(2, 50)), "one of the two does not say when it was written");
        assert!(!known.has(of(3, 50)) && !known.has(Identity { partition: 0, ..of(1, 50) }));
    }
}
