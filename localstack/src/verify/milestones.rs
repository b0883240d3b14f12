//! The milestones that were recorded, against what the log of changes says.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tally_core::ids::{CounterId, CounterName, StreamLabel, StreamShardId};
use tally_core::milestone::Ladder;
use tally_core::ports::{ChangeStream as _, Position};
use tally_core::tally::{Record, read};

use super::Verify;
use super::differences::Differences;
use crate::milestones::First;

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
