//! One run of the recount, from its entry in the table to its exit code.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::{Either, select};
use tally_core::audit::{AuditRecord, AuditRun, OpenAtStart, Plan, RunRecord, RunScope, Summary};
use tally_core::ids::PostId;
use tally_core::time::UnixMillis;
use tally_service::Exit;

use crate::audit::AuditPart;
use crate::config::Scope;
use crate::findings::Share;
use crate::gaps::{self, Remainder};
use crate::metrics;
use crate::progress::{Progress, Tables};
use crate::queue::ByName;
use crate::recounter::Recounter;
use crate::store::Store;

/// How often a run says how far it is, to people and to the table.
const REPORT: Duration = Duration::from_secs(2);

/// Runs whose summaries are looked through for how many rows to expect.
const EARLIER: u32 = 20;

/// One run.
pub(crate) struct Run {
    of: Recounter,
    record: RunRecord,
    work: Work,
    share: Share,
    progress: Arc<Progress>,
}

/// What a run does.
enum Work {
    Audit(AuditRecord),
    Queue,
    Posts { posts: Vec<PostId>, counters: Vec<String> },
}

/// What a run has come to.
pub(crate) struct Finished {
    /// The code to exit with.
    pub(crate) exit: Exit,
    /// What is left to be settled of an audit, where all of it is known by name.
    pub(crate) remainder: Option<Remainder>,
}

impl Run {
    /// A new run of `scope`, or the one to be continued; shown to people unless it is `silent`.
    ///
    /// # Errors
    /// A run to be continued that does not exist, is over, was no audit, or corrects where a dry run is asked for.
    pub(crate) async fn begin(of: &Recounter, scope: &Scope, dry_run: bool, silent: bool) -> anyhow::Result<Self> {
        let clock = of.store.calls.clock();
        let segments = of.rules.segments;
        let (record, work) = match scope {
            Scope::Resume(run) => {
                let (record, audit) = resumed(&of.store, *run, dry_run).await?;
                (record, Work::Audit(audit))
            }
            Scope::Audit => {
                let audit = AuditRecord { plan: Plan::full(segments), open: gaps::open_now(&of.store).await? };
                (new(of, RunScope::Audit, dry_run), Work::Audit(audit))
            }
            Scope::Since(since) => {
                let plan = Plan::since(segments, since.before(of.store.now()));
                let audit = AuditRecord { plan, open: OpenAtStart::default() };
                (new(of, RunScope::Since, dry_run), Work::Audit(audit))
            }
            Scope::Posts { posts, counters } => {
                let work = Work::Posts { posts: posts.clone(), counters: counters.clone() };
                (new(of, RunScope::Posts, dry_run), work)
            }
            Scope::Queue | Scope::Watch => (new(of, RunScope::Queue, dry_run), Work::Queue),
        };
        tracing::info!(run = %record.run, scope = record.scope_text(), "recount begins");
        let progress = match silent {
            true => Progress::silent(clock),
            false => Progress::new(tables(&of.store, &work, &record.summary).await?, clock),
        };
        let share = Share::new(record.run, &of.store, &of.claims.me);
        Ok(Self { of: of.clone(), record, work, share, progress: Arc::new(progress) })
    }

    /// Does the work.
    pub(crate) async fn finish(self) -> anyhow::Result<Finished> {
        self.put(None, 0).await?;
        let (left, remainder) = match select(pin!(Box::pin(self.work())), pin!(self.report())).await {
            Either::Left((done, _)) => done?,
            Either::Right((never, _)) => match never {},
        };
        let ended = self.of.store.now();
        let summary = self.put(Some(ended), left).await?;
        self.progress.finish(self.record.run, &summary);
        let differs = self.record.dry_run && summary.found() > 0;
        let exit = if left == 0 && !differs { Exit::CLEAN } else { Exit::FAILED };
        if exit.is_clean() && !self.record.dry_run {
            metrics::succeeded(self.record.scope.label(), ended);
        }
        let (found, corrected) = (summary.found(), summary.corrected);
        tracing::info!(run = %self.record.run, left, found, corrected, "recount ends");
        Ok(Finished { exit, remainder })
    }

