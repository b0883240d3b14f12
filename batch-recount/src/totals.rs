//! The total of a post, which has to be the sum over its shards: mended at once where it is not.

use tally_core::counter::Counter;
use tally_core::ids::PostId;
use tally_core::ports::{LedgerEntry, Mended};

use crate::summary::{Cause, Drift, Findings};
use crate::tools::Tools;

/// Tries at a counter that keeps changing under us.
const TRIES: u32 = 10;

/// What setting a total with its ledger line costs: two items in a transaction.
const MENDING: u64 = 4;

/// Sets the total of `post` to its sum where it is not; 1 where it is left wrong, 0 otherwise.
pub(crate) async fn mend(
    tools: &Tools,
    post: &PostId,
    counter: &Counter,
    dry_run: bool,
    findings: &Findings,
) -> anyhow::Result<u64> {
    let mut counter = counter.clone();
    for _ in 0..TRIES {
        let Ok(sum) = counter.sum() else {
            tracing::error!(%post, "the counts of a post add up to more than 64 bits hold");
            return Ok(1);
        };
        if sum == counter.likes {
            return Ok(0);
        }
        let drift = Drift { key: post.to_string(), before: counter.likes, after: sum, cause: Cause::Total };
        if dry_run {
            findings.differs(drift);
            return Ok(1);
        }
        match write(tools, post, &counter, sum).await? {
            Mended::Mended => {
                tracing::info!(%post, before = drift.before, after = sum, "the total is the sum again");
                findings.corrected(drift);
                return Ok(0);
            }
            Mended::Changed => match tools.counter(post).await? {
                Some(changed) => counter = changed,
                None => return Ok(0),
            },
        }
    }
    tracing::warn!(%post, "a total changes too fast to be mended");
    Ok(1)
}

/// Safe to repeat: the version it requires is the one it moves. A copy whose answer was lost shows as a change.
async fn write(tools: &Tools, post: &PostId, counter: &Counter, sum: i64) -> anyhow::Result<Mended> {
    let entry = LedgerEntry {
        post: post.clone(),
        shard: None,
        at: tools.clock.now(),
        run: tools.draw_run(),
        by: tools.me.0.clone(),
        before: counter.likes,
        after: sum,
        why: Cause::Total.label().to_owned(),
    };
    let counts = &tools.ports.counts;
    let mended = tools.persist("mend a total", || counts.mend_total(post, counter.version, sum, &entry)).await?;
    tools.spent.wrote(MENDING);
    Ok(mended)
}
