//! `tally ledger`: lists what operators have changed with this command, newest first.

use anyhow::Context;
use serde::Serialize;
use tally_adapters::dynamodb::Operation;

use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, ago};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    of: Where,

    /// The most lines
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    limit: u32,
}

/// A line of the ledger.
#[derive(Debug, Serialize)]
struct Line {
    at: u64,
    operator: String,
    reason: String,
    command: String,
    plan: String,
    /// What was done, or the error. Absent while the change is under way, and for ever if its process died.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(skip)]
    ago: String,
}

/// The latest lines of the ledger.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Lines(Vec<Line>);

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Lines> {
        let desk = Desk::open(self.of).await?;
        let lines = desk.recounts.operations(self.limit).await.context("cannot read the ledger")?;
        let now = desk.clock.now();
        let line = |line: Operation| Line {
            at: line.at.0,
            operator: line.by,
            reason: line.why,
            command: line.command,
            plan: line.plan,
            outcome: line.ended,
            ago: ago(now.since(line.at)),
        };
        Ok(Lines(lines.into_iter().map(line).collect()))
    }
}

impl Answer for Lines {
    fn table(&self) -> String {
        let mut table = Table::headed(["ago", "operator", "command", "reason", "plan", "outcome"]);
        for Line { ago, operator, command, reason, plan, outcome, .. } in &self.0 {
            let outcome = outcome.as_deref().unwrap_or("not said: it is under way, or its process died");
            table.row([ago, operator, command, reason, plan, &in_one_line(outcome)]);
        }
        table.to_string()
    }
}

/// Joins the lines of an outcome, since the table has one line for each change.
fn in_one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("; ")
}
