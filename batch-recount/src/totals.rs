//! Mends totals: carries out what [`MendTotal`] asks for.

use tally_core::audit::{Cause, Drift, MendTotal, TotalEffect, TotalEnding, TotalInput, WrongTotal};
use tally_core::counter::Counter;
use tally_core::ids::CounterId;
use tally_core::ports::{LedgerEntry, Mended};

use crate::findings::Findings;
use crate::windows::Windows;

/// What setting a total with its ledger line costs: two items in a transaction.
const MENDING: u64 = 4;

impl Windows {
    /// Sets the total of counter `id` to its sum where it is not; 1 where it is left wrong, 0 otherwise.
    pub(crate) async fn mend_total(
        &self,
        id: &CounterId,
        counter: Option<Counter>,
        dry_run: bool,
        findings: &Findings,
    ) -> anyhow::Result<u64> {
        let (mut mend, mut effects) = (MendTotal::new(dry_run), Vec::new());
        mend.step(TotalInput::Counter(counter), &mut effects);
        loop {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    TotalEffect::Mend(wrong) => {
                        let written = self.write_total(id, wrong).await?;
                        mend.step(TotalInput::Written(written), &mut effects);
                    }
                    TotalEffect::ReadCounter => {
                        let counter = self.store.counter(id).await?;
                        mend.step(TotalInput::Counter(counter), &mut effects);
                    }
                    TotalEffect::Differs(wrong) => findings.differs(drift(id, wrong)),
                    TotalEffect::End(ending) => return Ok(ended(id, ending, findings)),
                }
            }
        }
    }

    async fn write_total(
        &self,
        id: &CounterId,
        WrongTotal { version, total, sum }: WrongTotal,
    ) -> anyhow::Result<Mended> {
        let entry = LedgerEntry {
            counter: id.clone(),
            shard: None,
            at: self.store.now(),
            run: self.draw_run(),
            by: self.claims.me.0.clone(),
            before: total,
            after: sum,
            why: Cause::Total.label().to_owned(),
        };
        let mend = || self.store.ports.counts.mend_total(id, version, sum, &entry);
        let mended = self.store.persist("mend a total", mend).await?;
        self.store.wrote(MENDING);
        Ok(mended)
    }
}

fn drift(id: &CounterId, wrong: WrongTotal) -> Drift {
    Drift { key: id.to_string(), before: wrong.total, after: wrong.sum, cause: Cause::Total }
}

fn ended(id: &CounterId, ending: TotalEnding, findings: &Findings) -> u64 {
    match ending {
        TotalEnding::Right => 0,
        TotalEnding::Mended(wrong) => {
            tracing::info!(counter = %id, before = wrong.total, after = wrong.sum, "the total is the sum again");
            findings.corrected(drift(id, wrong));
            0
        }
        TotalEnding::Shown => 1,
        TotalEnding::Busy => {
            tracing::warn!(counter = %id, "a total changes too fast to be mended");
            1
        }
        TotalEnding::Overflow => {
            tracing::error!(counter = %id, "the counts of one counter add up to more than 64 bits hold");
            1
        }
    }
}
