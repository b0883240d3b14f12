//! Breaks a rule of the simulated processes that read the topics `changes` and `boards`, to see whether the laws
//! notice: it rewrites the messages, so that the real reader gets what a reader without the rule would have understood.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tally_core::changes::{
    Body, Correction, DeploymentId, Effect, Entry, Filter, Message, Nonce, Opened, Opening, Place, Section, Side,
    partition_of,
};
use tally_core::fold::{Applied, Change, Counter};
use tally_core::ids::{CounterId, RowKey, Sequence, StreamShard};
use tally_core::ports::log::{Record, Records};
use tally_core::time::UnixMillis;
use tally_service::Clock;
use tally_trends::{Published, Shelf, Tick};
use tokio::time::Instant;

use crate::simulation::journal::Journal;
use crate::simulation::mutant::Mutant;

/// The age in seconds, beyond the longest window, at which a change has certainly left it.
const LEFT: u64 = 60;

/// The time up to which the invented stream shard is complete: later than any other.
const EVER: UnixMillis = UnixMillis(9_000_000_000_000);

/// How long a recount takes a correction that it has sent for applied.
const SETTLED: Duration = Duration::from_secs(20);

/// How often a recount that does not wait for its marker sees it.
const MARKED: u32 = 3;

/// What a recount has asked of the log. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// The last marker of the recount for each row key, and how often it was shown.
    markers: BTreeMap<RowKey, (Nonce, u32)>,
    /// The last state of each counter that was read: its number of corrections, and its position.
    counters: BTreeMap<CounterId, (u64, Place)>,
    /// The last correction of each counter that was sent.
    corrections: BTreeMap<CounterId, Sent>,
}

/// A correction that was sent.
#[derive(Debug)]
struct Sent {
    correction: Correction,
    /// The position of the counter for which it was calculated.
    of: Place,
    at: Instant,
}

impl Asked {
    /// The recount has put a marker.
    pub(crate) fn marked(&self, key: &str, nonce: &str) {
        if let (Ok(key), Ok(nonce)) = (key.parse(), nonce.parse()) {
            self.0.lock().markers.insert(key, (nonce, 0));
        }
    }

    /// The recount has sent a correction.
    pub(super) fn corrected(&self, value: &[u8]) {
        let Some(Body::Correction(correction)) = read(value).map(|(_, message)| message.body) else { return };
        let (id, mut known) = (correction.counter.clone(), self.0.lock());
        let Some((_, of)) = known.counters.get(&id).filter(|(seen, _)| *seen == correction.seen) else { return };
        let sent = Sent { of: *of, at: Instant::now(), correction };
        known.corrections.insert(id, sent);
    }

    /// Changes the item of a counter as if the correction that was sent had been applied.
    pub(crate) fn settle(&self, item: &mut Value, journal: &Journal) {
        let number = |value: &Value| value["N"].as_str().and_then(|number| number.parse::<i64>().ok());
        let whole = |value: &Value| number(value).and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
        let Some(id) = item["post_id"]["S"].as_str().and_then(|id| id.parse::<CounterId>().ok()) else { return };
        let (place, mut known) = (Place::from_stored(whole(&item["version"])), self.0.lock());
        known.counters.insert(id.clone(), (whole(&item["c"]), place));
        let Some(sent) = known.corrections.get(&id).filter(|sent| sent.at.elapsed() < SETTLED) else { return };
        if !sent.was_refused(place, journal) {
            return;
        }
        let mut total = number(&item["likes"]).unwrap_or_default();
        for (shard, amend) in &sent.correction.parts {
            if let tally_core::changes::Amend::Add(add) = amend {
                let name = format!("s{shard}");
                let part = number(&item[&name]).unwrap_or_default();
                item[&name] = json!({"N": (part + add).to_string()});
                total += add;
            }
        }
        item["likes"] = json!({"N": total.to_string()});
    }
}

impl Sent {
    /// Whether the counter has passed the correction before this position without applying it.
    fn was_refused(&self, before: Place, journal: &Journal) -> bool {
        let items = journal.between(&self.correction.counter, self.of, before).unwrap_or_default();
        let mut counter = Counter { version: self.of, corrections: self.correction.seen, ..Counter::default() };
        let applied = items.iter().map(|item| {
            let is_it = matches!(item.change(), Change::Correction(correction) if *correction == self.correction);
            (is_it, counter.apply(item.at, item.change(), item.loss))
        });
        applied.filter(|(is_it, _)| *is_it).last().is_some_and(|(_, applied)| applied == Ok(Applied::Nothing))
    }
}

/// Rewrites the log for one process. Clones share its state.
#[derive(Clone, Debug)]
pub(crate) struct Rewriter {
    mutant: Mutant,
    clock: Clock,
    /// The length of the longest window in seconds.
    longest: u64,
    asked: Asked,
    /// The number of partitions of the log.
    partitions: u32,
    reading: Arc<Mutex<BTreeMap<u32, Reading>>>,
}

/// The state of reading a partition by a mutant's rule.
#[derive(Debug, Default)]
struct Reading {
    /// The last sequence number of the invented stream shard.
    last: u64,
    /// How far whole messages of each stream shard were counted.
    whole: BTreeMap<StreamShard, Sequence>,
}

impl Rewriter {
    /// The rewriter for `mutant`.
    pub(crate) fn of(mutant: Mutant, clock: Clock, longest: u64, asked: Asked, journal: &Journal) -> Self {
        Self { mutant, clock, longest, asked, partitions: journal.partitions, reading: Arc::default() }
    }

    /// A partition is read again from its start.
    pub(super) fn begin(&self, partition: u32) {
        self.reading.lock().remove(&partition);
    }

