//! A counter as an item.

use std::borrow::Cow;
use std::collections::BTreeSet;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::changes::Place;
use tally_core::fold::Counter;
use tally_core::ids::Shard;
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::item::{Item, Reader, number};
use super::super::names::counts::{CORRECTIONS, DOUBT, GAP, LIKES, ROWS, UPDATED_AT, VERSION};

/// The name of the attribute that has the part of a shard.
pub(super) fn part(shard: Shard) -> String {
    format!("{ROWS}{shard}")
}

/// A set of shards, which is absent where it would be empty.
pub(super) fn shards(shards: &BTreeSet<Shard>) -> Option<AttributeValue> {
    (!shards.is_empty()).then(|| AttributeValue::Ns(shards.iter().map(Shard::to_string).collect()))
}

/// The attributes of a counter besides its key.
pub(in crate::dynamodb) fn encode(counter: &Counter) -> Vec<(Cow<'static, str>, AttributeValue)> {
    let Counter { likes, parts, version, corrections, gap, doubt, updated_at } = counter;
    let mut attributes: Vec<(Cow<'static, str>, _)> =
        vec![(LIKES.into(), number(likes)), (VERSION.into(), number(version)), (UPDATED_AT.into(), number(updated_at))];
    attributes.extend((*corrections > 0).then(|| (CORRECTIONS.into(), number(corrections))));
    attributes.extend(gap.map(|gap| (GAP.into(), number(gap))));
    attributes.extend(shards(doubt).map(|doubt| (DOUBT.into(), doubt)));
    attributes.extend(parts.iter().map(|(shard, gained)| (part(*shard).into(), number(gained))));
    attributes
}

/// The counter that `item` is; `reader` reads the same item. Attributes of an unknown name are passed over. A number of
/// corrections has one spelling: one of 0 is absent.
pub(super) fn decode(reader: &Reader<'_>, item: &Item) -> Outcome<Counter> {
    let mut counter = Counter {
        likes: reader.required_number(LIKES)?,
        version: Place::from_stored(reader.required_number(VERSION)?),
        corrections: reader.number(CORRECTIONS)?.unwrap_or_default(),
        gap: reader.number(GAP)?.map(Place::from_stored),
        updated_at: UnixMillis(reader.number(UPDATED_AT)?.unwrap_or_default()),
        ..Counter::default()
    };
    if counter.corrections == 0 && item.contains_key(CORRECTIONS) {
        return Err(reader.malformed(CORRECTIONS, "without corrections it has to be absent"));
    }
    for shard in reader.number_set(DOUBT)? {
        counter.doubt.insert(shard_of(reader, DOUBT, shard)?);
    }
    for (name, value) in item {
        if let Some(digits) = digits(name) {
            counter.parts.insert(shard_of(reader, name, digits)?, reader.as_number(name, value)?);
        }
    }
    Ok(counter)
}

/// What follows `s` in the name of a shard's part. A number has one spelling.
fn digits(name: &str) -> Option<&str> {
    let digits = name.strip_prefix(ROWS)?;
    let canonical = digits == "0" || !digits.is_empty() && !digits.starts_with('0');
    (canonical && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(digits)
}

fn shard_of(reader: &Reader<'_>, name: &str, digits: &str) -> Outcome<Shard> {
    let shard = digits.parse().ok().and_then(Shard::new);
    shard.ok_or_else(|| reader.malformed(name, format!("no counter has a shard {digits}")))
}

#[cfg(test)]
mod tests {
    use tally_core::fault::Fault;

    use super::super::super::item::{flag, item, text};
    use super::super::super::names::counts::POST_ID;
    use super::*;

    fn read(attributes: Item) -> Outcome<Counter> {
        let mut attributes = attributes;
        attributes.insert(POST_ID.into(), text("p"));
        decode(&Reader::new("like_counts", &attributes), &attributes)
    }

    fn shard(k: u16) -> Shard {
        Shard::new(k).unwrap()
    }

    #[test]
    fn a_counter_is_read_as_it_is_written() {
        let least = Counter { version: Place::from_stored(9), ..Counter::default() };
        let all = Counter {
            likes: -4,
            parts: [(shard(0), 0), (shard(3), -4), (shard(255), i64::MIN)].into(),
            version: Place::from_stored(u64::MAX),
            corrections: 2,
            gap: Some(Place::from_stored(7)),
            doubt: [shard(1), shard(3)].into(),
            updated_at: UnixMillis(77),
        };
        for counter in [least, all] {
            let attributes = encode(&counter).into_iter().map(|(name, value)| (name.into_owned(), value));
            assert_eq!(read(attributes.collect()), Ok(counter));
        }
    }

    #[test]
    fn an_attribute_that_cannot_be_read_poisons_the_item_and_is_named() {
        let broken = [
            ("likes", text("5")),
            ("likes", number("9223372036854775808")),
            ("version", number(-1)),
            ("s1", number("1.5")),
            ("s1", text("1")),
            ("s256", number(1)),
            ("s99999", number(1)),
            ("c", number(-1)),
            ("c", number(0)),
            ("gap", flag(true)),
            ("doubt", number(1)),
            ("doubt", AttributeValue::Ns(vec!["256".into()])),
            ("updated_at", text("now")),
        ];
        for (name, value) in broken {
            let mut attributes = item([("likes", number(1)), ("version", number(1))]);
            attributes.insert(name.into(), value);
            let Err(Fault::Poison(message)) = read(attributes) else { panic!("{name}") };
            assert!(message.starts_with(&format!("table like_counts, item post_id \"p\": {name}: ")), "{message}");
        }
        for absent in ["likes", "version"] {
            let mut attributes = item([("likes", number(1)), ("version", number(1))]);
            attributes.remove(absent);
            let Err(Fault::Poison(message)) = read(attributes) else { panic!("{absent}") };
            assert!(message.ends_with(&format!("{absent}: missing")), "{message}");
        }
    }

    #[test]
    fn attributes_of_other_names_are_passed_over() {
        let mut attributes = item([("likes", number(1)), ("version", number(1)), ("s", text("x")), ("sx1", text("x"))]);
        attributes.extend(item([("s01", text("x")), ("s-1", text("x")), ("future", flag(true))]));
        assert_eq!(read(attributes).map(|counter| counter.parts.len()), Ok(0));
    }
}
