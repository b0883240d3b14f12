//! `tally audit`: queues an audit for the service `tally-batch-recount --watch` (`start`), lists runs of the recount
//! (`list`), and waits for an audit to end (`watch`). An audit recounts everything, and closes the losses that were
//! open when it began.

use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;
use tally_core::audit::{RunRecord, RunScope, Summary};
use tally_service::parse_duration;

use crate::change::Writing;
use crate::desk::{Desk, Where};
use crate::said::{Answer, Form, Table, ago, print};

/// How many of the latest runs are searched for the last audit.
const RUNS: u32 = 100;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Queues an audit of everything: the recount that watches runs it. Losses that are open now close once it is through
    Start {
        #[command(flatten)]
        writing: Writing,

        #[command(flatten)]
        of: Where,
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

/// A run of the recount.
#[derive(Debug, Serialize)]
struct Run {
    run: String,
    scope: String,
    began: u64,
    ended: Option<u64>,
    summary: Summary,
    #[serde(skip)]
    age: String,
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct List(Vec<Run>);

impl Answer for List {
    fn table(&self) -> String {
        let mut table =
            Table::headed(["run", "scope", "began", "state", "rows", "differed", "corrected", "withheld", "left"]);
        for Run { run, scope, ended, summary, age, .. } in &self.0 {
            let state = if ended.is_some() { "ended" } else { "under way" };
            let Summary { rows, corrected, withheld, left, .. } = summary;
            table.row([run, scope, &format!("{age} ago"), &state, rows, &summary.found(), corrected, withheld, left]);
        }
        table.to_string()
    }
}

/// The last audit, and whether another one waits.
#[derive(Debug, Serialize)]
struct Watched {
    /// Whether an audit is queued that no recount has taken up.
    queued: bool,
    last: Option<Run>,
}

impl Answer for Watched {
    fn table(&self) -> String {
        let queued = if self.queued { "an audit is queued: a recount that watches takes it up\n" } else { "" };
        match &self.last {
            None => format!("{queued}no audit has run"),
            Some(Run { run, ended, summary, .. }) => {
                let state = if ended.is_some() { "has ended" } else { "is under way" };
                let Summary { counters, rows, corrected, withheld, alarms, left, gaps_closed, .. } = summary;
                format!(
                    "{queued}audit {run} {state}: {rows} rows of {counters} counters, {} differed, {corrected} corrected, {withheld} \
                     withheld, {alarms} alarms, {left} left, {gaps_closed} losses closed",
                    summary.found()
                )
            }
        }
    }

    fn found(&self) -> bool {
        let bad = |run: &Run| run.summary.left > 0 || run.summary.alarms > 0 || run.summary.withheld > 0;
        self.last.as_ref().is_some_and(bad)
    }
}

impl Verb {
    pub(crate) async fn run(self, form: Form) -> anyhow::Result<u8> {
        match self {
            Self::Start { writing, of } => {
                let desk = Desk::open(of).await?;
                let queued = desk.recounts.audit_queued().await.context("cannot read the queue")?;
                let again = if queued.is_some() { ", although one is queued already" } else { "" };
                let plan = vec![format!("queue an audit of {}{again}", desk.name())];
                let changed = writing.carry_out(&desk, "audit start", plan, async || {
                    desk.recounts.enqueue_audit(desk.clock.now()).await.context("cannot queue an audit")?;
                    Ok("queued: see tally audit watch".to_owned())
                });
                print(&changed.await?, form)
            }
            Self::List { limit, of } => {
                let desk = Desk::open(of).await?;
                let records = desk.recounts.runs(limit).await.context("cannot read the runs")?;
                print(&List(records.into_iter().map(|record| seen(&desk, record)).collect()), form)
            }
            Self::Watch { every, once, of } => {
                let desk = Desk::open(of).await?;
                loop {
                    let watched = look(&desk).await?;
                    let is_over = !watched.queued && watched.last.as_ref().is_none_or(|run| run.ended.is_some());
                    if once || is_over {
                        return print(&watched, form);
                    }
                    desk.clock.sleep(every).await;
                }
            }
        }
    }
}

async fn look(desk: &Desk) -> anyhow::Result<Watched> {
    let queued = desk.recounts.audit_queued().await.context("cannot read the queue")?.is_some();
    let records = desk.recounts.runs(RUNS).await.context("cannot read the runs")?;
    let last = records.into_iter().find(|record| record.scope == RunScope::Audit && !record.dry_run);
    Ok(Watched { queued, last: last.map(|record| seen(desk, record)) })
}

fn seen(desk: &Desk, record: RunRecord) -> Run {
    Run {
        run: record.run.to_string(),
        scope: record.scope_text(),
        began: record.began.0,
        ended: record.ended.map(|ended| ended.0),
        summary: record.summary,
        age: ago(desk.clock.now().since(record.began)),
    }
}