    /// The records that the reader gets instead of `records`.
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
            Mutant::ExpiredTwice | Mutant::RegionKept | Mutant::HalvesApart => self.misread(value),
            _ => self.renumber(partition, value),
        }
    }

    /// Removes from a message what the mutant ignores.
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

    /// Puts the markers of a recount where there is room, before the real ones arrive.
    fn mark(&self, partition: u32, value: &[u8]) -> Option<Vec<u8>> {
        let (deployment, mut message) = read(value)?;
        let Body::Sections { sections, .. } = &mut message.body else { return None };
        let mut known = self.asked.0.lock();
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

    /// Passes on the entries that the mutant counts as those of an invented stream shard, so that no other rule affects them.
    fn renumber(&self, partition: u32, value: &[u8]) -> Option<Vec<u8>> {
        let (deployment, mut message) = read(value)?;
        let mut reading = self.reading.lock();
        let reading = reading.entry(partition).or_default();
        match &mut message.body {
            Body::Sections { sections, .. } => {
                let first = sections.first()?.shard.clone();
                let counted = match self.mutant {
                    Mutant::FilteredByMessage => reading.whole(sections),
                    _ => sections.iter().flat_map(|section| section.entries.iter().cloned()).collect(),
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

    /// Passes on the entries, each as the mutant counts it.
    fn misread(&self, value: &[u8]) -> Option<Vec<u8>> {
        let (deployment, mut message) = read(value)?;
        let Body::Sections { sections, .. } = &mut message.body else { return None };
        sections.iter_mut().flat_map(|section| &mut section.entries).for_each(|entry| self.miscount(entry));
        Some(message.write(&deployment))
    }

    fn miscount(&self, entry: &mut Entry) {
        let Effect::Weighed { before, after, .. } = &mut entry.effect else { return };
        match self.mutant {
            Mutant::ExpiredTwice => {
                let now = self.clock.now().0 / 1000;
                // The change left the window before the first moment, so subtracting it is its only effect.
                if entry.second <= now.saturating_sub(self.longest + LEFT) {
                    std::mem::swap(before, after);
                    entry.second = now - 30;
                }
            }
            Mutant::RegionKept if before.weight != 0 && after.weight != 0 => after.region.clone_from(&before.region),
            // Both have one position, so the second is taken for a copy of the first.
            Mutant::HalvesApart if before.weight != 0 && after.weight != 0 => {
                *after = Side { weight: 0, region: before.region.clone(), v: None };
            }
            _ => {}
        }
    }
}

impl Reading {
    /// All entries of each section that contains something new.
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

    /// A section with these entries, of an invented stream shard in the stream of `beside`.
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

/// An invented stream shard in the stream of another one.
fn nowhere(beside: &StreamShard) -> StreamShard {
    StreamShard::from(format!("{}/nowhere", beside.label()).as_str())
}

/// Announces the invented stream shard to a reader that begins in the middle of the log; `None` if no stream shard is known.
pub(crate) fn announced_nowhere(filter: &Filter) -> Option<Opening> {
    let (known, _) = filter.open_shards().next()?;
    Some(Opening { shard: nowhere(known), at: None, fed: EVER })
}

/// Parses a message and its deployment.
fn read(value: &[u8]) -> Option<(DeploymentId, Message)> {
    let said: Value = serde_json::from_slice(value).ok()?;
    let deployment = DeploymentId(said["of"].as_str()?.into());
    let message = Message::read(value, &deployment).ok()?;
    Some((deployment, message))
}

/// What a reader that breaks a rule does with the messages of boards.
#[derive(Debug)]
pub(super) enum Misread {
    /// Takes the latest lists of all partitions for those of one moment.
    MomentsMixed(BTreeMap<u32, Tick>),
    /// Takes the last written list for the latest.
    OlderTaken { all: Vec<Published>, latest: BTreeMap<u32, u64> },
}

impl Misread {
    /// The reader of `mutant`, if it has one.
    pub(super) fn of(mutant: Mutant) -> Option<Self> {
        match mutant {
            Mutant::MomentsMixed => Some(Self::MomentsMixed(BTreeMap::new())),
            Mutant::OlderTaken => Some(Self::OlderTaken { all: Vec::new(), latest: BTreeMap::new() }),
            _ => None,
        }
    }

    /// Passes `message` on to `shelf`, together with what breaks the rule.
    pub(super) fn take(&mut self, message: Published, shelf: &mut Shelf) {
        match (self, &message) {
            (Self::MomentsMixed(latest), Published::Tick(tick)) => {
                let moment = tick.moment;
                latest.insert(tick.partition, tick.clone());
                shelf.take(message);
                for other in latest.values().filter(|other| other.moment < moment) {
                    shelf.take(Published::Tick(Tick { moment, ..other.clone() }));
                }
            }
            (Self::OlderTaken { all, latest }, Published::Tick(tick)) => {
                let (moment, before) = (tick.moment, latest.insert(tick.partition, tick.moment));
                all.push(message.clone());
                if before.is_none_or(|before| moment >= before) {
                    shelf.take(message);
                    return;
                }
                // The list replaces all later ones.
                *shelf = Shelf::default();
                shelf.read_whole();
                let later = |message: &&Published| matches!(message, Published::Tick(tick) if tick.moment > moment);
                all.iter().filter(|message| !later(message)).for_each(|message| shelf.take(message.clone()));
            }
            (Self::OlderTaken { all, .. }, Published::Board(_)) => {
                all.push(message.clone());
                shelf.take(message);
            }
            (Self::MomentsMixed(_), Published::Board(_)) => shelf.take(message),
        }
    }
}
