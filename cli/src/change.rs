//! A change that an operator makes: shown first, carried out only with `--yes`, and on the ledger before and after.

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tally_adapters::dynamodb::Operation;

use crate::desk::Desk;
use crate::ended::{self, Usage};
use crate::said::{Answer, plain};

/// The longest that the ledger keeps of a plan.
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

/// What became of a change.
#[derive(Debug, Serialize)]
pub(crate) struct Changed {
    command: &'static str,
    /// What was found before, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    found: Vec<String>,
    /// What it changes, a line each.
    plan: Vec<String>,
    /// What it came to; absent where nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    /// Whether it was only shown.
    dry_run: bool,
    /// Whether something is wrong all the same.
    #[serde(skip)]
    is_wrong: bool,
}

impl Answer for Changed {
    fn table(&self) -> String {
        let mut lines: Vec<String> = self.found.iter().chain(&self.plan).map(|line| plain(line)).collect();
        match &self.outcome {
            Some(outcome) => lines.extend(outcome.lines().map(plain)),
            None if self.plan.is_empty() => lines.push("nothing to do".to_owned()),
            None => lines.push("nothing was changed: say --yes and --why to do it".to_owned()),
        }
        lines.join("\n")
    }

    fn found(&self) -> bool {
        self.is_wrong
    }
}

impl Changed {
    /// The same, with what was found before.
    pub(crate) fn with(self, found: Vec<String>) -> Self {
        Self { found, ..self }
    }

    /// The same, and something is wrong all the same.
    pub(crate) fn wrong_if(self, is_wrong: bool) -> Self {
        Self { is_wrong, ..self }
    }

    /// Whether there is something to do that was not done.
    pub(crate) fn is_left(&self) -> bool {
        self.dry_run && !self.plan.is_empty()
    }

    /// The same, where to do nothing would be wrong.
    pub(crate) fn wrong_unless_done(self) -> Self {
        Self { is_wrong: self.is_left(), ..self }
    }
}

impl Writing {
    /// Carries out `change`, which `plan` describes, if that is asked for. The ledger's line stands before it begins, and says
    /// afterwards what it came to, also where it failed half-way.
    ///
    /// # Errors
    /// Those of the change; the ledger cannot be written, and then nothing was changed.
    pub(crate) async fn carry_out(
        &self,
        desk: &Desk,
        command: &'static str,
        plan: Vec<String>,
        change: impl AsyncFnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<Changed> {
        let changed = Changed { command, found: Vec::new(), plan, outcome: None, dry_run: true, is_wrong: false };
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
    /// It is to be done, and not said by whom or why.
    pub(crate) fn check(&self) -> Result<(), Usage> {
        if self.yes { self.by_and_why(known).map(|_| ()) } else { Ok(()) }
    }

    /// Who changes something, and why; what is missing of it is said at once.
    fn by_and_why(&self, known: impl FnOnce() -> Option<String>) -> Result<(String, String), Usage> {
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
        let (by, why) = self.by_and_why(known)?;
        let mut plan = plan.join("; ");
        plan.truncate(plan.floor_char_boundary(PLAN_BYTES));
        Ok(Operation {
            at: desk.clock.now(),
            token: desk.chance.token(),
            by,
            why,
            command: command.to_owned(),
            plan,
            ended: None,
        })
    }
}

/// The name that this machine knows the operator by.
fn known() -> Option<String> {
    ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|by| !by.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_change_lacks_is_said_all_at_once() {
        let said = |why: Option<&str>, operator: Option<&str>, known: Option<&str>| {
            let [why, operator, known] = [why, operator, known].map(|text| text.map(str::to_owned));
            Writing { yes: true, why, operator }.by_and_why(|| known).map_err(|error| error.0)
        };
        let signed = |by: &str| Ok((by.to_owned(), "w".to_owned()));
        assert_eq!(said(Some("w"), Some("o"), Some("k")), signed("o"));
        assert_eq!(said(Some("w"), None, Some("k")), signed("k"));
        let lacks = |what: &str| Err(format!("with --yes, say {what}"));
        let who = "--operator or TALLY_OPERATOR (this machine does not know who you are)";
        assert_eq!(said(None, None, Some("k")), lacks("--why"));
        assert_eq!(said(Some("w"), None, None), lacks(who));
        assert_eq!(said(None, None, None), lacks(&format!("--why and {who}")));
    }
}
