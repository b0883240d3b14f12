//! The ledger of corrections: one line for each, put before it is sent. Lines stay for ever.

use tally_core::audit::AuditRun;
use tally_core::ids::{CounterId, Shard};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::item::{Item, Reader, item, number, text};
use super::super::names::recounts::{AFTER, AT, BEFORE, BY, RUN, SHARD, WHY};
use super::super::names::{PK, SK};
use super::padded;

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

/// Where the lines of a counter are kept.
pub(super) fn of(counter: &CounterId) -> String {
    format!("ledger#{}", counter.stored())
}

/// A line as it is stored.
pub(super) fn encode(entry: &LedgerEntry) -> Item {
    let what = entry.shard.map_or_else(|| "total".to_owned(), |shard| shard.to_string());
    let mut line = item([
        (PK, text(of(&entry.counter))),
        (SK, text(format!("{}#{}#{what}", padded(entry.at.0), entry.run))),
        (AT, number(entry.at)),
        (RUN, text(entry.run.to_string())),
        (BY, text(entry.by.as_str())),
        (BEFORE, number(entry.before)),
        (AFTER, number(entry.after)),
        (WHY, text(entry.why.as_str())),
    ]);
    line.extend(entry.shard.map(|shard| (SHARD.to_owned(), number(shard))));
    line
}

/// A line of `counter`.
pub(super) fn decode(counter: &CounterId, reader: &Reader<'_>) -> Outcome<LedgerEntry> {
    let shard = reader.number::<u16>(SHARD)?;
    let known = |shard| Shard::new(shard).ok_or_else(|| reader.malformed(SHARD, "no deployment has such a shard"));
    Ok(LedgerEntry {
        counter: counter.clone(),
        shard: shard.map(known).transpose()?,
        at: UnixMillis(reader.required_number(AT)?),
        run: reader.required(RUN)?,
        by: reader.required_text(BY)?.to_owned(),
        before: reader.required_number(BEFORE)?,
        after: reader.required_number(AFTER)?,
        why: reader.required_text(WHY)?.to_owned(),
    })
}
