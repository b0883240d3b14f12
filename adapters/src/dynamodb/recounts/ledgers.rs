//! Two ledgers in the table `recounts`, whose lines stay for ever. One has a line for each correction, put before the
//! correction is sent. The other has a line for each change that an operator makes; all are under one partition key,
//! since people make few.

use tally_core::audit::AuditRun;
use tally_core::ids::{CounterId, Shard};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::item::{Item, Reader, item, number, text};
use super::padded;

/// The partition key of the operators' lines.
pub(super) const OPERATORS: &str = "operators";

/// Why a counter was corrected, and by whom: one line of the ledger of corrections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    /// The counter corrected.
    pub counter: CounterId,
    /// The shard corrected; `None` where the total was corrected.
    pub shard: Option<Shard>,
    pub at: UnixMillis,
    /// The recount that corrected it.
    pub run: AuditRun,
    /// The process that did.
    pub by: String,
    /// The count before.
    pub before: i64,
    /// What the rows added up to.
    pub after: i64,
    /// Why: the cause's label.
    pub why: String,
}

/// A change that an operator made or began: a line of the operators' ledger. It is put before anything is changed, and
/// once more with the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// When it began.
    pub at: UnixMillis,
    /// Tells it from others that began at the same time.
    pub token: u64,
    /// Who made it.
    pub by: String,
    pub why: String,
    /// The command.
    pub command: String,
    /// What it was about to change, as it was shown to the operator.
    pub plan: String,
    /// How it ended; `None` while it is under way, and for ever where its process died.
    pub ended: Option<String>,
}

/// Returns the partition key of a counter's lines.
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
