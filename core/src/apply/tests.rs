//! The machine step by step: what it asks for, in which order, and what each answer leads to.

mod bench;

use bench::Bench;

use super::*;
use crate::counter::{Counter, ShardTally, Update};
use crate::ids::{CounterId, MemberKey, RowKey, Shard};
use crate::ports::{Applied, QueueReason};
use crate::served::Served;
use crate::standing::LIMIT;
use crate::tally::{CutRules, RecordKind};
use crate::watermark::{Prune, Reach};
use crate::weight::Weight;
use crate::window::{CaptureLimits, Marker};

const RULES: Rules = Rules {
    cut: CutRules { records: 100, age: Duration::from_millis(100) },
    window: CaptureLimits { members: 100, age: Duration::from_secs(3600) },
    concurrency: 2,
};
const SHARD: Ordinal = Ordinal(5);
const SECOND: Duration = Duration::from_secs(1);
/// When each test begins.
const BEGAN: Now = Now { at: Duration::ZERO, wall: UnixMillis(4_000) };

fn transient() -> Fault {
    Fault::Transient("no answer".to_owned())
}

fn likes(post: &str) -> CounterId {
    CounterId::likes(post.parse().unwrap())
}

fn row(sequence: u64, key: &str) -> Record {
    let (member, before, after) = (MemberKey::new("u").unwrap(), Weight::ABSENT, Weight::ONE);
    let kind = RecordKind::Row { key: key.parse().unwrap(), member, before, after, span: None, regions: None };
    Record { sequence: sequence.into(), written: UnixMillis(2_000), kind }
}

fn marker(sequence: u64, key: &str, marker: Marker) -> Record {
    Record {
        sequence: sequence.into(),
        written: UnixMillis(2_000),
        kind: RecordKind::Marker { key: key.parse().unwrap(), marker },
    }
}

fn low(sequence: u64) -> Record {
    marker(sequence, "p#0", Marker::low(7.into()))
}

fn high(sequence: u64) -> Record {
    marker(sequence, "p#0", Marker::high(7.into()))
}

/// A counter that has everything of the machine's stream shard up to `sequence`.
fn through(sequence: u64) -> Counter {
    let mut counter = Counter::default();
    counter.watermarks.advance(SHARD, sequence.into());
    counter
}

/// A counter whose floor is at or above the machine's stream shard.
fn finished() -> Counter {
    let mut counter = Counter::default();
    counter.watermarks.prune(&Prune { floor: SHARD, finished: vec![] });
    counter
}

#[test]
fn the_checkpoint_and_the_next_prefix_wait_for_every_answer() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0"), row(2, "q#0")]);
    assert!(bench.asked.is_empty(), "a prefix is gathered first");
    bench.age();
    assert_eq!(bench.asked.len(), 2);
    assert!(!bench.machine.wants_more(), "the reader waits");
    bench.take(through(1));
    assert_eq!(bench.asked.len(), 1, "one counter is still unanswered");
    bench.take(through(2));
    assert_eq!(bench.request(), &Request::MoveCheckpoint { to: 2.into(), at: UnixMillis(2_000) });
    assert!(!bench.machine.wants_more());
    bench.answer(Answer::Done);
    assert!(bench.machine.wants_more());
    assert_eq!(bench.machine.stored(), UnixMillis(2_000));
    let flushed = Flushed { cut: Cut::Age, counters: 2, records: 2, took: Duration::ZERO };
    assert!(bench.is_told(&Effect::Flushed(flushed)));
}

#[test]
fn so_many_counters_are_written_side_by_side_and_none_twice() {
    let mut bench = Bench::new();
    let records: Vec<_> = (1..=7).map(|at| row(at, &format!("p{}#0", at % 5))).collect();
    bench.read(&records);
    bench.age();
    let mut written = Vec::new();
    while let Some((_, Request::Update { counter, update, .. })) = bench.asked.first().cloned() {
        assert!(bench.asked.len() <= RULES.concurrency);
        written.push(counter);
        bench.take(through(7).updated(&Update { first: 8.into(), last: 8.into(), ..(*update).clone() }).unwrap());
    }
    written.sort();
    assert_eq!(written, ["p0", "p1", "p2", "p3", "p4"].map(likes));
}

#[test]
fn a_prefix_is_cut_by_size_in_the_middle_of_what_the_reader_passed_on() {
    let mut bench = Bench::with(Rules { cut: CutRules { records: 2, ..RULES.cut }, ..RULES }, Picture::default());
    bench.read(&[row(1, "p#0"), row(2, "p#0"), row(3, "p#0")]);
    assert_eq!((bench.update().first, bench.update().last), (1.into(), 2.into()));
    bench.take(through(2));
    assert_eq!(bench.request(), &Request::MoveCheckpoint { to: 2.into(), at: UnixMillis(2_000) });
    bench.answer(Answer::Done);
    bench.age();
    assert_eq!((bench.update().first, bench.update().last), (3.into(), 3.into()));
}

