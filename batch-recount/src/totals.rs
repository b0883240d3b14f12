//! The total of a counter, which has to be the sum over its shards: mended at once where it is not.

use tally_core::counter::Counter;
use tally_core::ids::CounterId;
use tally_core::ports::{LedgerEntry, Mended};

use crate::summary::{Cause, Drift, Findings};
use crate::tools::Tools;

/// Tries at a counter that keeps changing under us.
const TRIES: u32 = 10;

/// What setting a total with its ledger line costs: two items in a transaction.
const MENDING: u64 = 4;

/// Sets the total of `id` to its sum where it is not; 1 where it is left wrong, 0 otherwise.
pub(crate) async fn mend(
    tools: &Tools,
    id: &CounterId,
    counter: &Counter,
    dry_run: bool,
    findings: &Findings,
) -> anyhow::Result<u64> {
    let mut counter = counter.clone();
    for _ in 0..TRIES {
        let Ok(sum) = counter.sum() else {
            tracing::error!(counter = %id, "the counts of one counter add up to more than 64 bits hold");
            return Ok(1);
        };
        if sum == counter.likes {
            return Ok(0);
        }
        let drift = Drift { key: id.to_string(), before: counter.likes, after: sum, cause: Cause::Total };
        if dry_run {
            findings.differs(drift);
            return Ok(1);
        }
        match write(tools, id, &counter, sum).await? {
            Mended::Mended => {
                tracing::info!(counter = %id, before = drift.before, after = sum, "the total is the sum again");
                findings.corrected(drift);
                return Ok(0);
            }
            Mended::Changed => match tools.counter(id).await? {
                Some(changed) => counter = changed,
                None => return Ok(0),
            },
        }
    }
    tracing::warn!(counter = %id, "a total changes too fast to be mended");
    Ok(1)
}

/// Safe to repeat: the version it requires is the one it moves. A copy whose answer was lost shows as a change.
async fn write(tools: &Tools, id: &CounterId, counter: &Counter, sum: i64) -> anyhow::Result<Mended> {
    let entry = LedgerEntry {
        counter: id.clone(),
        shard: None,
        at: tools.clock.now(),
        run: tools.draw_window(),
        by: tools.me.0.clone(),
        before: counter.likes,
        after: sum,
        why: Cause::Total.label().to_owned(),
    };
    let counts = &tools.ports.counts;
    let mended = tools.persist("mend a total", || counts.mend_total(id, counter.version, sum, &entry)).await?;
    tools.spent.wrote(MENDING);
    Ok(mended)
}
