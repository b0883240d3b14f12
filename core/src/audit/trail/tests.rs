use super::*;
use crate::lineage::Checkpoint;
use crate::tally::Image;
use crate::time::UnixMillis;

/// Stream shard 1 is closed; 2, 3 and 4 are open, 2 applied up to record 10, 3 up to record 3, and 4 not at all.
fn trail() -> Trail {
    let shard = |ordinal, sequence: Option<u64>, closed| Checkpoint {
        id: format!("s-{ordinal}").as_str().into(),
        parent: None,
        ordinal: Ordinal(ordinal),
        sequence: sequence.map(Sequence::from),
        closed,
        at: UnixMillis(0),
    };
    let shards = [shard(1, None, true), shard(2, Some(10), false), shard(3, Some(3), false), shard(4, None, false)];
    Trail::begin(&Lineage::new(shards, [], None))
}

fn record(sequence: u64, pk: &str, user: &str, after: bool) -> RawRecord {
    let image = |is: bool| is.then(Image::default);
    let (before, after) = (image(!after), image(after));
    let (pk, sort) = (Some(pk.to_owned()), Some(user.to_owned()));
    RawRecord { sequence: sequence.to_string(), written: UnixMillis(0), pk, sort, before, after }
}

fn marks(marks: &[(u64, u64)], floor: Option<u64>) -> Watermarks {
    let marks = marks.iter().map(|(shard, mark)| (Ordinal(*shard), Sequence::from(*mark))).collect();
    Watermarks::new(marks, floor.map(Ordinal))
}

fn touched(trail: &Trail, marks: &Watermarks) -> Option<Vec<(String, i64)>> {
    let touched = trail.touched(&"p#0".parse().unwrap(), marks)?;
    let mut touched: Vec<_> = touched.iter().map(|(member, weight)| (member.to_string(), weight.get())).collect();
    touched.sort();
    Some(touched)
}

#[test]
fn what_the_counter_contains_is_told_and_what_it_does_not_contain_yet_is_not() {
    let mut trail = trail();
    let records = [(11, "a", true), (12, "b", false), (13, "a", false), (14, "c", true)];
    trail.take(Ordinal(2), &records.map(|(at, user, is)| record(at, "p#0", user, is))).unwrap();
    let row = |name: &str, weight| (name.to_owned(), weight);
    assert_eq!(touched(&trail, &marks(&[(2, 10)], None)), Some(vec![]));
    assert_eq!(touched(&trail, &marks(&[(2, 12)], None)), Some(vec![row("a", 1), row("b", 0)]));
    assert_eq!(touched(&trail, &marks(&[(2, 13)], None)), Some(vec![row("a", 0), row("b", 0)]));
    assert_eq!(touched(&trail, &marks(&[(1, 999)], None)), Some(vec![]), "fed by a shard that was closed before");
    assert_eq!(trail.held(), 4);
}

#[test]
fn a_trail_that_was_not_read_up_to_the_counter_says_what_is_missing() {
    let mut trail = trail();
    let beyond = marks(&[(2, 12), (3, 4)], None);
    assert_eq!(trail.covers(&beyond), Err(Missing::Unread(vec![Ordinal(2), Ordinal(3)])));
    assert_eq!(trail.position(Ordinal(2)).unwrap().1, Position::After(10.into()));
    assert_eq!(trail.position(Ordinal(3)).unwrap().1, Position::After(3.into()));
    assert_eq!(trail.position(Ordinal(4)), None);
    trail.take(Ordinal(2), &[record(10, "p#0", "early", true), record(12, "q#0", "a", true)]).unwrap();
    assert_eq!(trail.held(), 1, "what was applied before is none of it");
    assert_eq!((trail.covers(&beyond), touched(&trail, &beyond)), (Err(Missing::Unread(vec![Ordinal(3)])), None));
    trail.take(Ordinal(3), &[record(4, "q#0", "a", true)]).unwrap();
    assert_eq!(touched(&trail, &beyond), Some(vec![]));
}

#[test]
fn a_stream_shard_that_had_no_record_yet_and_one_pruned_before_it_was_read_say_nothing() {
    let mut trail = trail();
    for unknown in [marks(&[(4, 1)], None), marks(&[(5, 1)], None), marks(&[], Some(4)), marks(&[], Some(5))] {
        assert_eq!(trail.covers(&unknown), Err(Missing::Unknown), "{unknown:?}");
    }
    let pruned = marks(&[], Some(2));
    assert_eq!(trail.covers(&pruned), Err(Missing::Unread(vec![Ordinal(2)])));
    trail.take(Ordinal(2), &[record(11, "p#0", "a", true)]).unwrap();
    assert_eq!(touched(&trail, &pruned), None, "there may be more of it");
    trail.end(Ordinal(2));
    assert_eq!(touched(&trail, &pruned), Some(vec![("a".to_owned(), 1)]));
}

#[test]
fn a_row_key_that_two_stream_shards_fed_and_one_with_an_unreadable_row_are_not_told() {
    let mut trail = trail();
    trail.take(Ordinal(2), &[record(11, "p#0", "a", true)]).unwrap();
    trail.take(Ordinal(3), &[record(5, "p#0", "a", false)]).unwrap();
    assert_eq!(touched(&trail, &marks(&[(2, 11)], None)), Some(vec![("a".to_owned(), 1)]));
    assert_eq!(touched(&trail, &marks(&[(2, 11), (3, 5)], None)), None);
    let mut other = self::trail();
    let mut unreadable = record(11, "p#0", "a", true);
    unreadable.after = Some(Image { stated: crate::weight::Stated::Unreadable, ..Image::default() });
    other.take(Ordinal(2), &[unreadable]).unwrap();
    assert_eq!(touched(&other, &marks(&[(2, 11)], None)), None);
    let torn = RawRecord { sequence: "none".to_owned(), ..record(1, "p#0", "a", true) };
    assert_eq!(other.take(Ordinal(2), &[torn]), Err(Broken));
}