#[test]
fn after_an_unknown_outcome_the_same_update_is_sent_again() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0")]);
    bench.age();
    let sent = bench.update().clone();
    for tries in 0..3 {
        bench.fail(transient());
        let Request::Update { update, again, .. } = bench.request() else { panic!("not an update") };
        assert_eq!((&**update, again), (&sent, &Some(Again { fault: transient(), tries })));
    }
}

#[test]
fn an_answer_that_is_not_awaited_changes_nothing() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0")]);
    bench.age();
    let (first, _) = bench.asked[0];
    bench.fail(transient());
    for late in [Answer::Updated(Ok(Applied::Taken(through(1)))), Answer::Updated(Err(transient())), Answer::Done] {
        bench.step(Input::Answered(first, late));
    }
    assert_eq!(bench.update().last, 1.into(), "the repeat is unanswered");
    bench.take(through(1));
    bench.settle();
    bench.read(&[row(2, "p#0")]);
    bench.age();
    bench.step(Input::Answered(first, Answer::Updated(Ok(Applied::Taken(through(2))))));
    assert_eq!(bench.update().last, 2.into(), "answers to the last prefix are none to this one");
}

#[test]
fn records_that_are_counted_already_are_left_out_and_the_rest_is_sent() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0"), row(2, "p#0"), row(3, "p#0")]);
    bench.age();
    bench.refuse(through(2));
    assert_eq!((bench.update().first, bench.update().total()), (3.into(), Ok(1)));
    bench.refuse(through(3));
    assert!(matches!(bench.request(), Request::MoveCheckpoint { .. }), "all of them are counted");
    assert_eq!(bench.told.iter().filter(|effect| **effect == Effect::Refused(RefusedBy::Applied)).count(), 2);
}

#[test]
fn a_finished_shard_ends_the_machine_once_everything_sent_is_answered() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0"), row(2, "q#0"), row(3, "r#0")]);
    bench.age();
    bench.refuse(finished());
    assert_eq!(bench.asked.len(), 1, "the third is not sent any more, and the second is waited for");
    bench.fail(transient());
    bench.take(through(2));
    assert!(bench.asked.is_empty() && bench.is_told(&Effect::Ended(End::Finished)), "{:?}", bench.told);
}

#[test]
fn a_closing_marker_is_written_by_itself_and_its_report_behind_it_whatever_became_of_it() {
    for first in [true, false] {
        let mut bench = Bench::new();
        bench.read(&[low(1), row(2, "p#0"), row(3, "q#0"), high(4), row(5, "p#0")]);
        assert_eq!(bench.asked.len(), 2, "the marker ends the prefix at once");
        bench.take(through(2));
        bench.take(through(3));
        let boundary = bench.update();
        assert_eq!((boundary.first, boundary.last, boundary.total()), (4.into(), 4.into(), Ok(0)));
        assert_eq!(boundary.touched[0].window, Some(7.into()));
        if first {
            bench.take(through(4));
        } else {
            bench.refuse(through(9));
        }
        let Request::PutReport { report, .. } = bench.request() else { panic!("{:?}", bench.asked) };
        assert_eq!(report.touched.len(), 1);
        bench.answer(Answer::Reported(Ok(())));
        assert!(bench.is_told(&Effect::WindowClosed(WindowEnd::Reported)));
        assert_eq!(bench.request(), &Request::MoveCheckpoint { to: 4.into(), at: UnixMillis(2_000) });
    }
}

#[test]
fn records_of_a_window_are_captured_also_where_the_counter_has_them_already() {
    let mut bench = Bench::new();
    bench.read(&[low(1), row(2, "p#0"), high(3)]);
    bench.refuse(through(9));
    bench.refuse(through(9));
    let Request::PutReport { report, .. } = bench.request() else { panic!("{:?}", bench.asked) };
    assert_eq!(report.touched.len(), 1);
}

#[test]
fn a_window_that_a_break_has_interrupted_is_not_reported() {
    let mut bench = Bench::new();
    bench.read(&[low(1), row(2, "p#0")]);
    bench.step(Input::Break);
    bench.read(&[high(3)]);
    bench.take(through(2));
    bench.take(through(3));
    assert!(bench.is_told(&Effect::WindowClosed(WindowEnd::Incomplete)));
    assert!(matches!(bench.request(), Request::MoveCheckpoint { .. }));
}

