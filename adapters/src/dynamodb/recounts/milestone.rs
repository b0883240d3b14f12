//! The milestones of counters: each put once, in the transaction of the update that reaches it, and never changed.

use aws_sdk_dynamodb::types::Put;
use tally_core::ids::{CounterId, MemberKey};
use tally_core::milestone::{Events, Milestone, Winner};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::expression::Aliases;
use super::super::item::{Item, Reader, flag, item, number, text};
use super::super::names::recounts::{
    AT, DIGEST, EXACT, FROM, GAINED, GENERATION, LAG, MEMBER, N, NTH, PARTITION, SKIPPED, STATE, TO, TOPIC, VERSION,
};
use super::super::names::{PK, SK};
use super::padded;

/// A milestone as it stands, and the digest that was written with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The milestone.
    pub milestone: Milestone,
    /// What [`Milestone::digest`] said when it was written.
    pub digest: String,
}

/// Where the milestones of a counter are kept.
pub(super) fn of(counter: &CounterId) -> String {
    format!("milestone#{}", counter.stored())
}

/// Where that of one threshold is.
pub(super) fn place(n: i64) -> String {
    padded(n.unsigned_abs())
}

/// The put of a milestone of `counter` into `table`, where there is none.
pub(in crate::dynamodb) fn put(table: &str, counter: &CounterId, milestone: &Milestone) -> Put {
    let mut say = Aliases::default();
    let condition = format!("attribute_not_exists({})", say.name(PK));
    let (names, values) = say.finish();
    Put::builder()
        .table_name(table)
        .set_item(Some(encode(counter, milestone)))
        .condition_expression(condition)
        .set_expression_attribute_names(names)
        .set_expression_attribute_values(values)
        .build()
        .expect("table and item are set")
}

fn encode(counter: &CounterId, milestone: &Milestone) -> Item {
    let Milestone { n, by, at, lag, version, exact, skipped } = milestone;
    let mut encoded = item([
        (PK, text(of(counter))),
        (SK, text(place(*n))),
        (N, number(n)),
        (STATE, text(by.state())),
        (AT, number(at)),
        (LAG, number(lag)),
        (VERSION, number(version)),
        (EXACT, flag(*exact)),
        (SKIPPED, number(skipped)),
        (DIGEST, text(milestone.digest(counter))),
    ]);
    match by {
        Winner::Unwitnessed => {}
        Winner::Member(member) => encoded.extend(item([(MEMBER, text(member.as_str()))])),
        Winner::Events(Events { topic, partition, generation, from, to, nth, gained }) => encoded.extend(item([
            (TOPIC, text(&**topic)),
            (PARTITION, number(partition)),
            (GENERATION, number(generation)),
            (FROM, number(from)),
            (TO, number(to)),
            (NTH, number(nth)),
            (GAINED, number(gained)),
        ])),
    }
    encoded
}

/// A milestone as it stands.
pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Recorded> {
    let milestone = Milestone {
        n: reader.required_number(N)?,
        by: winner(reader)?,
        at: UnixMillis(reader.required_number(AT)?),
        lag: reader.required_number(LAG)?,
        version: reader.required_number(VERSION)?,
        exact: reader.flag(EXACT)?,
        skipped: reader.required_number(SKIPPED)?,
    };
    Ok(Recorded { milestone, digest: reader.required_text(DIGEST)?.to_owned() })
}

fn winner(reader: &Reader<'_>) -> Outcome<Winner> {
    let state = reader.required_text(STATE)?;
    let winner = if let Some(member) = reader.text(MEMBER)? {
        let member = MemberKey::new(member).ok_or_else(|| reader.malformed(MEMBER, "no member"))?;
        Winner::Member(member)
    } else if let Some(topic) = reader.text(TOPIC)? {
        Winner::Events(Events {
            topic: topic.into(),
            partition: reader.required_number(PARTITION)?,
            generation: reader.required_number(GENERATION)?,
            from: reader.required_number(FROM)?,
            to: reader.required_number(TO)?,
            nth: reader.required_number(NTH)?,
            gained: reader.required_number(GAINED)?,
        })
    } else {
        Winner::Unwitnessed
    };
    if winner.state() == state {
        Ok(winner)
    } else {
        Err(reader.malformed(STATE, format!("{state:?} is not what the rest says")))
    }
}
