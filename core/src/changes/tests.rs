//! Tests of the log of changes: its messages are read as they were written, and the filter of a reader, which is fed
//! messages of one partition, accepts each entry once and notices what is missing.

use super::*;
use crate::ids::{CounterId, MemberKey, PostId, Region, Sequence, Shard, StreamShard};
use crate::register::Version;
use crate::tally::{Image, RawRecord, read};
use crate::time::UnixMillis;
use crate::weight::{Stated, Weight};

const NOW: UnixMillis = UnixMillis(1_700_000_000_000);
const MILLI: std::time::Duration = std::time::Duration::from_millis(1);

pub(crate) fn of() -> DeploymentId {
    DeploymentId("tally".into())
}

fn key() -> RowKey {
    RowKey { counter: CounterId::likes(PostId::new("p\"1").unwrap()), shard: Shard::new(3).unwrap() }
}

/// Returns an entry by which a row gains 1.
pub(crate) fn entry(sequence: u64) -> Entry {
    let side = |weight| Side { weight, ..Side::default() };
    let member = MemberKey::new("u").unwrap();
    let effect = Effect::Weighed { member, before: side(0), after: side(1) };
    Entry { key: key(), effect, second: 1, sequence: sequence.into() }
}

pub(crate) fn shard(name: &str) -> StreamShard {
    StreamShard::from(format!("2024/{name}").as_str())
}

pub(crate) fn message(body: Body) -> Message {
    Message { read: NOW, body }
}

fn section(name: &str, back: u64, to: u64, fed: u64, entries: &[u64]) -> Section {
    let at = |n: u64| (n > 0).then(|| Sequence::from(n));
    let entries = entries.iter().map(|sequence| entry(*sequence)).collect();
    Section { shard: shard(name), back: at(back), to: at(to), fed: Some(UnixMillis(fed)), entries }
}

pub(crate) fn opening(name: &str, at: Option<u64>, fed: u64) -> Opening {
    Opening { shard: shard(name), at: at.map(Into::into), fed: UnixMillis(fed) }
}

pub(crate) fn opened(shards: Vec<Opening>, ended: &[&str]) -> Body {
    Body::Opened(Opened { shards, ended: ended.iter().map(|name| shard(name)).collect() })
}

fn closed(name: &str, back: Option<u64>, fed: UnixMillis, children: &[&str]) -> Body {
    let children = children.iter().map(|name| shard(name)).collect();
    Body::Closed(Closed { shard: shard(name), back: back.map(Into::into), fed, children })
}

fn naming(losses: &[LossNumber]) -> Body {
    Body::Sections { sections: Vec::new(), losses: losses.to_vec() }
}

/// A reader of one partition, with the entries that its filter accepted.
#[derive(Default)]
struct Reader {
    filter: Filter,
    at: u64,
    accepted: Vec<u64>,
}

impl Reader {
    fn opened(names: &[&str]) -> Self {
        let mut reader = Self::default();
        assert_eq!(reader.open(names), Taken::default());
        reader
    }

    fn open(&mut self, names: &[&str]) -> Taken {
        self.take(opened(names.iter().map(|name| opening(name, None, 1)).collect(), &[]))
    }

    fn take(&mut self, body: Body) -> Taken {
        self.take_appended(NOW, body)
    }

    fn take_appended(&mut self, appended: UnixMillis, body: Body) -> Taken {
        let (place, message) = (Place::new(1, Offset(self.at)), message(body));
        self.at += 1;
        self.filter.take(place, appended, &message, |item, _| {
            if let Item::Entry(entry) = item {
                self.accepted.push(entry.sequence.wire().parse().expect("a small number"));
            }
        })
    }

    fn open_another_stream(&mut self) {
        let opening = Opening { shard: StreamShard::from("2025/a"), ..opening("a", None, 70) };
        self.take(opened(vec![opening], &[]));
    }

    fn section(&mut self, section: Section) -> Taken {
        self.take(Body::Sections { sections: vec![section], losses: Vec::new() })
    }
}