#[test]
fn a_report_is_tried_for_thirty_seconds_and_then_given_up() {
    let mut bench = Bench::new();
    bench.read(&[low(1), high(2)]);
    bench.take(through(1));
    bench.take(through(2));
    for tries in 0..30 {
        bench.answer(Answer::Reported(Err(transient())));
        let Request::PutReport { again, .. } = bench.request() else { panic!("{:?}", bench.asked) };
        assert_eq!(again, &Some(Again { fault: transient(), tries }));
        bench.now += SECOND;
    }
    bench.answer(Answer::Reported(Err(transient())));
    assert!(bench.is_told(&Effect::WindowClosed(WindowEnd::Failed("p#0".parse().unwrap(), transient()))));
    assert!(matches!(bench.request(), Request::MoveCheckpoint { .. }), "the stream shard goes on");
}

#[test]
fn what_the_store_refuses_for_good_is_marked_read_published_and_queued_and_the_shard_goes_on() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0"), row(2, "p#1")]);
    bench.age();
    bench.fail(Fault::Poison("too large".to_owned()));
    let [first, second]: [RowKey; 2] = ["p#0", "p#1"].map(|key| key.parse().unwrap());
    assert_eq!(bench.request(), &Request::MarkSuspect(first.clone()));
    bench.answer(Answer::Marked(false));
    assert_eq!(bench.request(), &Request::OpenGap(crate::lineage::Loss::Refused(first.clone())));
    bench.answer(Answer::Done);
    assert_eq!(bench.request(), &Request::MarkSuspect(second.clone()));
    bench.answer(Answer::Marked(true));
    let counter = likes("p");
    assert_eq!(bench.request(), &Request::ReadCounter(counter.clone()));
    let tally = ShardTally { suspect: true, ..ShardTally::default() };
    let stands = Counter { version: 3, shards: [(Shard::new(1).unwrap(), tally)].into(), ..Counter::default() };
    bench.answer(Answer::Read(Some(stands)));
    assert!(bench.is_told(&Effect::Publish(counter, Served { version: 3, ..Served::default() })), "{:?}", bench.told);
    for key in [first, second] {
        assert_eq!(bench.request(), &Request::Queue(key, QueueReason::Drift));
        bench.answer(Answer::Done);
    }
    assert!(matches!(bench.request(), Request::MoveCheckpoint { .. }));
}

#[test]
fn a_store_that_will_not_go_on_ends_the_machine() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0")]);
    bench.age();
    let fault = Fault::Fatal("access denied".to_owned());
    bench.fail(fault.clone());
    assert!(bench.is_told(&Effect::Ended(End::Failed { what: "update a counter", fault })));
    assert!(bench.asked.is_empty());
}

#[test]
fn a_checkpoint_is_refreshed_soon_after_the_last_prefix_and_then_now_and_again() {
    let mut bench = Bench::new();
    bench.step(Input::UpTo(UnixMillis(5_000)));
    bench.read(&[row(1, "p#0")]);
    bench.age();
    bench.settle();
    assert_eq!(bench.machine.stored(), UnixMillis(5_000), "what was read before the prefix is in it");
    bench.step(Input::UpTo(UnixMillis(5_500)));
    assert!(bench.asked.is_empty());
    assert_eq!(bench.machine.wake_at(), Some(bench.now + SETTLED));
    bench.now += SETTLED;
    bench.step(Input::Woke);
    assert_eq!(bench.request(), &Request::RefreshCheckpoint(UnixMillis(5_500)));
    bench.settle();
    assert_eq!((bench.machine.stored(), bench.machine.wake_at()), (UnixMillis(5_500), Some(bench.now + REFRESH)));
    bench.now += REFRESH;
    bench.step(Input::Woke);
    assert!(bench.asked.is_empty(), "nothing new is known");
}

#[test]
fn a_refresh_claims_nothing_while_records_are_gathered() {
    let slow = Rules { cut: CutRules { age: REFRESH * 2, ..RULES.cut }, ..RULES };
    let mut bench = Bench::with(slow, Picture::default());
    bench.read(&[row(1, "p#0")]);
    bench.step(Input::UpTo(UnixMillis(5_000)));
    bench.now += REFRESH;
    bench.step(Input::Woke);
    assert!(bench.asked.is_empty() && bench.machine.stored() == UnixMillis(1_000));
}

