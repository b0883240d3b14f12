//! Who was first at which threshold: the records, against what the log of changes says.
//!
//! The log is followed while the load runs, since the embedded Kafka keeps little of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_adapters::dynamodb::changes::{Changes as Log, Config};
use tally_adapters::kafka;
use tally_core::changes::{Filter, Item, Message, Place};
use tally_core::fold::{Change, Counter};
use tally_core::ids::{CounterId, CounterName, StreamLabel, StreamShardId};
use tally_core::milestone::{Ladder, Milestone, Winner};
use tally_core::ports::{ChangeStream as _, Outcome, Position, TopicReader};
use tally_core::tally::{Record, read};
use tally_core::time::UnixMillis;
use tally_service::{Clock, Stop};

use crate::verify::{Differences, Verify};

/// How often the log is read.
const EVERY: Duration = Duration::from_millis(200);

/// What reached a threshold first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct First {
    /// Who or what.
    pub(crate) by: Winner,
    /// The second of the change; nothing of a threshold that no change reached.
    pub(crate) second: Option<u64>,
}

impl From<&Milestone> for First {
    fn from(milestone: &Milestone) -> Self {
        let second = (milestone.by != Winner::Unwitnessed).then_some(milestone.at.0 / 1000);
        Self { by: milestone.by.clone(), second }
    }
}

/// The thresholds of each counter that were reached.
pub(crate) type Firsts = BTreeMap<CounterId, BTreeMap<i64, First>>;

/// What the log has said so far; clones are the same. The ladder is in force from its beginning, as the log has to say.
#[derive(Clone, Debug)]
pub(crate) struct Changes(Arc<Mutex<BTreeMap<u32, Partition>>>, Ladder);

/// One partition of the log.
#[derive(Debug, Default)]
struct Partition {
    next: Place,
    filter: Filter,
    counters: BTreeMap<CounterId, Counter>,
    firsts: Firsts,
}

impl Changes {
    pub(crate) fn of(ladder: Ladder) -> Self {
        Self(Arc::default(), ladder)
    }

    /// What reached which threshold of each counter first.
    pub(crate) fn firsts(&self) -> Firsts {
        self.kept().values().flat_map(|partition| partition.firsts.clone()).collect()
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<u32, Partition>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what the log has more.
    async fn follow(&self, reader: &dyn TopicReader, config: &Config) -> Outcome<()> {
        for (partition, log) in reader.logs().await? {
            let next = self.kept().entry(partition.index).or_default().next.offset();
            let mut from = next.max(log.start);
            while from < log.end {
                let records = reader.read(&partition, from, log.end).await?;
                let Some(last) = records.last_offset() else { break };
                let mut kept = self.kept();
                let known = kept.entry(partition.index).or_default();
                for record in records.iter() {
                    let message = record.value.and_then(|value| Message::read(value, &config.deployment).ok());
                    if let Some(message) = message {
                        known.take(Place::new(config.generation, record.offset), record.at, &message, &self.1);
                    }
                }
                from = last.next();
            }
        }
        Ok(())
    }
}

impl Partition {
    fn take(&mut self, at: Place, appended: UnixMillis, message: &Message, ladder: &Ladder) {
        let Self { next, filter, counters, firsts } = self;
        *next = at.next();
        filter.take(at, appended, message, |item, loss| {
            let (id, change, entry) = match item {
                Item::Entry(entry) => (&entry.key.counter, Change::Entry(entry), Some(entry)),
                Item::Correction(correction) => (&correction.counter, Change::Correction(correction), None),
                Item::Ladder(_) => return,
            };
            let counter = counters.entry(id.clone()).or_default();
            let before = counter.likes;
            if counter.apply(at, change, loss).is_err() || counter.likes <= before {
                return;
            }
            let known = firsts.entry(id.clone()).or_default();
            let through = known.last_key_value().map(|(n, _)| *n);
            for n in ladder.crossed(through, counter.likes).thresholds {
                let first = match entry.filter(|_| n > before) {
                    Some(entry) => First { by: Winner::of(entry, n - before), second: Some(entry.second) },
                    None => First { by: Winner::Unwitnessed, second: None },
                };
                known.insert(n, first);
            }
        });
    }
}

/// Follows the log from now on, into `changes`. A read that fails is made again.
pub(crate) async fn follow_log(
    changes: Changes,
    log: Log,
    reader: kafka::TopicReader,
    clock: Clock,
    stop: Stop,
) -> anyhow::Result<()> {
    loop {
        let follow = async {
            if let Some(config) = log.config().await? {
                changes.follow(&reader, &config).await?;
            }
            Outcome::Ok(())
        };
        if let Err(fault) = stop.unless_requested(follow).await? {
            tracing::debug!(%fault, "the log of changes cannot be read for the comparison");
        }
        stop.unless_requested(clock.sleep(EVERY)).await?;
    }
}

/// The most records of one counter that are compared.
const MOST: u32 = 100_000;

/// What was compared of milestones.
#[derive(Debug, Default)]
pub(crate) struct ComparedMilestones {
    /// Records, by the counters' name.
    pub(crate) recorded: BTreeMap<CounterName, u64>,
    /// Of these, thresholds that no record of the stream is named for.
    pub(crate) unwitnessed: u64,
}

impl fmt::Display for ComparedMilestones {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.recorded.iter().map(|(name, count)| format!("{count} of {}", name.as_str()));
        let of: Vec<String> = of.collect();
        let of = if of.is_empty() { "none".to_owned() } else { of.join(", ") };
        write!(f, "{of}, {} of them without a winner", self.unwitnessed)
    }
}

