//! Tests of the consumer's rules for turning events into rows: which versions are greater, which writes [`Progress`]
//! sends next and which offset it may commit, and how [`Adding`] adds to a sum.
use super::{Adding, Answer, Cell, Change, Effect, Progress, Row, Settled, Step, Topic, Version, Write};
use crate::definitions::{Definitions, Entry};
use crate::event::decode_value;
use crate::ids::{ShardCount, UserId};
use crate::time::UnixMillis;
use crate::topic::{Offset, Partition, TopicId};

fn version(offset: u64) -> Version {
    Version::new(1, true, Offset(offset))
}

fn write_of(member: &str, version: Version) -> Write {
    let row = Row { key: "p#0".parse().unwrap(), member: UserId::new(member).unwrap() };
    Write { row, version, change: Change::Put(UnixMillis(0).into()) }
}

/// Returns a partition that took an event of each of these members.
fn taken(members: &[&str]) -> Progress {
    let mut progress = Progress::new(Offset(0));
    for (offset, member) in (0..).zip(members) {
        progress.take(write_of(member, version(offset)));
    }
    progress
}

fn cut(progress: &mut Progress) -> Vec<u64> {
    let attempts = progress.cut(Progress::STATEMENTS);
    attempts.iter().map(|attempt| attempt.write.version.offset().0).collect()
}

fn settle(progress: &mut Progress, offset: u64, answer: Answer) -> Settled {
    progress.settle(Offset(offset), answer)
}

