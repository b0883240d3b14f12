//! `tally ledger`: lists what operators have changed with this command, newest first.

use anyhow::Context;
use serde_json::json;
use tally_adapters::dynamodb::Operation;

use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, add, ago};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// The most lines
    #[arg(long, default_value_t = 20, value_name = "COUNT")]
    limit: u32,

    #[command(flatten)]
    of: Where,
}

impl Args {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let desk = Desk::open(self.of).await?;
        let lines = desk.recounts.operations(self.limit).await.context("cannot read the ledger")?;
        let now = desk.clock.now();
        let (mut table, mut all) =
            (Table::headed(["ago", "operator", "command", "reason", "plan", "outcome"]), Vec::new());
        for Operation { at, by, why, command, plan, ended, .. } in lines {
            // No outcome is written while the change is under way, and never if its process died.
            let outcome = ended.as_deref().unwrap_or("under way, or its process died");
            // The table has one line for each change.
            let outcome = outcome.lines().collect::<Vec<_>>().join("; ");
            table.row([&ago(now.since(at)), &by, &command, &why, &plan, &outcome]);
            let mut line = json!({"at": at.0, "operator": by, "reason": why, "command": command, "plan": plan});
            add(&mut line, "outcome", ended.as_ref());
            all.push(line);
        }
        Ok(Answer::new(all, table))
    }
}
