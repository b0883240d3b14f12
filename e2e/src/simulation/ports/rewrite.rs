//! The log `changes` in the hands of readers that break a rule: what they are given says what a reader without the rule would
//! have made of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tally_core::changes::{
    Body, Correction, DeploymentId, Effect, Entry, Filter, Item, Message, Nonce, Opened, Opening, Place, Section, Side,
    partition_of,
};
use tally_core::ids::{CounterId, RowKey, Sequence, StreamShard};
use tally_core::ports::log::{Record, Records};
use tally_core::time::UnixMillis;
use tally_service::Clock;

use super::super::journal::Journal;
use super::super::mutant::Mutant;

/// How much older than the longest window a change is that has left it for certain, in seconds.
const LEFT: u64 = 60;

/// Up to when a stream shard is fed that there is not: later than any other.
const EVER: UnixMillis = UnixMillis(9_000_000_000_000);

/// How often a marker is put before a recount that does not wait for it.
const MARKED: u32 = 3;

/// What a recount has asked of the log; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// The marker that it put last beside the rows of each key, and how often it was shown that.
    markers: BTreeMap<RowKey, (Nonce, u32)>,
    /// The correction of each counter that it sent last.
    corrections: BTreeMap<CounterId, Correction>,
}

impl Asked {
    /// It has put a marker.
    pub(crate) fn marked(&self, key: &str, nonce: &str) {
        if let (Ok(key), Ok(nonce)) = (key.parse(), nonce.parse()) {
            self.known().markers.insert(key, (nonce, 0));
        }
    }

    /// It has sent a correction.
    pub(super) fn corrected(&self, value: &[u8]) {
        if let Some(Body::Correction(correction)) = read(value).map(|(_, message)| message.body) {
            self.known().corrections.insert(correction.counter.clone(), correction);
        }
    }

