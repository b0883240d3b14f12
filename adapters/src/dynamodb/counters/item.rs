//! A counter as an item.

use std::borrow::Cow;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::fold::Counter;
use tally_core::ids::Shard;
use tally_core::ports::Outcome;

use super::super::item::{Attribute as _, Reader, number, number_set};

/// The name of the attribute that has the part of a shard.
pub(super) fn part(shard: Shard) -> String {
    format!("s{shard}")
}

/// The attributes of a counter besides its key.
pub(in crate::dynamodb) fn encode(counter: &Counter) -> Vec<(Cow<'static, str>, AttributeValue)> {
    let Counter { likes, parts, version, corrections, gap, doubt, updated_at } = counter;
    let stated = [
        ("likes", Some(number(likes))),
        ("version", Some(number(version))),
        ("updated_at", Some(number(updated_at))),
        ("c", (*corrections > 0).then(|| number(corrections))),
        ("gap", gap.map(number)),
        ("doubt", number_set(doubt)),
    ];
    let stated = stated.into_iter().filter_map(|(name, value)| Some((name.into(), value?)));
    stated.chain(parts.iter().map(|(shard, gained)| (part(*shard).into(), number(gained)))).collect()
}

/// The counter that an item is. Attributes of an unknown name are passed over. A number of corrections has one spelling: one of 0
/// is absent.
pub(super) fn decode(reader: &Reader<'_>) -> Outcome<Counter> {
    let corrections = reader.get::<Option<_>>("c")?;
    if corrections == Some(0) {
        return Err(reader.malformed("c", "without corrections it has to be absent"));
    }
    let mut counter = Counter {
        likes: reader.get("likes")?,
        version: reader.get("version")?,
        corrections: corrections.unwrap_or_default(),
        gap: reader.get("gap")?,
        doubt: reader.get("doubt")?,
        updated_at: reader.get::<Option<_>>("updated_at")?.unwrap_or_default(),
        ..Counter::default()
    };
    for (name, value) in reader.item {
        let Some(digits) = digits(name) else { continue };
        let shard = digits.parse().ok().and_then(Shard::new);
        let shard = shard.ok_or_else(|| reader.malformed(name, format!("no counter has a shard {digits}")))?;
        counter.parts.insert(shard, i64::read(value).map_err(|why| reader.malformed(name, why))?);
    }
    Ok(counter)
}

/// What follows `s` in the name of a shard's part. A number has one spelling.
fn digits(name: &str) -> Option<&str> {
    let digits = name.strip_prefix('s')?;
    let canonical = digits == "0" || !digits.is_empty() && !digits.starts_with('0');
    (canonical && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(digits)
}

#[cfg(test)]
mod tests {
    use tally_core::changes::Place;
    use tally_core::fault::Fault;
    use tally_core::time::UnixMillis;

    use super::super::super::item::{Item, flag, item, text};
    use super::*;

    fn read(mut attributes: Item) -> Outcome<Counter> {
        attributes.insert("post_id".to_owned(), text("p"));
        decode(&Reader { table: "like_counts", item: &attributes })
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
            let mut attributes = item! { "likes": number(1), "version": number(1) };
            attributes.insert(name.into(), value);
            let Err(Fault::Poison(message)) = read(attributes) else { panic!("{name}") };
            assert!(message.starts_with(&format!("table like_counts, item post_id \"p\": {name}: ")), "{message}");
        }
        for absent in ["likes", "version"] {
            let mut attributes = item! { "likes": number(1), "version": number(1) };
            attributes.remove(absent);
            let Err(Fault::Poison(message)) = read(attributes) else { panic!("{absent}") };
            assert!(message.ends_with(&format!("{absent}: missing")), "{message}");
        }
    }

    #[test]
    fn attributes_of_other_names_are_passed_over() {
        let mut attributes = item! { "likes": number(1), "version": number(1), "s": text("x"), "sx1": text("x") };
        attributes.extend(item! { "s01": text("x"), "s-1": text("x"), "future": flag(true) });
        assert_eq!(read(attributes).map(|counter| counter.parts.len()), Ok(0));
    }
}
