//! `tally audit`: queues an audit for the service `tally-batch-recount --watch` (`start`), lists runs of the recount
//! (`list`), and waits for an audit to end (`watch`). An audit recounts everything, and closes the losses (records that
//! counts may be wrong) that were open when it began.

use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use tally_core::audit::{RunRecord, RunScope, Summary};
use tally_core::time::UnixMillis;
use tally_service::parse_duration;

use crate::change::Changing;
use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, or_dash, past};

/// What an operator hears wherever a loss was opened.
pub(crate) const CLOSES: &str =
    "no count is exact until an audit has passed; tally-batch-recount --watch starts one by itself";

/// How many of the latest runs are searched for the last audit.
const RUNS: u32 = 100;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Queues an audit of everything: the recount that watches runs it. Losses that are open now close once it is through
    Start {
        #[command(flatten)]
        change: Changing,
    },
    /// Lists runs of the recount, newest first
    List {
        /// The most runs
        #[arg(long, default_value_t = 10, value_name = "COUNT")]
        limit: u32,

        #[command(flatten)]
        of: Where,
    },
    /// Waits until no audit is queued or under way, and shows the last. Exits with 1 if it has left anything
    Watch {
        /// How often it is looked at
        #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "SPAN")]
        every: Duration,

        /// Look once, and do not wait
        #[arg(long)]
        once: bool,

        #[command(flatten)]
        of: Where,
    },
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        match self {
            Self::Start { change: Changing { writing, of } } => {
                let desk = Desk::open(of).await?;
                let queued = desk.recounts.audit_queued().await.context("cannot read the queue")?;
                let again = if queued.is_some() { ", although one is queued already" } else { "" };
                let plan = vec![format!("queue an audit of {}{again}", desk.name())];
                let changed = writing.carry_out(&desk, "audit start", plan, async || {
                    desk.recounts.enqueue_audit(desk.clock.now()).await.context("cannot queue an audit")?;
                    Ok("queued: see tally audit watch".to_owned())
                });
                Ok(changed.await?.into())
            }
            Self::List { limit, of } => {
                let desk = Desk::open(of).await?;
                let runs = desk.recounts.runs(limit).await.context("cannot read the runs")?;
                Ok(listed(&runs, desk.clock.now()))
            }
            Self::Watch { every, once, of } => {
                let desk = Desk::open(of).await?;
                loop {
                    let is_queued = desk.recounts.audit_queued().await.context("cannot read the queue")?.is_some();
                    let runs = desk.recounts.runs(RUNS).await.context("cannot read the runs")?;
                    let last = runs.iter().find(|run| run.scope == RunScope::Audit && !run.dry_run);
                    if once || !is_queued && last.is_none_or(|run| run.ended.is_some()) {
                        return Ok(watched(is_queued, last));
                    }
                    desk.clock.sleep(every).await;
                }
            }
        }
    }
}

fn listed(runs: &[RunRecord], now: UnixMillis) -> Answer {
    let headings = ["run", "scope", "began", "state", "rows", "differed", "corrected", "withheld", "left"];
    let mut table = Table::headed(headings);
    for record in runs {
        let RunRecord { run, began, ended, summary, .. } = record;
        let (began, state) = (past(now, Some(*began)), if ended.is_some() { "ended" } else { "under way" });
        let Summary { rows, withheld, left, .. } = summary;
        // A recount of posts does not count rows.
        let rows = or_dash((*rows > 0).then_some(*rows));
        let scope = record.scope_text();
        table.row([run, &scope, &began, &state, &rows, &summary.found(), &summary.corrections(), withheld, left]);
    }
    Answer::new(runs.iter().map(RunRecord::to_json).collect::<Vec<_>>(), table)
}

/// Says how the last audit went, and whether one is queued that no recount has taken up.
fn watched(is_queued: bool, last: Option<&RunRecord>) -> Answer {
    let queued = if is_queued { "an audit is queued: a recount that watches takes it up\n" } else { "" };
    let answer = json!({"queued": is_queued, "last": last.map(RunRecord::to_json)});
    let Some(RunRecord { run, ended, summary, .. }) = last else {
        return Answer::new(answer, format!("{queued}no audit has run"));
    };
    let state = if ended.is_some() { "has ended" } else { "is under way" };
    let text = format!("{queued}audit {run} {state}\n{summary}");
    let Summary { withheld, alarms, left, .. } = summary;
    Answer::new(answer, text).wrong_if(*left > 0 || *alarms > 0 || *withheld > 0)
}
