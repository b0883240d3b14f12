//! One recount from its entry in the table to its exit code.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use serde_json::{Value, json};
use tally_core::ports::{Gap, GapId, RunState};
use tally_core::recount::{RunId, gap_may_close};
use tally_core::time::UnixMillis;
use tally_service::Exit;

use crate::audit::{Audit, Plan};
use crate::config::Scope;
use crate::metrics;
use crate::progress::Progress;
use crate::queue;
use crate::summary::{Findings, Summary};
use crate::tools::Tools;

/// How often a run says how far it is, to people and to the table.
const REPORT: Duration = Duration::from_secs(5);

/// Runs whose summaries are looked through for how many rows to expect.
const EARLIER: u32 = 20;

/// One recount.
pub(crate) struct Run {
    tools: Tools,
    dry_run: bool,
    state: RunState,
    work: Work,
    findings: Arc<Findings>,
    progress: Arc<Progress>,
}

/// What a run does.
enum Work {
    Audit { plan: Plan, gaps: Vec<Gap> },
    Queue,
    Posts(Vec<tally_core::ids::PostId>),
}

impl Run {
    /// A new run of `scope`, or the one to be continued; shown to people unless it is `silent`.
    ///
    /// # Errors
    /// A run to be continued that does not exist, is over, or was no audit.
    pub(crate) async fn begin(tools: &Tools, scope: &Scope, dry_run: bool, silent: bool) -> anyhow::Result<Self> {
        let progress = if silent { Progress::silent() } else { Progress::new(expected_rows(tools).await?) };
        let (state, work) = match scope {
            Scope::Resume(run) => resumed(tools, *run).await?,
            Scope::Audit => {
                let (began, gaps) = beginning(tools).await?;
                let work = Work::Audit { plan: Plan::full(tools.rules.segments), gaps };
                (state(tools, began, "audit", dry_run), work)
            }
            Scope::Since(since) => {
                let now = tools.clock.now();
                let plan = Plan::since(tools.rules.segments, since.before(now));
                (state(tools, now, "since", dry_run), Work::Audit { plan, gaps: Vec::new() })
            }
            Scope::Posts(posts) => (state(tools, tools.clock.now(), "posts", dry_run), Work::Posts(posts.clone())),
            Scope::Queue | Scope::Watch => (state(tools, tools.clock.now(), "queue", dry_run), Work::Queue),
        };
        tracing::info!(run = %state.run, scope = state.scope, "recount begins");
        let (findings, progress) = (Arc::default(), Arc::new(progress));
        Ok(Self { tools: tools.clone(), dry_run, state, work, findings, progress })
    }

    /// Does the work; the code to exit with.
    pub(crate) async fn finish(mut self) -> anyhow::Result<(Exit, Summary)> {
        self.keep(None).await?;
        let left = match select(pin!(Box::pin(self.work())), pin!(self.report())).await {
            Either::Left((left, _)) => left,
            Either::Right((never, _)) => never,
        };
        let left = left?;
        self.findings.left(left);
        self.keep(Some(self.tools.clock.now())).await?;
        let summary = self.so_far();
        self.progress.finish(self.state.run, &summary);
        let differs = self.dry_run && summary.found() > 0;
        let exit = if left == 0 && !differs { Exit::CLEAN } else { Exit::FAILED };
        if exit.is_clean() && !self.dry_run {
            metrics::succeeded(self.scope(), self.tools.clock.now());
        }
        tracing::info!(run = %self.state.run, left, found = summary.found(), corrected = summary.corrected, "recount ends");
        Ok((exit, summary))
    }

    async fn work(&self) -> anyhow::Result<u64> {
        let (tools, findings) = (&self.tools, &self.findings);
        match &self.work {
            Work::Queue => queue::drain(tools, self.dry_run, findings).await,
            Work::Posts(posts) => queue::posts(tools, posts, self.dry_run, findings).await,
            Work::Audit { plan, gaps } => {
                let (findings, progress) = (Arc::clone(findings), Arc::clone(&self.progress));
                let audit = Audit::new(tools, self.state.run, *plan, self.dry_run, findings, progress).await?;
                let unsettled = audit.finish().await?;
                if !self.dry_run {
                    self.close(gaps, *plan, unsettled).await?;
                }
                Ok(unsettled)
            }
        }
    }

    /// Closes the gaps that this audit has repaired. Each must be the one seen before it began: one that was opened
    /// again since is another loss.
    async fn close(&self, gaps: &[Gap], plan: Plan, unsettled: u64) -> anyhow::Result<()> {
        if unsettled > 0 || plan.since.is_some() {
            return Ok(());
        }
        let checkpoints = &self.tools.ports.checkpoints;
        let began = self.state.began;
        let open = self.tools.persist("read gaps", || checkpoints.gaps()).await?;
        for gap in gaps {
            let stands = open.iter().any(|standing| standing.id == gap.id && standing.opened == gap.opened);
            if stands && gap_may_close(gap.opened, began, unsettled) {
                self.tools.persist("close a gap", || checkpoints.close_gap(gap)).await?;
                tracing::info!(gap = gap.id.0, "gap closed: every row key was proved or repaired");
                self.findings.gap_closed();
            }
        }
        let recounts = &self.tools.ports.recounts;
        self.tools.persist("take the audit off the queue", || recounts.audit_done(began)).await
    }

