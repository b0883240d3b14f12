//! Two ledgers in the table `recounts`, whose lines stay for ever, and milestones. One ledger has a line for each
//! correction of a counter by a recount, put before the correction is sent. The other has a line for each change that
//! an operator makes; all are under one partition key, since people make few. A milestone is the record of who brought
//! a counter to a threshold. It is put once, by the transaction that brings the counter there
//! ([`Counters::cross`](crate::dynamodb::counters::Counters::cross)), and never changed.

use aws_sdk_dynamodb::types::Put;
use tally_core::audit::AuditRun;
use tally_core::ids::{CounterId, MemberKey, Shard};
use tally_core::milestone::{Events, Milestone, Winner};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::item::{Item, Reader, flag, item, number, text};
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
pub(super) fn ledger_of(counter: &CounterId) -> String {
    format!("ledger#{}", counter.stored())
}

impl LedgerEntry {
    pub(super) fn encode(&self) -> Item {
        let what = self.shard.map_or_else(|| "total".to_owned(), |shard| shard.to_string());
        item! {
            "pk": text(ledger_of(&self.counter)),
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

/// A stored milestone, and the digest that was written with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub milestone: Milestone,
    /// What [`Milestone::digest`] returned when it was written.
    pub digest: String,
}

/// Returns the partition key of a counter's milestones.
pub(super) fn milestones_of(counter: &CounterId) -> String {
    format!("milestone#{}", counter.stored())
}

/// Returns the sort key of the milestone of threshold `n`.
pub(super) fn place(n: i64) -> String {
    padded(n.unsigned_abs())
}

/// Builds the put of a milestone of `counter` into `table`, on the condition that there is none.
pub(in crate::dynamodb) fn put_milestone(table: &str, counter: &CounterId, milestone: &Milestone) -> Put {
    Put::builder()
        .table_name(table)
        .set_item(Some(encode_milestone(counter, milestone)))
        .condition_expression("attribute_not_exists(pk)")
        .build()
        .expect("table and item are set")
}

fn encode_milestone(counter: &CounterId, milestone: &Milestone) -> Item {
    let Milestone { n, by, at, lag, version, exact, skipped } = milestone;
    let mut encoded = item! {
        "pk": text(milestones_of(counter)),
        "sk": text(place(*n)),
        "n": number(n),
        "state": text(by.state()),
        "at": number(at),
        "lag": number(lag),
        "version": number(version),
        "exact": flag(*exact),
        "skipped": number(skipped),
        "digest": text(milestone.digest(counter)),
    };
    match by {
        Winner::Unwitnessed => {}
        Winner::Member(member) => encoded.extend(item! { "member": text(member.as_str()) }),
        Winner::Events(Events { topic, partition, generation, from, to, nth, gained }) => encoded.extend(item! {
            "topic": text(&**topic),
            "partition": number(partition),
            "gen": number(generation),
            "from": number(from),
            "to": number(to),
            "nth": number(nth),
            "gained": number(gained),
        }),
    }
    encoded
}

pub(super) fn decode_milestone(reader: &Reader<'_>) -> Outcome<Recorded> {
    let milestone = Milestone {
        n: reader.get("n")?,
        by: winner(reader)?,
        at: reader.get("at")?,
        lag: reader.get("lag")?,
        version: reader.get("version")?,
        exact: reader.get("exact")?,
        skipped: reader.get("skipped")?,
    };
    Ok(Recorded { milestone, digest: reader.get("digest")? })
}

fn winner(reader: &Reader<'_>) -> Outcome<Winner> {
    let winner = if let Some(member) = reader.get::<Option<String>>("member")? {
        let member = MemberKey::new(&member).ok_or_else(|| reader.malformed("member", "no member"))?;
        Winner::Member(member)
    } else if let Some(topic) = reader.get::<Option<String>>("topic")? {
        Winner::Events(Events {
            topic: topic.as_str().into(),
            partition: reader.get("partition")?,
            generation: reader.get("gen")?,
            from: reader.get("from")?,
            to: reader.get("to")?,
            nth: reader.get("nth")?,
            gained: reader.get("gained")?,
        })
    } else {
        Winner::Unwitnessed
    };
    let state = reader.text("state")?;
    if winner.state() == state {
        Ok(winner)
    } else {
        Err(reader.malformed("state", format!("{state:?} is not what the rest says")))
    }
}
