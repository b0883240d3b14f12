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
    FEEDER, FLOOR, LADDER, LIKES, RECORDED, ROWS, SUSPECT, SWITCHES, UPDATED_AT, VERSION, WATERMARK, WINDOW_ROWS,
    WINDOW_RUN,
};

/// The counter that `item` is; `reader` reads the same item. Attributes of an unknown name are passed over.
pub(super) fn decode(reader: &Reader<'_>, item: &Item) -> Outcome<Counter> {
    let mut counter = Counter::default();
    let mut marks: BTreeMap<Ordinal, Sequence> = BTreeMap::new();
    let (mut floor, mut beyond) = (None, false);
    let mut windows: BTreeMap<Shard, (Option<WindowRun>, Option<i64>)> = BTreeMap::new();
    for (name, value) in item {
        match name.as_str() {
            LIKES => (counter.likes, beyond) = sum(reader, name, value)?,
            VERSION => counter.version = reader.as_number(name, value)?,
            UPDATED_AT => counter.updated_at = UnixMillis(reader.as_number(name, value)?),
            FLOOR => floor = Some(Ordinal(reader.as_number(name, value)?)),
            RECORDED => counter.recorded = Some(reader.as_number(name, value)?),
            LADDER => counter.ladder = reader.as_number(name, value)?,
            _ => match numbered(name) {
                Some((WATERMARK, g)) => {
                    marks.insert(Ordinal(g), reader.as_parsed(name, value)?);
                }
                Some((WINDOW_RUN, k)) => {
                    windows.entry(shard(reader, name, k)?).or_default().0 = Some(reader.as_parsed(name, value)?);
                }
                Some((WINDOW_ROWS, k)) => {
                    let (rows, is_beyond) = sum(reader, name, value)?;
                    let shard = shard(reader, name, k)?;
                    windows.entry(shard).or_default().1 = Some(rows);
                    counter.shards.entry(shard).or_default().suspect |= is_beyond;
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
    if beyond {
        counter.shards.entry(Shard::new(0).expect("the first shard")).or_default().suspect = true;
    }
    counter.watermarks = Watermarks::new(marks, floor);
    Ok(counter)
}

fn set(tally: &mut ShardTally, kind: &str, reader: &Reader<'_>, name: &str, value: &AttributeValue) -> Outcome<()> {
    match kind {
        ROWS => {
            let (rows, is_beyond) = sum(reader, name, value)?;
            tally.rows = rows;
            tally.suspect |= is_beyond;
        }
        FEEDER => tally.feeder = Some(Ordinal(reader.as_number(name, value)?)),
        SWITCHES => tally.switches = reader.as_number(name, value)?,
        _ => tally.suspect |= reader.as_flag(name, value)?,
    }
    Ok(())
}

/// A sum of weights, and whether it is beyond 64 bits: then it is the nearest that is not, and in doubt.
fn sum(reader: &Reader<'_>, name: &str, value: &AttributeValue) -> Outcome<(i64, bool)> {
    let nearest = |is_negative: bool| if is_negative { i64::MIN } else { i64::MAX };
    match reader.as_number::<i128>(name, value) {
        Ok(stands) => Ok(i64::try_from(stands).map_or_else(|_| (nearest(stands < 0), true), |sum| (sum, false))),
        Err(malformed) => match value {
            AttributeValue::N(digits) if is_integer(digits) => Ok((nearest(digits.starts_with('-')), true)),
            _ => Err(malformed),
        },
    }
}

fn is_integer(digits: &str) -> bool {
    let digits = digits.strip_prefix('-').unwrap_or(digits);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
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
    use tally_core::ids::CounterKind;

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
            ("likes", number("1e99")),
            ("likes", text("5")),
            ("s1", number("1.5")),
            ("s1", number("-")),
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
    fn a_sum_beyond_64_bits_is_the_nearest_within_and_in_doubt_and_no_error() {
        const BEYOND: [(&str, i64); 4] = [
            ("9223372036854775808", i64::MAX),
            ("-9223372036854775809", i64::MIN),
            ("170141183460469231731687303715884105728", i64::MAX),
            ("-99999999999999999999999999999999999999999", i64::MIN),
        ];
        let shard = |k| Shard::new(k).unwrap();
        for (digits, nearest) in BEYOND {
            let counter = read(item([("likes", number(digits)), ("s3", number(5))])).unwrap();
            assert_eq!((counter.likes, counter.is_sound_as(CounterKind::Sum)), (nearest, false), "{digits}");
            let counter = read(item([("likes", number(nearest)), ("s3", number(digits))])).unwrap();
            let tally = &counter.shards[&shard(3)];
            assert_eq!((tally.rows, tally.suspect), (nearest, true), "{digits}");
            assert!(!counter.is_sound_as(CounterKind::Sum), "{digits}");
            let mut window = window("00000000000000000000000000000007");
            window.extend(item([("hs3", number(digits)), ("sus3", flag(false))]));
            let tally = read(window).unwrap().shards.remove(&shard(3)).unwrap();
            assert_eq!((tally.window.unwrap().rows, tally.suspect), (nearest, true), "{digits}");
        }
        for within in [i64::MIN, i64::MAX] {
            let counter = read(item([("likes", number(within)), ("s3", number(within))])).unwrap();
            assert_eq!((counter.likes, counter.is_sound_as(CounterKind::Sum)), (within, true));
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
