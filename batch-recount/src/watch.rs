//! Runs recounts until the process is asked to stop (`--watch`): audits when losses or requests ask for them, and
//! beside them recounts of what is queued.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, try_join4};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_core::audit::{RunRecord, RunScope};
use tally_core::backoff::Backoff;
use tally_core::time::UnixMillis;
use tally_service::{Exit, Host};
use tokio::sync::mpsc;

use crate::args::Scope;
use crate::metrics;
use crate::run::Run;
use crate::settle::{Blocked, Due, Part, Recount, Waiting};

/// How long after an audit that has left something the next one begins, unless there is another reason for one.
const AUDIT_AGAIN: Duration = Duration::from_secs(600);

/// How often the end of the last audit is looked up for its metric, and among how many runs.
const LAST_AUDIT_EVERY: Duration = Duration::from_secs(600);
const RUNS_LOOKED_THROUGH: u32 = 1_000;

/// How many second looks may wait, and how many are made at once.
const CORRECTED: usize = 100;

/// A second look at what a run has corrected.
type Recheck = BoxFuture<'static, anyhow::Result<()>>;

/// Watches until asked to stop. While the log is behind, `host` is not ready and says so.
pub(crate) async fn watch(of: &Recount, host: &Host) -> anyhow::Result<Exit> {
    let (rechecks, made) = mpsc::channel(CORRECTED);
    let (queues, made) = (Box::pin(queues(of, host, rechecks.clone())), Box::pin(all_made(made)));
    let (audits, shows) = (Box::pin(audits(of, host, rechecks)), Box::pin(shows_last_audit(of)));
    let (never, ..) = try_join4(queues, made, audits, shows).await?;
    match never {}
}

/// Recounts what is queued, whenever something is.
async fn queues(of: &Recount, host: &Host, rechecks: mpsc::Sender<Recheck>) -> anyhow::Result<Infallible> {
    let mut waiting = Waiting::default();
    loop {
        if of.is_queued(&waiting).await? && run(of, &Scope::Queue, &mut waiting, &rechecks).await?.is_none() {
            of.caught_up(host).await?;
        }
        of.calls.wait(of.rules.watch).await?;
    }
}

/// Runs an audit when something asks for one: a loss that is open, or a person.
async fn audits(of: &Recount, host: &Host, rechecks: mpsc::Sender<Recheck>) -> anyhow::Result<Infallible> {
    let (mut failed, mut behind) = (None::<(Due, Duration)>, 0);
    loop {
        let due = of.due().await?;
        let waits = failed.as_ref().is_some_and(|(known, until)| *known == due && !of.calls.is_past(*until));
        if !due.is_empty() && !waits {
            failed = None;
            match run(of, &Scope::Audit, &mut Waiting::default(), &rechecks).await? {
                Some(exit) => {
                    behind = 0;
                    if !exit.is_clean() {
                        tracing::warn!(again = ?AUDIT_AGAIN, "the audit has left row keys unproved: losses stay open");
                        failed = Some((due, of.calls.after(AUDIT_AGAIN)));
                    }
                }
                None => {
                    of.caught_up(host).await?;
                    // The log may fall behind during each scan.
                    let again = Backoff { base: of.rules.watch, cap: AUDIT_AGAIN };
                    of.calls.wait(again.ceiling(behind)).await?;
                    behind += 1;
                }
            }
        }
        of.calls.wait(of.rules.watch).await?;
    }
}

/// Carries out a run. Returns how it ended; `None` if the log did not go on. Hands a second look at what was corrected
/// to `rechecks`, which queues again what it leaves unsettled.
async fn run(
    of: &Recount,
    scope: &Scope,
    waiting: &mut Waiting,
    rechecks: &mpsc::Sender<Recheck>,
) -> anyhow::Result<Option<Exit>> {
    let run = async { Run::begin(of, scope).await?.once(waiting).await };
    let Some((exit, recount, corrected)) = unless_blocked(Box::pin(run).await)? else { return Ok(None) };
    if !corrected.is_empty() {
        let recheck = async move {
            let all = corrected.iter().map(|open| open.key.clone()).collect();
            let rechecked = recount.recheck(corrected, Some(Part::ALL)).await;
            recount.enqueue(unless_blocked(rechecked)?.map_or(all, |_| recount.left())).await
        };
        // The receiver is there as long as this sender.
        _ = rechecks.send(recheck.boxed()).await;
    }
    Ok(Some(exit))
}

/// Makes second looks while queue and audits go on, so that a loss that was opened meanwhile need not wait.
async fn all_made(mut rechecks: mpsc::Receiver<Recheck>) -> anyhow::Result<Infallible> {
    let rechecks = stream::poll_fn(|context| rechecks.poll_recv(context)).buffer_unordered(CORRECTED);
    rechecks.try_for_each(|()| std::future::ready(Ok(()))).await?;
    std::future::pending().await
}

/// Returns the result; `None` if the log did not go on.
fn unless_blocked<T>(result: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match result {
        Err(error) if error.is::<Blocked>() => {
            tracing::warn!(%error, "a recount came to nothing");
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// Shows in a metric when the last audit ended well, since the process that ran it may be gone.
async fn shows_last_audit(of: &Recount) -> anyhow::Result<Infallible> {
    loop {
        let runs = || of.ports.recounts.runs(RUNS_LOOKED_THROUGH);
        let runs = of.calls.persist("read earlier runs", runs).await?;
        if let Some(ended) = last_audit(&runs) {
            metrics::succeeded(RunScope::Audit.label(), ended);
        }
        of.calls.wait(LAST_AUDIT_EVERY).await?;
    }
}

/// Returns when the last audit ended that corrected what it found and left nothing.
fn last_audit(runs: &[RunRecord]) -> Option<UnixMillis> {
    let is_good = |run: &&RunRecord| run.scope == RunScope::Audit && !run.dry_run && run.summary.left == 0;
    runs.iter().filter(is_good).filter_map(|run| run.ended).max()
}

#[cfg(test)]
mod tests {
    use tally_core::audit::{AuditRun, Summary};

    use super::*;

    fn ended(at: u64) -> RunRecord {
        RunRecord {
            run: AuditRun::beginning(UnixMillis(1), at),
            began: UnixMillis(1),
            ended: Some(UnixMillis(at)),
            scope: RunScope::Audit,
            dry_run: false,
            summary: Summary::default(),
        }
    }

    #[test]
    fn the_last_audit_is_one_of_everything_that_ended_and_left_nothing() {
        let others = [
            RunRecord { ended: None, ..ended(60) },
            RunRecord { dry_run: true, ..ended(61) },
            RunRecord { scope: RunScope::Since, ..ended(62) },
            RunRecord { scope: RunScope::Queue, ..ended(63) },
            RunRecord { summary: Summary { left: 1, ..Summary::default() }, ..ended(64) },
        ];
        assert_eq!(last_audit(&others), None);
        let runs: Vec<RunRecord> = others.into_iter().chain([ended(40), ended(50), ended(30)]).collect();
        assert_eq!(last_audit(&runs), Some(UnixMillis(50)));
    }
}
