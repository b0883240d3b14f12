//! The ledgers: of corrections, one line for each, put before it is sent; and of what operators change, in one partition, since
//! people write few of them. Lines stay for ever.

use tally_core::audit::AuditRun;
use tally_core::ids::{CounterId, Shard};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::item::{Item, Reader, item, number, text};
use super::padded;

/// Where the operators' lines are kept.
pub(super) const OPERATORS: &str = "operators";

/// Why and by whom a count was corrected: one line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The counter corrected.
    pub counter: CounterId,
    /// The shard corrected; `None` where the total was mended.
    pub shard: Option<Shard>,
    /// When.
    pub at: UnixMillis,
    /// Which run of the recount.
    pub run: AuditRun,
    /// Which process.
    pub by: String,
    /// What was counted before.
    pub before: i64,
    /// What the rows came to.
    pub after: i64,
    /// Why: the cause's label.
    pub why: String,
}

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

/// Where the lines of a counter are kept.
pub(super) fn of(counter: &CounterId) -> String {
    format!("ledger#{}", counter.stored())
}

impl LedgerEntry {
    pub(super) fn encode(&self) -> Item {
        let what = self.shard.map_or_else(|| "total".to_owned(), |shard| shard.to_string());
        item! {
            "pk": text(of(&self.counter)),
            "sk": text(format!("{}#{}#{what}", padded(self.at.0), self.run)),
            "at": number(self.at),
            "run": text(self.run.to_string()),
            "by": text(&self.by),
            "before": number(self.before),
            "after": number(self.after),
            "why": text(&self.why),
            "shard": self.shard.map(number),
        }
    }

    pub(super) fn decode(counter: &CounterId, reader: &Reader<'_>) -> Outcome<Self> {
        Ok(Self {
            counter: counter.clone(),
            shard: reader.get("shard")?,
            at: reader.get("at")?,
            run: reader.get("run")?,
            by: reader.get("by")?,
            before: reader.get("before")?,
            after: reader.get("after")?,
            why: reader.get("why")?,
        })
    }
}

impl Operation {
    pub(super) fn encode(&self) -> Item {
        item! {
            "pk": text(OPERATORS),
            "sk": text(format!("{}#{:016x}", padded(self.at.0), self.token)),
            "at": number(self.at),
            "by": text(&self.by),
            "why": text(&self.why),
            "command": text(&self.command),
            "plan": text(&self.plan),
            "outcome": self.ended.as_ref().map(text),
        }
    }

    pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Self> {
        let token = reader.text("sk")?.split_once('#').and_then(|(_, token)| u64::from_str_radix(token, 16).ok());
        Ok(Self {
            at: reader.get("at")?,
            token: token.ok_or_else(|| reader.malformed("sk", "no line of the operators' ledger"))?,
            by: reader.get("by")?,
            why: reader.get("why")?,
            command: reader.get("command")?,
            plan: reader.get("plan")?,
            ended: reader.get("outcome")?,
        })
    }
}