#[test]
fn an_event_that_an_operator_has_left_out_adds_nothing_and_moves_its_cell_on() {
    let views = Entry::sum("views", "view", None);
    let (defined, value) = (Definitions::new(&[views]).unwrap(), br#"{"post_id":"p","action":"view","n":5}"#);
    let event = decode_value(Some(value), UnixMillis(0), &defined).unwrap();
    let adopted = Topic::adopted(TopicId("t".into()), 2, vec![Offset(0); 2]);
    let of = |topic: &Topic, offset| {
        let partition = Partition { topic: "likes".into(), index: 1 };
        match Effect::of(&event, topic, &partition, Offset(offset), ShardCount::DEFAULT) {
            Effect::Add { version, amount, .. } => (version.generation(), version.offset().0, amount),
            effect @ Effect::Write(_) => panic!("{effect:?}"),
        }
    };
    let left_out = Topic { sums_from: vec![Offset(0), Offset(8)], ..adopted.clone() };
    assert_eq!([of(&left_out, 7), of(&left_out, 8)], [(2, 7, 0), (2, 8, 5)]);
    assert_eq!(of(&adopted, 7), (2, 7, 5), "all are counted where nothing else is said");
}

#[test]
fn versions_compare_by_generation_then_by_whether_they_are_routed_then_by_offset() {
    let most = (1 << 48) - 1;
    let parts = [
        (0, false, 0),
        (0, false, most),
        (0, true, 0),
        (0, true, most),
        (1, false, 0),
        (Version::MAX_GENERATION, true, most),
    ];
    let rising = parts.map(|(generation, is_routed, offset)| Version::new(generation, is_routed, Offset(offset)));
    assert!(rising.is_sorted_by(|a, b| a < b));
    for (version, parts) in rising.into_iter().zip(parts) {
        assert_eq!((version.generation(), version.is_routed(), version.offset().0), parts);
        assert_eq!(version.to_string().parse(), Ok(version));
    }
    assert_eq!(rising[5].to_string(), u64::MAX.to_string());
    assert_eq!(Version::new(3, true, Offset(7)).to_string(), (3 * (1_u64 << 49) + (1 << 48) + 7).to_string());
    assert_eq!(format!("{:?} {:?}", rising[0], rising[2]), "0:0 misrouted 0:0");
}

#[test]
fn the_commit_waits_for_every_record_before_it_in_whatever_order_they_are_finished() {
    let mut progress = taken(&["a", "b", "c"]);
    progress.take_elsewhere(Offset(7));
    progress.reach(Offset(9));
    assert_eq!(cut(&mut progress), [0, 1, 2]);
    for (offset, commit) in [(2, 0), (0, 1), (1, 7)] {
        assert_eq!(settle(&mut progress, offset, Answer::Stored), Settled::Finished);
        assert_eq!(progress.committable(), Offset(commit));
    }
    progress.finish(Offset(7));
    assert_eq!((progress.committable(), progress.kept(), progress.next()), (Offset(9), 0, Offset(9)));
}

#[test]
fn a_row_has_one_statement_under_way_and_its_next_one_is_the_newest_event() {
    let mut progress = taken(&["a"]);
    assert_eq!(cut(&mut progress), [0]);
    progress.take(write_of("a", version(1)));
    progress.take(write_of("a", version(2)));
    assert_eq!(cut(&mut progress), [] as [u64; 0]);
    assert_eq!(settle(&mut progress, 0, Answer::Again), Settled::Again);
    assert_eq!(progress.committable(), Offset(0));
    assert_eq!(cut(&mut progress), [2]);
    settle(&mut progress, 2, Answer::Stored);
    assert_eq!((progress.committable(), cut(&mut progress)), (Offset(3), vec![]));
}

#[test]
fn a_refused_event_between_others_of_its_row_is_left_out() {
    let mut progress = taken(&["a", "a"]);
    assert_eq!(cut(&mut progress), [1]);
    progress.take(write_of("a", version(2)));
    progress.take(write_of("a", version(3)));
    settle(&mut progress, 1, Answer::Refused);
    assert_eq!(cut(&mut progress), [3]);
    assert_eq!(settle(&mut progress, 3, Answer::Refused), Settled::Refused);
    assert_eq!(cut(&mut progress), [2]);
    assert_eq!(settle(&mut progress, 2, Answer::Refused), Settled::Refused);
    assert_eq!(cut(&mut progress), [0], "the one before all that were refused");
    settle(&mut progress, 0, Answer::Stored);
    assert_eq!(progress.committable(), Offset(1), "no letter is acknowledged");
    for offset in [3, 1, 2] {
        progress.finish(Offset(offset));
    }
    assert_eq!((progress.committable(), cut(&mut progress)), (Offset(4), vec![]));
}

#[test]
fn a_misrouted_event_is_put_aside_where_a_routed_one_stands_in_its_generation() {
    let misrouted = |offset| Version::new(1, false, Offset(offset));
    let stands = [version(0), misrouted(9), Version::new(2, true, Offset(0)), Version::new(2, false, Offset(0))];
    let expected = [Settled::Misrouted, Settled::Finished, Settled::Finished, Settled::Finished];
    for (stands, expected) in stands.into_iter().zip(expected) {
        let mut progress = Progress::new(Offset(5));
        progress.take(write_of("a", misrouted(5)));
        progress.take(write_of("a", misrouted(6)));
        assert_eq!(cut(&mut progress), [6]);
        progress.take(write_of("a", misrouted(7)));
        assert_eq!(settle(&mut progress, 6, Answer::Older(stands)), expected, "{stands:?}");
        assert_eq!(cut(&mut progress), [7], "{stands:?}");
        if expected == Settled::Misrouted {
            assert_eq!(progress.committable(), Offset(6), "what gave way to it is finished");
            progress.finish(Offset(6));
        }
        assert_eq!(progress.committable(), Offset(7), "{stands:?}");
    }
    let mut routed = taken(&["a"]);
    cut(&mut routed);
    assert_eq!(settle(&mut routed, 0, Answer::Older(version(9))), Settled::Finished);
}

#[test]
fn a_record_that_the_store_takes_ends_the_count_of_those_that_it_has_refused() {
    let members: Vec<String> = (0..17).map(|n| n.to_string()).collect();
    for taking in [Answer::Stored, Answer::Older(version(99))] {
        let mut progress = taken(&members.iter().map(String::as_str).collect::<Vec<_>>());
        cut(&mut progress);
        for offset in 0..15 {
            assert_eq!(settle(&mut progress, offset, Answer::Refused), Settled::Refused);
        }
        settle(&mut progress, 15, taking);
        assert_eq!((settle(&mut progress, 16, Answer::Refused), progress.refusals()), (Settled::Refused, 1));
    }
}

#[test]
fn a_cell_at_the_limit_stays_there() {
    let mut adding = Adding::default();
    adding.take(version(1), 3);
    adding.step();
    let full = Cell { n: i64::MAX, to: version(0) };
    assert_eq!(adding.read(Some(full)).count(), 0);
    assert_eq!(adding.step(), Some(Step::Update { from: Some(full), to: Cell { n: i64::MAX, to: version(1) } }));
}