#[test]
fn at_the_end_of_the_shard_everything_is_applied_before_it_may_be_closed() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0")]);
    bench.step(Input::EndOfShard);
    assert_eq!(bench.update().last, 1.into());
    bench.take(through(1));
    assert!(matches!(bench.request(), Request::MoveCheckpoint { .. }));
    bench.answer(Answer::Done);
    assert!(bench.is_told(&Effect::Ended(End::ShardApplied(UnixMillis(2_000)))));
}

#[test]
fn a_stopped_reader_leaves_what_it_passed_on_to_be_applied() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0")]);
    bench.step(Input::ReaderStopped);
    bench.settle();
    assert!(bench.is_told(&Effect::Ended(End::Stopped)));
    let flushed = Flushed { cut: Cut::Stop, counters: 1, records: 1, took: Duration::ZERO };
    assert!(bench.is_told(&Effect::Flushed(flushed)));
}

#[test]
fn watermarks_of_finished_shards_seen_in_a_reply_are_pruned_by_the_next_update() {
    let closed = Picture { closed_through: Some(Ordinal(3)), ..Picture::default() };
    let mut bench = Bench::with(RULES, closed);
    bench.read(&[row(1, "p#0")]);
    bench.age();
    assert_eq!(bench.update().prune, None, "nothing is known of the counter");
    let mut counter = through(1);
    counter.watermarks.advance(Ordinal(2), 9.into());
    bench.take(counter);
    bench.settle();
    bench.read(&[row(2, "p#0")]);
    bench.age();
    let prune = Prune { floor: Ordinal(3), finished: vec![Ordinal(2)] };
    assert_eq!(bench.update().prune, Some(prune));
    let mut higher = through(1);
    higher.watermarks.prune(&Prune { floor: Ordinal(4), finished: vec![] });
    bench.refuse(higher);
    assert_eq!((bench.update().prune.as_ref(), bench.update().last), (None, 2.into()), "the same without the prune");
}

#[test]
fn a_count_is_published_with_what_it_surely_includes_and_not_as_exact_while_a_gap_is_open() {
    let began = Some(BEGAN);
    let known = |open_gaps, as_of| Picture { began, open_gaps, as_of: UnixMillis(as_of), ..Picture::default() };
    for (before, after, exact) in [(false, false, true), (true, false, false), (false, true, false)] {
        let mut bench = Bench::with(RULES, known(before, 3_000));
        bench.read(&[row(1, "p#0")]);
        bench.age();
        bench.step(Input::Picture(Arc::new(known(after, 4_000))));
        bench.take(through(1));
        let served = Served { exact, as_of: UnixMillis(3_000), ..Served::default() };
        assert!(bench.is_told(&Effect::Publish(likes("p"), served)), "{:?}", bench.told);
    }
}

#[test]
fn a_count_that_comes_under_a_picture_too_old_to_know_of_a_gap_is_not_published_as_exact() {
    for (began, exact) in [(Some(BEGAN), true), (None, false)] {
        let mut bench = Bench::with(RULES, Picture { began, ..Picture::default() });
        bench.read(&[row(1, "p#0")]);
        bench.age();
        bench.take(through(1));
        assert!(bench.is_told(&Effect::Publish(likes("p"), Served { exact, ..Served::default() })), "{:?}", bench.told);
    }
    let mut bench = Bench::with(RULES, Picture { began: Some(BEGAN), ..Picture::default() });
    bench.read(&[row(1, "p#0")]);
    bench.age();
    bench.now += LIMIT;
    bench.take(through(1));
    assert!(bench.is_told(&Effect::Publish(likes("p"), Served::default())), "{:?}", bench.told);
}

#[test]
fn a_counter_that_the_update_made_negative_is_queued_before_the_checkpoint_moves() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0")]);
    bench.age();
    let tally = ShardTally { suspect: true, rows: -1, ..ShardTally::default() };
    let wrong = Counter { shards: [(Shard::new(0).unwrap(), tally)].into(), ..through(1) };
    assert_eq!(wrong.watermarks.reach(SHARD), Reach::Through(1.into()));
    bench.refuse(wrong);
    assert_eq!(bench.request(), &Request::Queue("p#0".parse().unwrap(), QueueReason::Suspect));
    bench.answer(Answer::Done);
    assert!(matches!(bench.request(), Request::MoveCheckpoint { .. }));
}

#[test]
fn a_picture_begins_nothing_so_that_records_handed_in_right_behind_it_find_room() {
    let mut bench = Bench::new();
    bench.read(&[row(1, "p#0")]);
    bench.now += RULES.cut.age;
    bench.step(Input::Picture(Arc::new(Picture::default())));
    assert!(bench.machine.wants_more(), "{:?}", bench.told);
    bench.read(&[row(2, "p#0")]);
    assert!(!bench.machine.wants_more(), "the prefix was due");
}
