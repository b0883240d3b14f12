//! Carries out one run of a recount, which compares counters with the rows they count and corrects those that differ:
//! begins or resumes it, keeps its record in the table `recounts`, shows its progress, and returns its exit code.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, ensure};
use tally_core::audit::{AuditRun, RunRecord, RunScope, Summary};
use tally_core::time::UnixMillis;
use tally_service::Exit;

use crate::args::Scope;
use crate::metrics;
use crate::progress::Progress;
use crate::settle::{Ended, Open, Recount, Rules, Waiting};

/// How often a run shows how far it is, and keeps its record.
const REPORT: Duration = Duration::from_secs(2);

/// How many earlier runs are searched for the last finished audit, whose number of items scales the progress bar.
const EARLIER: u32 = 20;

/// One run, new or continued.
pub(crate) struct Run {
    recount: Recount,
    record: RunRecord,
    scope: Scope,
    /// Shows its progress to people.
    progress: Option<Progress>,
}

/// Carries out a recount, and shows its progress: a bar on a terminal, and on the standard output if it `prints`.
/// Returns how the recount ended, and its summary.
///
/// # Errors
/// A run to be continued that does not exist, is over, was no audit, or corrects where a dry run is asked for; the log
/// does not go on, or a store refuses what it is asked.
pub async fn recount(of: &Recount, scope: &Scope, prints: bool) -> anyhow::Result<(Exit, Summary)> {
    let mut run = Run::begin(of, scope).await?;
    let tables = match run.record.scope {
        RunScope::Audit => Some(expected_of(of, &run.record.summary).await?),
        RunScope::Since => Some(0),
        RunScope::Queue | RunScope::Posts => None,
    };
    run.progress = Some(Progress::new(tables, of.calls.clock(), prints));
    let (exit, summary, ()) = Box::pin(run.carried_out(Box::pin(run.work()))).await?;
    Ok((exit, summary))
}

impl Run {
    /// Returns a new run of `scope`, or the run that `scope` continues. It shows no progress yet.
    ///
    /// # Errors
    /// As of [`recount`].
    pub(crate) async fn begin(of: &Recount, scope: &Scope) -> anyhow::Result<Self> {
        let named = match scope {
            Scope::Resume(run) => return resumed(of, *run).await,
            Scope::Audit => RunScope::Audit,
            Scope::Since(_) => RunScope::Since,
            Scope::Posts { .. } => RunScope::Posts,
            Scope::Queue | Scope::Watch => RunScope::Queue,
        };
        let recount = of.anew(of.rules).await?;
        let run = recount.run;
        let record = RunRecord {
            run,
            began: of.calls.now(),
            ended: None,
            scope: named,
            dry_run: of.rules.dry_run,
            summary: Summary::default(),
        };
        tracing::info!(%run, scope = record.scope_text(), "recount begins");
        Ok(Self { progress: None, recount, record, scope: scope.clone() })
    }

    /// Does the work once, for a process that stays. Returns how it ended, and the row keys to be looked at once more.
    pub(crate) async fn once(self, waiting: &mut Waiting) -> anyhow::Result<(Exit, Recount, Vec<Open>)> {
        let work = Box::pin(async {
            let settled = match self.scope {
                Scope::Queue => self.recount.queue(waiting).await?,
                _ => self.recount.audit_once().await?,
            };
            self.recount.enqueue(self.recount.left()).await?;
            anyhow::Ok(settled)
        });
        let (exit, _, corrected) = Box::pin(self.carried_out(work)).await?;
        Ok((exit, self.recount, corrected))
    }