#[test]
fn what_a_message_says_survives_being_written_and_read() {
    let region = |name| Region::new(name);
    let moved = |from: Option<u64>, to: Option<u64>| Effect::Weighed {
        member: MemberKey::new("u").unwrap(),
        before: Side { weight: 1, region: region("eu"), v: from.map(Version::from_stored) },
        after: Side { weight: -4, region: region("us"), v: to.map(Version::from_stored) },
    };
    let most = Some(u64::MAX);
    let versions =
        [(None, Some(5)), (Some(5), Some(9)), (Some(9), Some(5)), (most, Some(0)), (None, most), (most, None)];
    let effects = versions
        .map(|(from, to)| moved(from, to))
        .into_iter()
        .chain([Effect::Unreadable { member: MemberKey::new("v").unwrap() }, Effect::Marked(Nonce(7))]);
    let entries = [entry(4)].into_iter().chain((5..).zip(effects).map(|(at, effect)| Entry { effect, ..entry(at) }));
    let sections =
        vec![Section { entries: entries.collect(), ..section("a", 3, 20, 5, &[]) }, section("b", 0, 0, 5, &[])];
    let parts = [(Shard::FIRST, Amend::Add(-2)), (Shard::new(9).unwrap(), Amend::Doubt)].into();
    let loss = Some(Place::new(1, Offset(7)));
    let correction = Correction { counter: key().counter, parts, seen: 4, loss };
    for body in [
        Body::Sections { sections, losses: vec![LossNumber(4)] },
        opened(vec![opening("a", Some(5), NOW.0)], &["b"]),
        closed("a", None, NOW, &["b", "c"]),
        Body::Lost(Lost { number: LossNumber(9), next: Some((shard("a"), 8.into())) }),
        Body::Lost(Lost { number: LossNumber(9), next: None }),
        Body::Repaired(LossNumber(9)),
        Body::Correction(correction),
        Body::Ladder("10,100".parse().unwrap()),
    ] {
        let written = message(body.clone()).write(&of());
        assert_eq!(Message::read(&written, &of()), Ok(message(body)), "{}", String::from_utf8_lossy(&written));
    }
}

#[test]
fn an_entry_names_the_versions_before_and_after_and_another_version_alone_is_no_entry() {
    let like = |v| Some(Image { v: Some(v), region: Region::new("eu"), ..Image::default() });
    let tombstone = |v| Some(Image { stated: Stated::Amount(Weight::ABSENT), v: Some(v), ..Image::default() });
    for (before, after, gained) in [
        (None, like(1), Some(1)),
        (like(1), tombstone(2), Some(-1)),
        (tombstone(2), like(3), Some(1)),
        (like(3), like(4), None),
        (None, tombstone(5), None),
        (tombstone(5), tombstone(6), None),
        (tombstone(6), None, None),
    ] {
        let versions = [&before, &after].map(|image| image.as_ref()?.v.map(Version::from_stored));
        let (pk, sort) = (Some("p#3".to_owned()), Some("u".to_owned()));
        let expired = after.is_none();
        let record = RawRecord { sequence: "7".to_owned(), pk, sort, before, after, expired, ..RawRecord::default() };
        let entry = Entry::of(&read(&record).expect("it has a position"));
        assert_eq!(entry.as_ref().map(Entry::gain), gained, "{record:?}");
        let Some(Entry { effect: Effect::Weighed { before, after, .. }, .. }) = entry else { continue };
        assert_eq!([before.v, after.v], versions, "{record:?}");
        assert_eq!((before.region, after.region), (Region::new("eu"), Region::new("eu")), "{record:?}");
    }
}

