//! Milestones: the records of who brought a counter to a threshold. Each is put once, by the transaction that brings
//! the counter there ([`Counters::cross`](crate::dynamodb::counters::Counters::cross)), and never changed.

use aws_sdk_dynamodb::types::Put;
use tally_core::ids::{CounterId, MemberKey};
use tally_core::milestone::{Events, Milestone, Winner};
use tally_core::ports::Outcome;

use super::super::item::{Item, Reader, flag, item, number, text};
use super::padded;

/// A stored milestone, and the digest that was written with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub milestone: Milestone,
    /// What [`Milestone::digest`] returned when it was written.
    pub digest: String,
}

/// Returns the partition key of a counter's milestones.
pub(super) fn of(counter: &CounterId) -> String {
    format!("milestone#{}", counter.stored())
}

/// Returns the sort key of the milestone of threshold `n`.
pub(super) fn place(n: i64) -> String {
    padded(n.unsigned_abs())
}

/// Builds the put of a milestone of `counter` into `table`, on the condition that there is none.
pub(in crate::dynamodb) fn put(table: &str, counter: &CounterId, milestone: &Milestone) -> Put {
    Put::builder()
        .table_name(table)
        .set_item(Some(encode(counter, milestone)))
        .condition_expression("attribute_not_exists(pk)")
        .build()
        .expect("table and item are set")
}

fn encode(counter: &CounterId, milestone: &Milestone) -> Item {
    let Milestone { n, by, at, lag, version, exact, skipped } = milestone;
    let mut encoded = item! {
        "pk": text(of(counter)),
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

pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Recorded> {
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
