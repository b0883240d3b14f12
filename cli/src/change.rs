//! How the verbs (subcommands) of `tally` change a deployment. `Writing::carry_out` shows the plan of a change. With
//! `--yes` it carries the change out, and writes before and after it to the operators' ledger, the list of changes made
//! by hand. `Changed` is the answer that the verb prints.

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tally_adapters::dynamodb::Operation;

use crate::desk::{Desk, Where};
use crate::ended::{self, Usage};
use crate::said::{Answer, plain};

/// The most bytes of a plan that the ledger keeps.
const PLAN_BYTES: usize = 16_384;

/// Whether a change is made, by whom and why.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Change")]
pub(crate) struct Writing {
    /// Do it: without this nothing is changed, and what would be is shown
    #[arg(long)]
    pub(crate) yes: bool,

    /// Why, for the ledger
    #[arg(long, value_parser = tally_service::text(), value_name = "TEXT")]
    pub(crate) why: Option<String>,

    /// Who, for the ledger. By default the name that this machine knows you by
    #[arg(long, env = "TALLY_OPERATOR", value_parser = tally_service::text(), value_name = "NAME")]
    pub(crate) operator: Option<String>,
}

/// The flags of a verb that changes something in a deployment.
#[derive(Args, Clone, Debug)]
pub(crate) struct Changing {
    #[command(flatten)]
    pub(crate) writing: Writing,

    #[command(flatten)]
    pub(crate) of: Where,
}

/// A change, made or only shown.
#[derive(Debug, Serialize)]
pub(crate) struct Changed {
    command: &'static str,
    /// What the verb found before the change, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    found: Vec<String>,
    /// What the change does, or would do, a line each.
    plan: Vec<String>,
    /// What was done. Absent where nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    /// Whether the change was only shown.
    dry_run: bool,
}

impl From<Changed> for Answer {
    fn from(changed: Changed) -> Self {
        Self::new(&changed, changed.text())
    }
}

impl Changed {
    /// Returns the change as a text for people.
    pub(crate) fn text(&self) -> String {
        let mut lines: Vec<String> = self.found.iter().chain(&self.plan).map(|line| plain(line)).collect();
        match &self.outcome {
            Some(outcome) => lines.extend(outcome.lines().map(plain)),
            None if self.plan.is_empty() => lines.push("nothing to do".to_owned()),
            None => lines.push("nothing was changed: say --yes and --why to do it".to_owned()),
        }
        lines.join("\n")
    }

    /// Adds what the verb found before the change.
    pub(crate) fn with(self, found: Vec<String>) -> Self {
        Self { found, ..self }
    }

    /// Returns whether there is something to do that was not done.
    pub(crate) fn is_left(&self) -> bool {
        self.dry_run && !self.plan.is_empty()
    }
}

impl Writing {
    /// Carries out `change`, which `plan` describes, if the operator says `--yes` and the plan has a line. Writes a
    /// line of the ledger before, and adds to it afterwards what was done, or the error of a change that failed.
    ///
    /// # Errors
    /// The change fails, or the ledger cannot be written. If it cannot be written beforehand, nothing was changed.
    pub(crate) async fn carry_out(
        &self,
        desk: &Desk,
        command: &'static str,
        plan: Vec<String>,
        change: impl AsyncFnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<Changed> {
        let changed = Changed { command, found: Vec::new(), plan, outcome: None, dry_run: true };
        if !self.yes || changed.plan.is_empty() {
            return Ok(changed);
        }
        let mut line = self.line(desk, command, &changed.plan)?;
        desk.recounts.put_operation(&line).await.context("cannot write the ledger; nothing was changed")?;
        let done = change().await;
        line.ended = Some(match &done {
            Ok(outcome) => outcome.clone(),
            Err(error) => format!("failed: {}", ended::line(error)),
        });
        let noted = desk.recounts.put_operation(&line).await.context("cannot write the outcome to the ledger");
        let outcome = done?;
        noted?;
        Ok(Changed { outcome: Some(outcome), dry_run: false, ..changed })
    }

    /// # Errors
    /// `--yes` is given, and the operator or the reason is not.
    pub(crate) fn check(&self) -> Result<(), Usage> {
        if self.yes { self.by_and_why().map(|_| ()) } else { Ok(()) }
    }

    /// Returns who makes the change, and why. If both are missing, one error names both.
    fn by_and_why(&self) -> Result<(String, String), Usage> {
        match (self.operator.clone().or_else(known), self.why.clone()) {
            (Some(by), Some(why)) => Ok((by, why)),
            (by, why) => {
                let who =
                    by.is_none().then_some("--operator or TALLY_OPERATOR (this machine does not know who you are)");
                let missing: Vec<_> = why.is_none().then_some("--why").into_iter().chain(who).collect();
                Err(Usage(format!("with --yes, say {}", missing.join(" and "))))
            }
        }
    }

    fn line(&self, desk: &Desk, command: &'static str, plan: &[String]) -> anyhow::Result<Operation> {
        let (by, why) = self.by_and_why()?;
        let mut plan = plan.join("; ");
        plan.truncate(plan.floor_char_boundary(PLAN_BYTES));
        Ok(Operation {
            at: desk.clock.now(),
            token: desk.host.chance().token(),
            by,
            why,
            command: command.to_owned(),
            plan,
            ended: None,
        })
    }
}

/// Returns the user name that the environment has.
fn known() -> Option<String> {
    ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|by| !by.is_empty()))
}
