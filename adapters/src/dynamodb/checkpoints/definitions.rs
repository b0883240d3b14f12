//! The deployment's counters as a list in its configuration.

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::definitions::{Definitions, Entry};
use tally_core::ports::Outcome;

use super::super::item::{Reader, text};
use super::super::names::checkpoints::COUNTERS;

pub(super) fn encode(definitions: &Definitions) -> AttributeValue {
    let entry = |entry: Entry| {
        let Entry { name, kind, add, remove, subject, member, topic } = entry;
        let stated = [("name", Some(name)), ("kind", Some(kind)), ("add", Some(add)), ("remove", remove)];
        let fields = stated.into_iter().chain([("subject", subject), ("member", member), ("topic", topic)]);
        AttributeValue::M(fields.filter_map(|(name, value)| Some((name.to_owned(), text(value?)))).collect())
    };
    AttributeValue::L(definitions.iter().map(|definition| entry(Entry::from(definition))).collect())
}

/// Reads the list; where there is none there are likes alone.
pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Definitions> {
    let Some(list) = reader.list(COUNTERS)? else { return Ok(Definitions::likes_alone()) };
    let entries = list.iter().map(|entry| {
        let AttributeValue::M(fields) = entry else { return Err(reader.malformed(COUNTERS, "not a list of maps")) };
        let field = |name: &str| match fields.get(name) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text.clone())),
            Some(_) => Err(reader.malformed(COUNTERS, format!("{name} is not a text"))),
        };
        let required =
            |name: &str| field(name)?.ok_or_else(|| reader.malformed(COUNTERS, format!("{name} is missing")));
        Ok(Entry {
            name: required("name")?,
            kind: required("kind")?,
            add: required("add")?,
            remove: field("remove")?,
            subject: field("subject")?,
            member: field("member")?,
            topic: field("topic")?,
        })
    });
    let entries = entries.collect::<Outcome<Vec<_>>>()?;
    Definitions::new(&entries).map_err(|error| reader.malformed(COUNTERS, error))
}
