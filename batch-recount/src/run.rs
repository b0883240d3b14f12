//! One recount from its entry in the table to its exit code.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::{Either, select};
use serde_json::{Value, json};
use tally_core::ids::PostId;
use tally_core::ports::RunState;
use tally_core::recount::AuditRun;
use tally_core::time::UnixMillis;
use tally_service::Exit;

use crate::audit::{Audit, Plan};
use crate::closing::{Closing, Remainder};
use crate::config::Scope;
use crate::metrics;
use crate::progress::Progress;
use crate::queue;
use crate::share::Share;
use crate::summary::Summary;
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
    share: Share,
    progress: Arc<Progress>,
}

/// What a run does.
enum Work {
    Audit { plan: Plan, closing: Closing },
    Queue,
    Posts(Vec<PostId>),
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
    pub(crate) async fn begin(tools: &Tools, scope: &Scope, dry_run: bool, silent: bool) -> anyhow::Result<Self> {
        let progress = if silent { Progress::silent() } else { Progress::new(expected_rows(tools).await?) };
        let now = tools.clock.now();
        let (state, work, dry_run) = match scope {
            Scope::Resume(run) => resumed(tools, *run, dry_run).await?,
            Scope::Audit => {
                let closing = Closing::beginning(tools).await?;
                let work = Work::Audit { plan: Plan::full(tools.rules.segments), closing };
                (state(tools, "audit", dry_run), work, dry_run)
            }
            Scope::Since(since) => {
                let plan = Plan::since(tools.rules.segments, since.before(now));
                let closing = Closing::default();
                (state(tools, "since", dry_run), Work::Audit { plan, closing }, dry_run)
            }
            Scope::Posts(posts) => (state(tools, "posts", dry_run), Work::Posts(posts.clone()), dry_run),
            Scope::Queue | Scope::Watch => (state(tools, "queue", dry_run), Work::Queue, dry_run),
        };
        tracing::info!(run = %state.run, scope = state.scope, "recount begins");
        let share = Share { tools: tools.clone(), run: state.run, findings: Arc::default() };
        Ok(Self { tools: tools.clone(), dry_run, state, work, share, progress: Arc::new(progress) })
    }

    /// Does the work.
    pub(crate) async fn finish(self) -> anyhow::Result<Finished> {
        self.put(None, 0).await?;
        let (left, remainder) = match select(pin!(Box::pin(self.work())), pin!(self.report())).await {
            Either::Left((done, _)) => done?,
            Either::Right((never, _)) => match never {},
        };
        let summary = self.put(Some(self.tools.clock.now()), left).await?;
        self.progress.finish(self.state.run, &summary);
        let differs = self.dry_run && summary.found() > 0;
        let exit = if left == 0 && !differs { Exit::CLEAN } else { Exit::FAILED };
        if exit.is_clean() && !self.dry_run {
            metrics::succeeded(self.scope(), self.tools.clock.now());
        }
        let (found, corrected) = (summary.found(), summary.corrected);
        tracing::info!(run = %self.state.run, left, found, corrected, "recount ends");
        Ok(Finished { exit, remainder })
    }

    /// How many row keys are left unsettled, and which.
    async fn work(&self) -> anyhow::Result<(u64, Option<Remainder>)> {
        let (tools, findings) = (&self.tools, &self.share.findings);
        Ok(match &self.work {
            Work::Queue => (queue::drain(tools, self.dry_run, findings).await?, None),
            Work::Posts(posts) => (queue::posts(tools, posts, self.dry_run, findings).await?, None),
            Work::Audit { plan, closing } => {
                let progress = Arc::clone(&self.progress);
                let audit = Audit::new(*plan, self.dry_run, self.share.clone(), progress).await?;
                let unsettled = audit.finish().await?;
                if !self.dry_run && plan.since.is_none() {
                    closing.close(tools, unsettled, findings).await?;
                }
                let keys = audit.left();
                let are_all = unsettled > 0 && keys.len() as u64 == unsettled;
                (unsettled, are_all.then(|| Remainder { closing: closing.clone(), keys }))
            }
        })
    }

    /// Says how far things are, again and again.
    async fn report(&self) -> Infallible {
        loop {
            self.tools.clock.sleep(REPORT).await;
            self.progress.report(&self.share.own());
            if let Err(error) = self.put(None, 0).await {
                tracing::debug!(%error, "the run's state was not kept");
            }
        }
    }

    /// Keeps what was found so far, here and by everybody else who takes part; `left` row keys are unsettled by now.
    async fn put(&self, ended: Option<UnixMillis>, left: u64) -> anyhow::Result<Summary> {
        self.share.put().await?;
        let summary = Summary { left, ..self.share.sum().await? };
        let state = RunState { ended, summary: self.record(&summary).to_string(), ..self.state.clone() };
        let recounts = &self.tools.ports.recounts;
        self.tools.persist("keep the run's state", || recounts.put_run(&state)).await?;
        self.tools.spent.wrote(1);
        Ok(summary)
    }

    /// What is kept of a run: enough to continue it, and its summary so far.
    fn record(&self, summary: &Summary) -> Value {
        match &self.work {
            Work::Audit { plan, closing } => {
                json!({"dry_run": self.dry_run, "plan": plan, "closing": closing.record(), "summary": summary})
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

fn state(tools: &Tools, scope: &str, dry_run: bool) -> RunState {
    let scope = if dry_run { format!("{scope}, dry run") } else { scope.to_owned() };
    let began = tools.clock.now();
    let run = AuditRun::beginning(began, tools.chance.token());
    RunState { run, began, ended: None, scope, summary: String::new() }
}

/// The run to be continued, as it was begun: a dry run stays one, and no other becomes one.
async fn resumed(tools: &Tools, run: AuditRun, dry_run: bool) -> anyhow::Result<(RunState, Work, bool)> {
    let found = tools.persist("read a run", || tools.ports.recounts.run(run)).await?;
    let state = found.with_context(|| format!("there is no run {run}"))?;
    ensure!(state.ended.is_none(), "run {run} is over");
    let record: Value = serde_json::from_str(&state.summary).unwrap_or_default();
    let plan = serde_json::from_value(record["plan"].clone()).ok();
    let audit = plan.zip(Closing::recorded(&record["closing"])).zip(record["dry_run"].as_bool());
    let ((plan, closing), was_dry) = audit.with_context(|| format!("run {run} is no audit"))?;
    ensure!(was_dry || !dry_run, "run {run} makes corrections: it cannot be continued with --dry-run");
    Ok((state, Work::Audit { plan, closing }, was_dry))
}

/// How many rows the latest finished audit has counted.
async fn expected_rows(tools: &Tools) -> anyhow::Result<u64> {
    let runs = tools.persist("read earlier runs", || tools.ports.recounts.runs(EARLIER)).await?;
    let rows = |run: &RunState| serde_json::from_str::<Value>(&run.summary).ok()?["summary"]["rows"].as_u64();
    let audits = runs.iter().filter(|run| run.scope.starts_with("audit") && run.ended.is_some());
    Ok(audits.filter_map(rows).next().unwrap_or(0))
}