    /// Says how far things are, again and again.
    async fn report(&self) -> anyhow::Result<u64> {
        loop {
            self.tools.clock.sleep(REPORT).await;
            self.progress.report(&self.so_far());
            if let Err(error) = self.put(None).await {
                tracing::debug!(%error, "the run's state was not kept");
            }
        }
    }

    fn so_far(&self) -> Summary {
        self.findings.so_far(self.tools.spent.so_far())
    }

    async fn keep(&mut self, ended: Option<UnixMillis>) -> anyhow::Result<()> {
        self.state.ended = ended;
        self.put(ended).await
    }

    async fn put(&self, ended: Option<UnixMillis>) -> anyhow::Result<()> {
        let state = RunState { ended, summary: self.record().to_string(), ..self.state.clone() };
        let recounts = &self.tools.ports.recounts;
        self.tools.persist("keep the run's state", || recounts.put_run(&state)).await?;
        self.tools.spent.wrote(1);
        Ok(())
    }

    /// What is kept of a run: enough to continue it, and its summary so far.
    fn record(&self) -> Value {
        let summary = json!(self.so_far());
        match &self.work {
            Work::Audit { plan, gaps } => {
                let gaps: Vec<_> = gaps.iter().map(|gap| json!([gap.id.0, gap.opened])).collect();
                json!({"dry_run": self.dry_run, "plan": plan, "gaps": gaps, "summary": summary})
            }
            Work::Queue | Work::Posts(_) => json!({"dry_run": self.dry_run, "summary": summary}),
        }
    }

    fn scope(&self) -> &'static str {
        match &self.work {
            Work::Audit { plan, .. } if plan.since.is_some() => "since",
            Work::Audit { .. } => "audit",
            Work::Queue => "queue",
            Work::Posts(_) => "posts",
        }
    }
}

fn state(tools: &Tools, began: UnixMillis, scope: &str, dry_run: bool) -> RunState {
    let scope = if dry_run { format!("{scope}, dry run") } else { scope.to_owned() };
    RunState { run: tools.draw_run(), began, ended: None, scope, summary: String::new() }
}

/// The gaps an audit beginning now can close, and a time of its beginning that is later than any of them by whatever
/// clock they were opened: what was seen open was opened before.
async fn beginning(tools: &Tools) -> anyhow::Result<(UnixMillis, Vec<Gap>)> {
    let gaps = tools.persist("read gaps", || tools.ports.checkpoints.gaps()).await?;
    let asked = tools.persist("read the queued audit", || tools.ports.recounts.audit_queued()).await?;
    let latest = gaps.iter().map(|gap| gap.opened).chain(asked).max();
    let after = latest.map_or(UnixMillis(0), |latest| latest.plus(Duration::from_millis(1)));
    Ok((tools.clock.now().max(after), gaps))
}

async fn resumed(tools: &Tools, run: RunId) -> anyhow::Result<(RunState, Work)> {
    let found = tools.persist("read a run", || tools.ports.recounts.run(run)).await?;
    let state = found.ok_or_else(|| anyhow::anyhow!("there is no run {run}"))?;
    anyhow::ensure!(state.ended.is_none(), "run {run} is over");
    let (plan, gaps) = continued(&state.summary).ok_or_else(|| anyhow::anyhow!("run {run} is no audit"))?;
    Ok((state, Work::Audit { plan, gaps }))
}

/// The plan and the gaps of a run as kept.
fn continued(record: &str) -> Option<(Plan, Vec<Gap>)> {
    let record: Value = serde_json::from_str(record).ok()?;
    let plan = serde_json::from_value(record["plan"].clone()).ok()?;
    let gap = |gap: &Value| {
        let (id, opened) = (gap[0].as_str()?.to_owned(), gap[1].as_u64()?);
        Some(Gap { id: GapId(id), kind: String::new(), detail: String::new(), opened: UnixMillis(opened) })
    };
    Some((plan, record["gaps"].as_array()?.iter().map(gap).collect::<Option<_>>()?))
}

/// How many rows the latest finished audit has counted.
async fn expected_rows(tools: &Tools) -> anyhow::Result<u64> {
    let runs = tools.persist("read earlier runs", || tools.ports.recounts.runs(EARLIER)).await?;
    let rows = |run: &RunState| serde_json::from_str::<Value>(&run.summary).ok()?["summary"]["rows"].as_u64();
    let audits = runs.iter().filter(|run| run.scope.starts_with("audit") && run.ended.is_some());
    Ok(audits.filter_map(rows).next().unwrap_or(0))
}