    /// How many row keys are left unsettled, and which.
    async fn work(&self) -> anyhow::Result<(u64, Option<Remainder>)> {
        let (dry_run, findings) = (self.record.dry_run, &*self.share.findings);
        let by_name = ByName { of: &self.of, dry_run, findings, progress: &self.progress };
        Ok(match &self.work {
            Work::Queue => (by_name.queue().await?, None),
            Work::Posts { posts, counters } => (by_name.posts(posts, counters).await?, None),
            Work::Audit(AuditRecord { plan, open }) => {
                let progress = Arc::clone(&self.progress);
                let part = AuditPart::new(&self.of, *plan, dry_run, self.share.clone(), progress).await?;
                let closes = !dry_run && plan.since.is_none();
                let unsettled = part.finish(closes.then(|| open.clone())).await?;
                let keys = part.left();
                let are_all = unsettled > 0 && keys.len() as u64 == unsettled;
                (unsettled, are_all.then(|| Remainder { open: open.clone(), keys }))
            }
        })
    }

    /// Says how far things are, again and again.
    async fn report(&self) -> Infallible {
        loop {
            self.of.store.calls.clock().sleep(REPORT).await;
            let own = self.share.own();
            match self.put(None, 0).await {
                Ok(whole) => self.progress.report(&own, &whole),
                Err(error) => {
                    tracing::debug!(%error, "the run's record was not kept");
                    self.progress.report(&own, &own);
                }
            }
        }
    }

    /// Keeps what was found so far, here and by other processes; `left` row keys are unsettled by now.
    async fn put(&self, ended: Option<UnixMillis>, left: u64) -> anyhow::Result<Summary> {
        self.share.put().await?;
        let summary = Summary { left, ..self.share.sum().await? };
        let audit = match &self.work {
            Work::Audit(audit) => Some(audit.clone()),
            Work::Queue | Work::Posts { .. } => None,
        };
        let record = RunRecord { ended, audit, summary, ..self.record.clone() };
        let store = &self.of.store;
        store.persist("keep the run's record", || store.ports.recounts.put_run(&record)).await?;
        store.wrote(1);
        Ok(record.summary)
    }
}

fn new(of: &Recounter, scope: RunScope, dry_run: bool) -> RunRecord {
    let began = of.store.now();
    let run = AuditRun::beginning(began, of.windows.chance.token());
    RunRecord { run, began, ended: None, scope, dry_run, audit: None, summary: Summary::default() }
}

/// The run to be continued, as it was begun: a dry run stays one, and no other becomes one.
async fn resumed(store: &Store, run: AuditRun, dry_run: bool) -> anyhow::Result<(RunRecord, AuditRecord)> {
    let found = store.persist("read a run", || store.ports.recounts.run(run)).await?;
    let record = found.with_context(|| format!("there is no run {run}"))?;
    ensure!(record.ended.is_none(), "run {run} is over");
    let audit = record.audit.clone().with_context(|| format!("run {run} is no audit"))?;
    ensure!(record.dry_run || !dry_run, "run {run} makes corrections: it cannot be continued with --dry-run");
    Ok((record, audit))
}

/// What the latest finished audit has met in the tables, where this run reads all of them, too.
async fn tables(store: &Store, work: &Work, so_far: &Summary) -> anyhow::Result<Option<Tables>> {
    let Work::Audit(AuditRecord { plan, .. }) = work else { return Ok(None) };
    let read = so_far.rows + so_far.posts;
    if plan.since.is_some() {
        return Ok(Some(Tables { read, ..Tables::default() }));
    }
    let runs = store.persist("read earlier runs", || store.ports.recounts.runs(EARLIER)).await?;
    let audit = runs.iter().find(|run| run.scope == RunScope::Audit && run.ended.is_some());
    let (rows, counters) = audit.map_or((0, 0), |audit| (audit.summary.rows, audit.summary.posts));
    Ok(Some(Tables { rows, counters, read }))
}
