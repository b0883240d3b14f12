//! The ledger of what operators change: lines are kept for ever, in one partition, since people write few of them.

use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::item::{Item, Reader, item, number, text};
use super::super::names::recounts::{AT, BY, COMMAND, OUTCOME, PLAN, WHY};
use super::super::names::{PK, SK};
use super::{Recounts, padded};

/// Where the lines are kept.
const OPERATORS: &str = "operators";

/// A change that an operator made by hand, or began to: a line of the operators' ledger. It stands before anything is changed,
/// and says afterwards how that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it began.
    pub at: UnixMillis,
    /// Tells it from others that began then.
    pub token: u64,
    /// Who made it.
    pub by: String,
    /// Why.
    pub why: String,
    /// Which command.
    pub command: String,
    /// What it was about to change, as it was shown to the operator.
    pub plan: String,
    /// What it came to; `None` while it is under way, and for ever where its process died.
    pub ended: Option<String>,
}

impl Recounts {
    /// Puts a line of the operators' ledger, in the place of the one that began it. Safe to repeat: it is the same line.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_operation(&self, operation: &Operation) -> Outcome<()> {
        self.items().put(encode(operation)).await
    }

    /// The latest lines of the operators' ledger, newest first.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn operations(&self, limit: u32) -> Outcome<Vec<Operation>> {
        self.latest(OPERATORS, limit, decode).await
    }
}

fn encode(operation: &Operation) -> Item {
    let Operation { at, token, by, why, command, plan, ended } = operation;
    let mut line = item([
        (PK, text(OPERATORS)),
        (SK, text(format!("{}#{token:016x}", padded(at.0)))),
        (AT, number(at)),
        (BY, text(by)),
        (WHY, text(why)),
        (COMMAND, text(command)),
        (PLAN, text(plan)),
    ]);
    line.extend(ended.as_ref().map(|ended| (OUTCOME.to_owned(), text(ended))));
    line
}

fn decode(reader: &Reader<'_>) -> Outcome<Operation> {
    let place = reader.required_text(SK)?;
    let token = place.split_once('#').and_then(|(_, token)| u64::from_str_radix(token, 16).ok());
    let field = |name| reader.required_text(name).map(str::to_owned);
    Ok(Operation {
        at: UnixMillis(reader.required_number(AT)?),
        token: token.ok_or_else(|| reader.malformed(SK, "no line of the operators' ledger"))?,
        by: field(BY)?,
        why: field(WHY)?,
        command: field(COMMAND)?,
        plan: field(PLAN)?,
        ended: reader.text(OUTCOME)?.map(str::to_owned),
    })
}