    /// Does `work`, and meanwhile shows how far it is and keeps the run's record. Returns the exit code and the
    /// summary.
    async fn carried_out<T>(
        &self,
        work: impl Future<Output = anyhow::Result<(Ended, T)>> + Send,
    ) -> anyhow::Result<(Exit, Summary, T)> {
        self.put(None, 0).await?;
        let (ended, result) = tokio::select! {
            biased;
            done = work => done?,
            never = self.report() => match never {},
        };
        let (left, at) = (ended.left + ended.doubtful, self.recount.calls.now());
        let kept = self.put(Some(at), left).await?;
        if let Some(progress) = &self.progress {
            progress.finish(&kept);
        }
        let summary = kept.summary;
        let differs = self.record.dry_run && summary.found() > 0;
        let exit = if left == 0 && !differs { Exit::CLEAN } else { Exit::FAILED };
        if exit.is_clean() && !self.record.dry_run {
            metrics::succeeded(self.record.scope.label(), at);
        }
        let (found, corrected) = (summary.found(), summary.corrections());
        tracing::info!(run = %self.record.run, left, found, corrected, "recount ends");
        Ok((exit, summary, result))
    }

    async fn work(&self) -> anyhow::Result<(Ended, ())> {
        let recount = &self.recount;
        let ended = match &self.scope {
            Scope::Audit | Scope::Resume(_) => recount.audit().await?,
            Scope::Posts { posts, counters } => recount.posts(posts, counters).await?,
            Scope::Since(since) => {
                let settled = recount.changed_since(since.before(self.record.began)).await?;
                recount.rechecked(settled, None).await?
            }
            Scope::Queue | Scope::Watch => {
                let settled = recount.queue(&mut Waiting::default()).await?;
                recount.rechecked(settled, None).await?
            }
        };
        // The queue still has what a run of it left, except for row keys that only the second look left.
        recount.enqueue(recount.left()).await?;
        Ok((ended, ()))
    }

    /// Shows how far the run is and keeps its record, again and again.
    async fn report(&self) -> Infallible {
        loop {
            self.recount.calls.clock().sleep(REPORT).await;
            if let Some(progress) = &self.progress {
                progress.report(&self.recount.summary());
            }
            if let Err(error) = self.put(None, 0).await {
                tracing::debug!(%error, "the run's record was not kept");
            }
        }
    }

    /// Keeps the record: what this process and those it continues have found, and `left`, the row keys that are not
    /// settled.
    async fn put(&self, ended: Option<UnixMillis>, left: u64) -> anyhow::Result<RunRecord> {
        let (mut summary, calls) = (self.record.summary.clone(), &self.recount.calls);
        summary.add(self.recount.summary());
        let record = RunRecord { ended, summary: Summary { left, ..summary }, ..self.record.clone() };
        calls.write("keep the run's record", 1, || self.recount.ports.recounts.put_run(&record)).await?;
        Ok(record)
    }
}

/// Returns the run to be continued, as it was begun: a dry run stays one, and no other becomes one.
async fn resumed(of: &Recount, run: AuditRun) -> anyhow::Result<Run> {
    let found = of.calls.persist("read a run", || of.ports.recounts.run(run)).await?;
    let record = found.with_context(|| format!("there is no run {run}"))?;
    ensure!(record.ended.is_none(), "run {run} is over");
    ensure!(record.scope == RunScope::Audit, "run {run} is no audit");
    let may_continue = record.dry_run || !of.rules.dry_run;
    ensure!(may_continue, "run {run} makes corrections: it cannot be continued with --dry-run");
    let mut recount = of.anew(Rules { dry_run: record.dry_run, ..of.rules }).await?;
    recount.run = run;
    tracing::info!(run = %record.run, scope = record.scope_text(), "recount goes on");
    Ok(Run { progress: None, recount, record, scope: Scope::Resume(run) })
}

/// Returns how many items the latest finished audit has read, less those that this run has read before.
async fn expected_of(of: &Recount, so_far: &Summary) -> anyhow::Result<u64> {
    let runs = of.calls.persist("read earlier runs", || of.ports.recounts.runs(EARLIER)).await?;
    let audit = runs.iter().find(|run| run.scope == RunScope::Audit && run.ended.is_some());
    let items = |summary: &Summary| summary.rows + summary.counters;
    Ok(audit.map_or(0, |audit| items(&audit.summary).saturating_sub(items(so_far))))
}
