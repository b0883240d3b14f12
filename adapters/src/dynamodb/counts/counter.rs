//! A counter as an item. On the path of every update, so decoded by hand, in one pass over the attributes.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::counter::{Counter, ShardTally, Window};
use tally_core::ids::{Ordinal, Sequence, Shard};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;
use tally_core::watermark::Watermarks;
use tally_core::window::WindowRun;

use super::super::item::{Item, Reader};
use super::super::names::counts::{
    FEEDER, FLOOR, LIKES, ROWS, SUSPECT, SWITCHES, UPDATED_AT, VERSION, WATERMARK, WINDOW_ROWS, WINDOW_RUN,
};

/// The counter that `item` is; `reader` reads the same item. Attributes of an unknown name are passed over.
pub(super) fn decode(reader: &Reader<'_>, item: &Item) -> Outcome<Counter> {
    let mut counter = Counter::default();
    let mut marks: BTreeMap<Ordinal, Sequence> = BTreeMap::new();
    let mut floor = None;
    let mut windows: BTreeMap<Shard, (Option<WindowRun>, Option<i64>)> = BTreeMap::new();
    for (name, value) in item {
        match name.as_str() {
            LIKES => counter.likes = reader.as_number(name, value)?,
            VERSION => counter.version = reader.as_number(name, value)?,
            UPDATED_AT => counter.updated_at = UnixMillis(reader.as_number(name, value)?),
            FLOOR => floor = Some(Ordinal(reader.as_number(name, value)?)),
            _ => match numbered(name) {
                Some((WATERMARK, g)) => {
                    marks.insert(Ordinal(g), reader.as_parsed(name, value)?);
                }
                Some((WINDOW_RUN, k)) => {
                    windows.entry(shard(reader, name, k)?).or_default().0 = Some(reader.as_parsed(name, value)?);
                }
                Some((WINDOW_ROWS, k)) => {
                    windows.entry(shard(reader, name, k)?).or_default().1 = Some(reader.as_number(name, value)?);
                }
                Some((kind @ (ROWS | FEEDER | SWITCHES | SUSPECT), k)) => {
                    let tally = counter.shards.entry(shard(reader, name, k)?).or_default();
                    set(tally, kind, reader, name, value)?;
                }
                _ => {}
            },
        }
    }
    for (shard, window) in windows {
        let (Some(run), Some(rows)) = window else {
            return Err(reader.malformed(&format!("{WINDOW_RUN}{shard}"), "a window needs its run and its rows"));
        };
        counter.shards.entry(shard).or_default().window = Some(Window { run, rows });
    }
    counter.watermarks = Watermarks::new(marks, floor);
    Ok(counter)
}

fn set(tally: &mut ShardTally, kind: &str, reader: &Reader<'_>, name: &str, value: &AttributeValue) -> Outcome<()> {
    match kind {
        ROWS => tally.rows = reader.as_number(name, value)?,
        FEEDER => tally.feeder = Some(Ordinal(reader.as_number(name, value)?)),
        SWITCHES => tally.switches = reader.as_number(name, value)?,
        _ => tally.suspect = reader.as_flag(name, value)?,
    }
    Ok(())
}

/// An attribute's kind and number: `sus12` is of the kind `sus`.
fn numbered(name: &str) -> Option<(&str, u64)> {
    let digits = name.find(|c: char| c.is_ascii_digit())?;
    let (kind, number) = name.split_at(digits);
    let canonical = number == "0" || !number.starts_with('0');
    Some((kind, number.parse().ok().filter(|_| canonical)?))
}

fn shard(reader: &Reader<'_>, name: &str, k: u64) -> Outcome<Shard> {
    let shard = u16::try_from(k).ok().and_then(Shard::new);
    shard.ok_or_else(|| reader.malformed(name, "no deployment has such a shard"))
}

#[cfg(test)]
mod tests {
    use tally_core::fault::Fault;

    use super::super::super::item::{flag, item, number, text};
    use super::*;

    fn read(attributes: Item) -> Outcome<Counter> {
        let mut attributes = attributes;
        attributes.insert("post_id".into(), text("p"));
        decode(&Reader::new("like_counts", &attributes), &attributes)
    }

    fn window(digits: &str) -> Item {
        item([("hr3", text(digits)), ("hs3", number(5))])
    }

    #[test]
    fn every_attribute_has_its_place() {
        let run = WindowRun::from(7);
        let mut attributes = window(&run.to_string());
        attributes.extend(item([
            ("likes", number(-4)),
            ("version", number(9)),
            ("updated_at", number(77)),
            ("fl", number(2)),
            ("w12", text("0000000000000000000100000000000000000001")),
            ("s3", number(-4)),
            ("o3", number(12)),
            ("x3", number(1)),
            ("sus3", flag(true)),
            ("some_future_thing", flag(true)),
        ]));
        let counter = read(attributes).unwrap();
        let shard = Shard::new(3).unwrap();
        let expected = ShardTally {
            rows: -4,
            feeder: Some(Ordinal(12)),
            switches: 1,
            suspect: true,
            window: Some(Window { run, rows: 5 }),
        };
        assert_eq!((counter.likes, counter.version, counter.updated_at), (-4, 9, UnixMillis(77)));
        assert_eq!(counter.shards, [(shard, expected)].into());
        let mark = "100000000000000000001".parse().unwrap();
        assert_eq!(counter.watermarks, Watermarks::new([(Ordinal(12), mark)].into(), Some(Ordinal(2))));
    }

    #[test]
    fn an_attribute_that_cannot_be_read_poisons_the_item_and_is_named() {
        let broken = [
            ("likes", number("9223372036854775808")),
            ("s1", number("-9223372036854775809")),
            ("s1", number("1.5")),
            ("s256", number(1)),
            ("w1", text("not a sequence")),
            ("o1", text("1")),
            ("sus1", number(1)),
            ("hs1", number(1)),
            ("version", number(-1)),
        ];
        for (name, value) in broken {
            let Err(Fault::Poison(message)) = read(item([(name, value)])) else { panic!("{name}") };
            let named = if name == "hs1" { "hr1" } else { name };
            assert!(message.contains(&format!("item post_id \"p\": {named}: ")), "{message}");
        }
    }

    #[test]
    fn a_number_has_one_spelling_in_a_name() {
        assert_eq!(numbered("s0"), Some(("s", 0)));
        assert_eq!(numbered("sus17"), Some(("sus", 17)));
        for name in ["s01", "s", "s1x", "w99999999999999999999"] {
            assert_eq!(numbered(name), None, "{name}");
        }
    }
}