    /// Makes the item of a counter what it will be once the correction is in that was sent.
    pub(crate) fn settle(&self, item: &mut Value) {
        let number = |value: &Value| value["N"].as_str().and_then(|number| number.parse::<i64>().ok());
        let id: Option<CounterId> = item["post_id"]["S"].as_str().and_then(|id| id.parse().ok());
        let known = self.known();
        let Some(correction) = id.and_then(|id| known.corrections.get(&id)) else { return };
        if number(&item["c"]).unwrap_or_default() != i64::try_from(correction.seen).unwrap_or(i64::MAX) {
            return;
        }
        let mut total = number(&item["likes"]).unwrap_or_default();
        for (shard, amend) in &correction.parts {
            if let tally_core::changes::Amend::Add(add) = amend {
                let name = format!("s{shard}");
                let part = number(&item[&name]).unwrap_or_default();
                item[&name] = json!({"N": (part + add).to_string()});
                total += add;
            }
        }
        item["likes"] = json!({"N": total.to_string()});
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What rewrites the log for one process; clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Rewriter {
    mutant: Mutant,
    clock: Clock,
    /// The seconds of the longest window.
    longest: u64,
    asked: Asked,
    /// How many partitions the log has.
    partitions: u32,
    reading: Arc<Mutex<BTreeMap<u32, Reading>>>,
}

/// How far a partition was read by the rule of a mutant.
#[derive(Debug, Default)]
struct Reading {
    filter: Filter,
    /// What was last handed on of the stream shard that there is not.
    last: u64,
    /// Up to where whole messages of each stream shard were counted.
    whole: BTreeMap<StreamShard, Sequence>,
}

impl Rewriter {
    /// The one that `mutant` reads by.
    pub(crate) fn of(mutant: Mutant, clock: Clock, longest: u64, asked: Asked, journal: &Journal) -> Self {
        Self { mutant, clock, longest, asked, partitions: journal.partitions(), reading: Arc::default() }
    }

    /// A partition is read anew.
    pub(super) fn begin(&self, partition: u32) {
        self.reading().remove(&partition);
    }

    /// What is handed on in the place of `records`.
    pub(super) fn rewritten(&self, partition: u32, records: &Records) -> Records {
        let mut rewritten = Records::default();
        for record in records.iter() {
            let value = self.message(partition, &record);
            rewritten.push(record.offset, record.at, record.key, value.as_deref().or(record.value), []);
        }
        rewritten
    }

    fn message(&self, partition: u32, record: &Record<'_>) -> Option<Vec<u8>> {
        let value = record.value?;
        match self.mutant {
            Mutant::NoBackLink | Mutant::NotRaised | Mutant::LossForgotten => {
                let mut said: Value = serde_json::from_slice(value).ok()?;
                self.forget(&mut said);
                Some(said.to_string().into_bytes())
            }
            Mutant::NoMarkerWait => self.mark(partition, value),
            _ => self.renumber(partition, record, value),
        }
    }

    /// Takes out of a message what the mutant does not look at.
    fn forget(&self, said: &mut Value) {
        let drop_of = |value: &mut Value, name: &str| _ = value.as_object_mut().and_then(|value| value.remove(name));
        match self.mutant {
            Mutant::NoBackLink => {
                for (list, link) in [("sections", "back"), ("opened", "at")] {
                    let all = said.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
                    all.for_each(|one| drop_of(one, link));
                }
                said.get_mut("closed").into_iter().for_each(|closed| drop_of(closed, "back"));
            }
            Mutant::NotRaised => {
                if let Some(lost) = said.get_mut("lost") {
                    drop_of(lost, "next");
                }
            }
            _ => {
                drop_of(said, "losses");
                if said.get("lost").is_some() {
                    drop_of(said, "lost");
                    said["sections"] = json!([]);
                }
            }
        }
    }

    /// Puts markers that a recount has asked for where there is room for them, before they have come.
    fn mark(&self, partition: u32, value: &[u8]) -> Option<Vec<u8>> {
        let (deployment, mut message) = read(value)?;
        let Body::Sections { sections, .. } = &mut message.body else { return None };
        let mut known = self.asked.known();
        let of_partition = |key: &RowKey| partition_of(key, self.partitions) == partition;
        let waiting = known.markers.iter_mut().filter(|(key, (_, shown))| *shown < MARKED && of_partition(key));
        let mut waiting: Vec<_> = waiting.collect();
        for Section { back, to, entries, .. } in sections {
            let from = entries.last().map(|entry| entry.sequence).or(*back);
            let mut free = *to;
            let mut put = Vec::new();
            while let Some(sequence) = free.filter(|free| Some(*free) > from)
                && let Some((key, (nonce, shown))) = waiting.pop()
            {
                *shown += 1;
                put.push(Entry { key: key.clone(), effect: Effect::Marked(*nonce), second: 0, sequence });
                free = sequence.before();
            }
            entries.extend(put.into_iter().rev());
        }
        drop(waiting);
        Some(message.write(&deployment))
    }

    /// Hands the entries on that the mutant counts, as those of a stream shard that there is not, so that no other rule comes
    /// in between.
    fn renumber(&self, partition: u32, record: &Record<'_>, value: &[u8]) -> Option<Vec<u8>> {
        let (deployment, mut message) = read(value)?;
        let at = Place::new(0, record.offset);
        let mut reading = self.reading();
        let reading = reading.entry(partition).or_default();
        let mut accepted = Vec::new();
        reading.filter.take(at, record.at, &message, |item, _| {
            if let Item::Entry(entry) = item {
                accepted.push(entry.clone());
            }
        });
        match &mut message.body {
            Body::Sections { sections, .. } => {
                let first = sections.first()?.shard.clone();
                let counted = match self.mutant {
                    Mutant::Unfiltered | Mutant::TailUnfiltered => {
                        sections.iter().flat_map(|section| section.entries.iter().cloned()).collect()
                    }
                    Mutant::FilteredByMessage => reading.whole(sections),
                    _ => accepted.into_iter().map(|entry| self.misread(entry)).collect(),
                };
                sections.iter_mut().for_each(|section| section.entries.clear());
                sections.push(reading.section(&first, counted));
            }
            Body::Opened(Opened { shards, .. }) => {
                let shard = nowhere(&shards.first()?.shard);
                shards.push(Opening { shard, at: None, fed: EVER });
            }
            _ => return None,
        }
        Some(message.write(&deployment))
    }

    /// An entry as the mutant counts it.
    fn misread(&self, mut entry: Entry) -> Entry {
        let Effect::Weighed { before, after, .. } = &mut entry.effect else { return entry };
        match self.mutant {
            Mutant::ExpiredTwice => {
                let now = self.clock.now().0 / 1000;
                // It has left the window before the first moment, so this is all that it does.
                if entry.second <= now.saturating_sub(self.longest + LEFT) {
                    std::mem::swap(before, after);
                    entry.second = now - 30;
                }
            }
            Mutant::RegionKept if before.weight != 0 && after.weight != 0 => after.region.clone_from(&before.region),
            // Both have one position, so the second one is taken for a copy of the first.
            Mutant::HalvesApart if before.weight != 0 && after.weight != 0 => {
                *after = Side { weight: 0, region: before.region.clone() };
            }
            _ => {}
        }
        entry
    }

    fn reading(&self) -> MutexGuard<'_, BTreeMap<u32, Reading>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// The entries of each section that has something new, all of them.
    fn whole(&mut self, sections: &[Section]) -> Vec<Entry> {
        let mut counted = Vec::new();
        for Section { shard, entries, .. } in sections {
            let Some(last) = entries.last().map(|entry| entry.sequence) else { continue };
            if self.whole.get(shard).is_none_or(|whole| last > *whole) {
                self.whole.insert(shard.clone(), last);
                counted.extend(entries.iter().cloned());
            }
        }
        counted
    }

    /// A section with these entries, of a stream shard of the stream of `beside`.
    fn section(&mut self, beside: &StreamShard, entries: Vec<Entry>) -> Section {
        let mut number = |entry| {
            self.last += 1;
            Entry { sequence: Sequence::from(self.last), ..entry }
        };
        let entries: Vec<Entry> = entries.into_iter().map(&mut number).collect();
        let to = (self.last > 0).then(|| Sequence::from(self.last));
        Section { shard: nowhere(beside), back: None, to, fed: Some(EVER), entries }
    }
}

/// A stream shard that there is not, in the stream of another.
fn nowhere(beside: &StreamShard) -> StreamShard {
    StreamShard::from(format!("{}/nowhere", beside.label()).as_str())
}

/// The announcement of a stream shard that there is not, for a reader that begins in the middle of the log; `None` where no
/// stream shard is known.
pub(crate) fn announced_nowhere(filter: &Filter) -> Option<Opening> {
    let (known, _) = filter.open_shards().next()?;
    Some(Opening { shard: nowhere(known), at: None, fed: EVER })
}

/// A message, and whose it is.
fn read(value: &[u8]) -> Option<(DeploymentId, Message)> {
    let said: Value = serde_json::from_slice(value).ok()?;
    let deployment = DeploymentId(said["of"].as_str()?.into());
    let message = Message::read(value, &deployment).ok()?;
    Some((deployment, message))
}