#[test]
fn a_message_of_another_version_or_deployment_or_form_is_named_and_not_passed_over() {
    let text = |text: &str| Message::read(text.as_bytes(), &of()).unwrap_err();
    let read = |rest: &str| text(&format!(r#"{{"v":3,"of":"tally","read":1{rest}}}"#));
    assert_eq!(text(r#"{"v":1,"g":12,"changes":[]}"#), BadMessage::Version(1));
    assert_eq!(text(r#"{"v":2,"of":"tally","read":1,"repaired":4}"#), BadMessage::Version(2));
    assert_eq!(text(r#"{"v":3,"of":"other","read":1,"repaired":4}"#), BadMessage::Deployment("other".to_owned()));
    let zero = "0".repeat(39);
    for (rest, why) in [
        ("", "says nothing"),
        (r#","repaired":4,"ladder":"10""#, "two things"),
        (r#","ladder":"x""#, "ladder"),
        (r#","correction":{"subject":"p","counter":"likes","parts":[[999,1]],"seen":0}"#, "shard 999"),
        (&format!(r#","sections":[{{"s":"a","back":"5","to":"{zero}4"}}]"#), "outside"),
        (r#","sections":[{"s":"a","to":"4","e":[["p","likes",0,"u",0,1,1,"5",9]]}]"#, "outside"),
        (r#","sections":[{"s":"a","to":"4","e":[["p","likes",0,"u",0,null,1,"3",9]]}]"#, "one weight of two"),
        (r#","sections":[{"s":"a","to":"4","e":[["p","likes",0,"u",0,2000000000000000000,1,"3",9]]}]"#, "out of range"),
    ] {
        let error = read(rest).to_string();
        assert!(error.contains(why), "{rest}: {error}");
    }
    assert!(matches!(text("{"), BadMessage::Malformed(_)));
}

#[test]
fn an_announcement_that_tells_a_reader_of_all_what_it_has_never_read_shows_a_hole() {
    let opening = |name, at| opening(name, at, 1);
    let announce = |shards, ended: &[&str]| {
        let mut reader = Reader::opened(&["a", "b"]);
        let hole = reader.take(opened(shards, ended)).hole;
        (hole.is_some(), reader.filter.standing().as_of)
    };
    let both = || vec![opening("a", None), opening("b", None)];
    assert_eq!(announce(both(), &[]), (false, Some(UnixMillis(1))));
    assert_eq!(announce([both(), vec![opening("c", None)]].concat(), &[]), (false, Some(UnixMillis(1))), "late");
    assert_eq!(announce([both(), vec![opening("c", Some(4))]].concat(), &[]), (true, Some(UnixMillis(1))));
    assert_eq!(announce(vec![opening("b", None)], &["a"]), (true, Some(UnixMillis(1))), "a closing");
}

#[test]
fn what_has_ended_may_be_said_before_what_is_open_and_lists_nothing() {
    let mut reader = Reader::opened(&["a", "b"]);
    reader.filter.jump(Place::new(1, Offset(9)), NOW);
    reader.at = 9;
    assert_eq!(reader.take(opened(Vec::new(), &["a"])), Taken::default());
    assert_eq!(reader.filter.standing().as_of, None);
    assert_eq!((reader.open(&["b"]), reader.filter.standing().as_of), (Taken::default(), Some(UnixMillis(1))));
}

#[test]
fn two_stream_shards_that_miss_something_in_one_message_are_one_loss() {
    let mut reader = Reader::opened(&["a", "b"]);
    let sections = vec![section("a", 5, 6, 2, &[6]), section("b", 5, 6, 2, &[6])];
    let taken = reader.take(Body::Sections { sections, losses: Vec::new() });
    assert_eq!(Vec::from_iter(reader.filter.standing().open), Vec::from_iter(taken.hole));
}

#[test]
fn the_repair_of_a_loss_that_no_message_has_named_announces_it() {
    let mut reader = Reader::opened(&["a"]);
    let number = reader.filter.jump(Place::new(1, Offset(5)), NOW);
    reader.at = 20;
    reader.take(Body::Repaired(number));
    assert_eq!(reader.filter.loss(), Some(Place::new(1, Offset(20))));
}

#[test]
fn a_hole_has_a_number_that_its_partition_has_never_heard_of_although_the_brokers_clock_is_behind() {
    for other in [LossNumber(NOW.0), LossNumber(NOW.0 + 600_000)] {
        let mut reader = Reader::opened(&["a"]);
        let hole = |reader: &mut Reader, to| reader.section(section("a", to - 1, to, 2, &[to])).hole.expect("a hole");
        reader.take(naming(&[other]));
        let first = hole(&mut reader, 6);
        reader.take(Body::Repaired(other));
        assert_eq!(reader.filter.standing().open, [first].into(), "the repair of what another partition found");
        let second = hole(&mut reader, 9);
        assert!(other < first && first < second);
    }
}

#[test]
fn a_loss_is_open_until_it_is_repaired_and_never_opens_again() {
    let mut reader = Reader::opened(&["a"]);
    reader.take(naming(&[LossNumber(4), LossNumber(5)]));
    assert_eq!(reader.filter.standing().open.len(), 2);
    let loss = reader.filter.loss();
    reader.take(naming(&[LossNumber(4)]));
    reader.take(Body::Lost(Lost { number: LossNumber(5), next: None }));
    assert_eq!(reader.filter.loss(), loss, "what is repeated is no other announcement");
    reader.take(Body::Repaired(LossNumber(4)));
    reader.take(naming(&[LossNumber(4)]));
    assert_eq!(reader.filter.standing().open, [LossNumber(5)].into());
}

#[test]
fn an_announcement_of_stream_shards_that_comes_again_changes_nothing() {
    let mut reader = Reader::opened(&["a"]);
    reader.take(closed("a", None, UnixMillis(45), &["b"]));
    reader.section(section("b", 0, 9, NOW.0, &[3]));
    let before = reader.filter.clone();
    reader.open(&["a"]);
    assert_eq!(reader.filter, before);
}

#[test]
fn another_stream_ends_the_one_before_and_a_process_that_has_not_heard_of_it_opens_none_of_that() {
    let mut reader = Reader::opened(&["a"]);
    reader.open_another_stream();
    assert_eq!(reader.filter.standing().as_of, Some(UnixMillis(70)));
    reader.take(closed("a", None, UnixMillis(45), &["b"]));
    let as_of = reader.filter.standing().as_of;
    assert_eq!(as_of, Some(UnixMillis(70)), "no process reads the child, which is of the stream before");
    reader.open(&["b", "c"]);
    assert_eq!(reader.filter.standing().as_of, Some(UnixMillis(70)));
}

#[test]
fn what_an_earlier_stream_had_unread_is_lost_and_not_taken_later() {
    let mut reader = Reader::opened(&["a"]);
    reader.section(section("a", 0, 2, 50, &[1, 2]));
    reader.open_another_stream();
    reader.section(section("a", 2, 4, 60, &[3, 4]));
    assert_eq!(reader.accepted, [1, 2], "an audit may have set the counters right by now");
}

#[test]
fn what_a_jump_passed_over_of_a_shard_that_ended_is_lost_and_not_taken_behind_later_entries_of_its_rows() {
    let mut reader = Reader::opened(&["parent"]);
    reader.filter.jump(Place::new(2, Offset(0)), NOW);
    reader.take(opened(vec![opening("child", None, 1)], &["parent"]));
    reader.section(section("child", 0, 9, 1, &[9]));
    reader.section(section("parent", 0, 3, 1, &[3]));
    assert_eq!(reader.accepted, [9], "a recount takes the last entry of a row for the newest");
}

#[test]
fn a_stream_shard_that_nobody_has_read_for_a_day_and_that_is_not_named_is_lost() {
    const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
    for (fed, is_lost) in [(NOW.minus(DAY + MILLI), true), (NOW.minus(DAY), false)] {
        let mut reader = Reader::opened(&["a"]);
        reader.take(closed("a", None, fed, &["b", "c"]));
        let taken = reader.take(opened(vec![opening("b", None, NOW.0)], &["a"]));
        assert_eq!(taken.hole.is_some(), is_lost);
        assert_eq!(reader.filter.standing().as_of, Some(if is_lost { NOW } else { fed }));
    }
}

#[test]
fn behind_a_jump_nothing_is_known_until_all_stream_shards_are_announced_again() {
    let mut reader = Reader::opened(&["a", "b"]);
    reader.section(section("a", 0, 2, 50, &[1]));
    let number = reader.filter.jump(Place::new(1, Offset(9)), NOW);
    reader.at = 9;
    assert_eq!(reader.section(section("a", 6, 7, 50, &[7])), Taken::default(), "the jump is the loss");
    let standing = reader.filter.standing();
    assert_eq!((standing.as_of, standing.open), (None, [number].into()));
    reader.section(section("a", 1, 4, 50, &[2, 3]));
    assert_eq!(reader.accepted, [1, 7]);
    assert_eq!(reader.take(opened(vec![opening("a", Some(7), 50)], &[])), Taken::default());
    assert_eq!(reader.filter.standing().as_of, Some(UnixMillis(50)), "b was closed in what was not read");
}

#[test]
fn a_page_that_was_read_half_a_day_before_it_is_appended_is_passed_over() {
    let mut reader = Reader::opened(&["a"]);
    let late = NOW.plus(std::time::Duration::from_secs(12 * 3600 + 1));
    let sections = vec![section("a", 0, 2, 50, &[1])];
    assert!(reader.take_appended(late, Body::Sections { sections, losses: Vec::new() }).stale);
    assert_eq!(reader.accepted, [0; 0]);
}

#[test]
fn a_place_of_a_later_topic_is_behind_all_of_an_earlier_one() {
    assert!(Place::new(2, Offset(0)) > Place::new(1, Offset(u64::from(u32::MAX))));
    let place = Place::new(7, Offset(9));
    assert_eq!((place.generation(), place.offset(), place.next().offset()), (7, Offset(9), Offset(10)));
    assert_eq!(Place::from_stored(place.stored()), place);
}
