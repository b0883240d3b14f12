//! The ledger against the stream: every verdict must have found the rows that stood at its closing marker, and have known
//! what was counted there. A wrong one that the next has repaired is a wrong one.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use tally_core::ids::{RowKey, Sequence};
use tally_core::ports::LedgerEntry;
use tally_core::watermark::Reach;

use super::super::archive::Archive;
use super::{Injection, Seen};

/// What recounts have said, by row key, in the order of their closing markers.
pub(crate) struct Verdicts(BTreeMap<RowKey, Vec<(Sequence, LedgerEntry)>>);

impl Verdicts {
    /// The verdicts of a ledger; totals mended are none.
    pub(crate) fn of(ledger: Vec<LedgerEntry>, archive: &Archive) -> anyhow::Result<Self> {
        let mut verdicts: BTreeMap<RowKey, Vec<(Sequence, LedgerEntry)>> = BTreeMap::new();
        for entry in ledger {
            let Some(shard) = entry.shard else { continue };
            let key = RowKey { counter: entry.counter.clone(), shard };
            let (_, closed) = archive.closing(&key, entry.run).context("a verdict without a closing marker")?;
            verdicts.entry(key).or_default().push((closed, entry));
        }
        verdicts.values_mut().for_each(|of_key| of_key.sort_by_key(|(closed, _)| *closed));
        Ok(Self(verdicts))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u64 {
        self.0.values().map(|of_key| of_key.len() as u64).sum()
    }

    /// Whether some verdict on `key` found nothing to correct.
    pub(crate) fn proved(&self, key: &RowKey) -> bool {
        self.0.get(key).is_some_and(|of_key| of_key.iter().any(|(_, entry)| entry.before == entry.after))
    }

    /// What they have added to each row key.
    pub(crate) fn corrections(&self) -> BTreeMap<RowKey, i64> {
        let sum =
            |of_key: &Vec<(Sequence, LedgerEntry)>| of_key.iter().map(|(_, entry)| entry.after - entry.before).sum();
        self.0.iter().map(|(key, of_key)| (key.clone(), sum(of_key))).collect()
    }

    /// Each has found the rows there were at its closing marker.
    pub(crate) fn found_the_rows(&self, archive: &Archive) -> anyhow::Result<()> {
        for (key, of_key) in &self.0 {
            for (closed, entry) in of_key {
                let (shard, _) = archive.closing(key, entry.run).context("a verdict without a closing marker")?;
                let rows = archive.rows_at(key, shard, *closed);
                ensure!(
                    entry.after == rows,
                    "a verdict on {key} by run {} found {} rows, and {rows} stood at its closing marker",
                    entry.run,
                    entry.after
                );
            }
        }
        Ok(())
    }

    /// Each has known what was counted at its closing marker: the rows, what was done by hand before, and what earlier
    /// verdicts had added. True only where nothing of the stream was lost.
    pub(crate) fn knew_the_count(
        &self,
        archive: &Archive,
        injections: &[Injection],
        seen: &Seen,
    ) -> anyhow::Result<()> {
        for (key, of_key) in &self.0 {
            let mut corrected = 0;
            for (closed, entry) in of_key {
                let (id, _) = archive.closing(key, entry.run).context("a verdict without a closing marker")?;
                let shard = seen.ordinal(id).context("a verdict in a stream shard without a number")?;
                let before_it = |injection: &&Injection| {
                    injection.key == *key
                        && match injection.applied.reach(shard) {
                            Reach::Untouched => true,
                            Reach::Through(mark) => mark < *closed,
                            Reach::Finished => false,
                        }
                };
                let injected: i64 = injections.iter().filter(before_it).map(|injection| injection.amount).sum();
                let counted = archive.rows_at(key, id, *closed) + injected + corrected;
                ensure!(
                    entry.before == counted,
                    "a verdict on {key} by run {} knew of {} counted rows, and {counted} were counted at its closing marker",
                    entry.run,
                    entry.before
                );
                corrected += entry.after - entry.before;
            }
        }
        Ok(())
    }
}