impl Verify<'_> {
    /// Each counter that reached a threshold has one record, of what reached it first, and no other counter has one. Nothing
    /// where the store is not the embedded one, or the load has no ladder.
    pub(super) async fn milestones(
        &self,
        counters: &BTreeSet<&CounterId>,
    ) -> anyhow::Result<Option<(ComparedMilestones, Differences)>> {
        let Some((changes, ladder)) = &self.0.milestones else { return Ok(None) };
        let expected = changes.firsts();
        let (mut compared, mut differences) = (ComparedMilestones::default(), Differences::default());
        for id in expected.keys().chain(counters.iter().copied()).collect::<BTreeSet<_>>() {
            let recorded = self.persist(|| self.0.engines.store.recounts.milestones(id, MOST)).await?;
            let found: BTreeMap<i64, First> =
                recorded.iter().map(|recorded| (recorded.milestone.n, First::from(&recorded.milestone))).collect();
            for recorded in recorded.iter().filter(|recorded| recorded.digest != recorded.milestone.digest(id)) {
                differences.add(|| format!("{id}: the record of {} is not as it was written", recorded.milestone.n));
            }
            compare(id, expected.get(id).unwrap_or(&BTreeMap::new()), &found, ladder, &mut differences);
            if !found.is_empty() {
                *compared.recorded.entry(id.name.clone()).or_default() += found.len() as u64;
            }
            compared.unwitnessed += found.values().filter(|first| first.second.is_none()).count() as u64;
        }
        Ok(Some((compared, differences)))
    }

    /// Every record that the stream still shows of one of its shards.
    pub(super) async fn shard_records(&self, label: &StreamLabel, id: &StreamShardId) -> anyhow::Result<Vec<Record>> {
        let (store, mut found) = (&self.0.engines.store, Vec::new());
        let read_from = || async { Ok(store.stream.iterator(label, id, Position::Oldest).await?) };
        let mut iterator = self.persist(read_from).await?;
        loop {
            let page = self.persist(|| async { Ok(store.stream.records(&iterator, 1_000).await?) }).await?;
            found.extend(page.records.iter().filter_map(read));
            match page.next {
                Some(next) if !page.records.is_empty() => iterator = next,
                _ => return Ok(found),
            }
        }
    }
}

fn compare(
    id: &CounterId,
    expected: &BTreeMap<i64, First>,
    found: &BTreeMap<i64, First>,
    ladder: &Ladder,
    differences: &mut Differences,
) {
    for n in expected.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        match (expected.get(n), found.get(n)) {
            (Some(right), Some(recorded)) if right == recorded => {}
            (Some(right), Some(recorded)) => {
                differences.add(|| format!("{id}: {recorded:?} is recorded at {n}, the log says {right:?}"));
            }
            (Some(right), None) => differences.add(|| format!("{id}: {n} has no record, the log says {right:?}")),
            (None, recorded) => {
                differences.add(|| format!("{id}: {n} was never reached, and has a record: {recorded:?}"));
            }
        }
        if !ladder.has(*n) {
            differences.add(|| format!("{id}: {n} is no threshold"));
        }
    }
}
