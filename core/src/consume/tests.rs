//! The machine step by step: what it asks for, in which order, and what it makes of each answer.

mod counters;
mod lanes;
mod leaving;
mod letters;
mod places;
mod refusing;

use super::*;
use crate::batch::{BatchLimits, Change, Trigger};
use crate::event::{Action, KeyScheme, LikeEvent, Rejection};
use crate::fault::Fault;
use crate::fence::{Advance, Alarm, Commit, Fence, Fences, Log, Partition, Refused, TopicId};
use crate::ids::{Lane, LaneCount, PostId, ShardCount, UserId};
use crate::ports::log::Records;
use crate::time::UnixMillis;

const AGE: Duration = Duration::from_millis(20);

/// A machine, the time, and what it asked for last.
struct Driven {
    machine: Consume,
    now: Duration,
    effects: Vec<Effect>,
}

fn partition() -> Partition {
    Partition { topic: "likes".into(), index: 0 }
}

fn fence(offset: u64, cfg: u64) -> Fence {
    Fence::new(Offset(offset), cfg, TopicId("id".into()))
}

fn log(topic: &str, start: u64, end: u64) -> Log {
    Log { topic: TopicId(topic.into()), start: Offset(start), end: Offset(end) }
}

fn value(user: &str) -> Vec<u8> {
    let (post, user) = (PostId::new("p").unwrap(), UserId::new(user).unwrap());
    LikeEvent::new(&post, &user, Action::Like, UnixMillis(5)).encode()
}

/// The members whose rows a transaction changes.
fn users_of(transaction: &Transaction) -> Vec<String> {
    let changes = transaction.changes();
    changes
        .iter()
        .map(|change| if let Change::Member { user, .. } = change { user.to_string() } else { "a cell".into() })
        .collect()
}

/// Records from `from` on; an empty user is a tombstone.
fn records(from: u64, users: &[&str]) -> Input {
    let mut records = Records::default();
    for (offset, user) in (from..).zip(users) {
        let value = (!user.is_empty()).then(|| value(user));
        records.push(Offset(offset), UnixMillis(offset), None, value.as_deref(), []);
    }
    Input::Records(Ok(Arc::new(records)))
}

fn busy() -> Fault {
    Fault::Transient("busy".to_owned())
}

impl Driven {
    fn assigned() -> Self {
        Self::assigned_with(LanePolicy::Pinned(LaneCount::ONE))
    }

    fn assigned_with(lanes: LanePolicy) -> Self {
        let limits = BatchLimits { rows: 3, bytes: usize::MAX, age: AGE };
        let setup = Setup { partition: partition(), limits, key: KeyScheme::Post, shards: ShardCount::DEFAULT, lanes };
        let mut driven = Self { machine: Consume::new(setup), now: Duration::ZERO, effects: Vec::new() };
        driven.step(Input::Assigned);
        driven
    }

    /// One that reads from `fence` on.
    fn reading(fence: &Fence) -> Self {
        let mut driven = Self::assigned();
        driven.load(fence);
        driven
    }

    fn load(&mut self, fence: &Fence) {
        self.load_all(&fence.clone().into());
    }

    fn load_all(&mut self, fences: &Fences) {
        assert!(matches!(self.asked(), Effect::ReadFence), "{:?}", self.effects);
        self.step(Input::Fence(Ok(Some(fences.clone()))));
        self.step(Input::Log(Ok(log("id", 0, 50_000))));
        self.step(Input::Announced(Ok(0)));
        self.step(Input::Partitions(Ok(1)));
        let least = fences.least().offset;
        assert!(matches!(self.asked(), Effect::StartAt(offset) if *offset == least), "{:?}", self.effects);
        self.step(Input::Started(Ok(())));
        assert!(self.machine.reads());
    }

    fn step(&mut self, input: Input) {
        self.effects.clear();
        self.machine.step(Now { at: self.now, wall: UnixMillis(0) }, input, &mut self.effects);
    }

    /// The wait is over that the last step asked for.
    fn waited(&mut self) {
        let lane = self.effects.iter().find_map(|effect| match effect {
            Effect::BackOff { lane, .. } => Some(*lane),
            _ => None,
        });
        self.step(Input::Waited(lane.flatten()));
    }

    /// The one request of the last step.
    #[track_caller]
    fn asked(&self) -> &Effect {
        let requests: Vec<&Effect> = self
            .effects
            .iter()
            .filter(|effect| !matches!(effect, Effect::Note(_) | Effect::StoreLetter { .. } | Effect::TellKafka(_)))
            .collect();
        let [request] = requests[..] else { panic!("{:?}", self.effects) };
        request
    }

    /// The transaction that the last step asked for.
    #[track_caller]
    fn transaction(&self) -> Transaction {
        let Effect::Commit(transaction) = self.asked() else { panic!("{:?}", self.effects) };
        transaction.clone()
    }

    /// The dead letters that the last step sent, each with its tries.
    fn letters(&self) -> Vec<(Arc<Letter>, u32)> {
        let letter = |effect: &Effect| match effect {
            Effect::StoreLetter { letter, tries } => Some((Arc::clone(letter), *tries)),
            _ => None,
        };
        self.effects.iter().filter_map(letter).collect()
    }

    #[track_caller]
    fn left(&self) -> (Option<Offset>, bool) {
        let Effect::Left { fence, unsent } = self.asked() else { panic!("{:?}", self.effects) };
        (*fence, *unsent)
    }

    #[track_caller]
    fn halt(&self) -> (Halt, bool) {
        let halt = self.effects.iter().find_map(|effect| match effect {
            Effect::Note(Note::Halted { halt, again }) => Some((halt.clone(), *again)),
            _ => None,
        });
        assert!(matches!(self.asked(), Effect::Rest(RECHECK)), "{:?}", self.effects);
        halt.unwrap()
    }
}

fn steps(transaction: &Transaction) -> (u64, u64) {
    let Advance { from, to } = &transaction.advance;
    (from.offset.0, to.0)
}

fn cancelled(reason: Refused) -> Input {
    Input::Committed(Lane::FIRST, Commit::Cancelled(vec![Refused::Nothing, reason]))
}

#[test]
fn the_fence_is_read_before_the_log_and_reading_starts_at_the_fence() {
    let mut driven = Driven::assigned();
    assert!(matches!(driven.asked(), Effect::ReadFence));
    driven.step(Input::Fence(Ok(None)));
    assert!(matches!(driven.asked(), Effect::ReadLog));
    driven.step(Input::Log(Ok(log("id", 7, 9))));
    assert!(matches!(driven.asked(), Effect::CountPartitions));
    driven.step(Input::Partitions(Ok(12)));
    assert!(matches!(driven.asked(), Effect::RecallPartitions(12)));
    driven.step(Input::FirstSeen(Ok(12)));
    assert!(matches!(driven.asked(), Effect::CreateFence(created) if *created == fence(7, 0)));
    driven.step(Input::FenceStored(Ok(())));
    assert!(matches!(driven.asked(), Effect::ReadFence), "another may have been first");
    driven.step(Input::Fence(Ok(Some(fence(8, 4).into()))));
    driven.step(Input::Log(Ok(log("id", 7, 9))));
    driven.step(Input::Announced(Ok(0)));
    driven.step(Input::Partitions(Ok(12)));
    assert!(matches!(driven.asked(), Effect::StartAt(Offset(8))));
    assert!(!driven.machine.reads());
    driven.step(Input::Started(Ok(())));
    assert!(driven.machine.reads());
}

#[test]
fn a_log_that_does_not_fit_stands_still_aloud_once_and_is_looked_at_again() {
    let mut driven = Driven::assigned();
    for again in [false, true] {
        driven.step(Input::Fence(Ok(Some(fence(3, 0).into()))));
        driven.step(Input::Log(Ok(log("id", 5, 9))));
        let alarm = Alarm::LogTruncated { fence: Offset(3), start: Offset(5) };
        assert_eq!(driven.halt(), (Halt::Alarm(alarm), again));
        driven.waited();
        assert!(matches!(driven.asked(), Effect::ReadFence));
    }
}

#[test]
fn a_partition_with_nothing_to_write_looks_at_its_fence_once_a_minute_and_follows_one_that_was_moved() {
    let mut driven = Driven::reading(&fence(5, 1));
    let minute = Duration::from_secs(60);
    assert_eq!(driven.machine.wake_at(), Some(minute));
    driven.now = minute;
    driven.step(Input::Woke);
    assert!(matches!(driven.asked(), Effect::ReadFence));
    assert!(!driven.machine.reads(), "one request at a time");
    driven.step(Input::Fence(Ok(Some(fence(5, 1).into()))));
    assert!(driven.effects.is_empty() && driven.machine.reads());

    driven.step(records(5, &["u"]));
    driven.now += AGE;
    driven.step(Input::Woke);
    let _ = driven.transaction();
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    assert_eq!(driven.machine.wake_at(), Some(driven.now + minute), "a write that holds shows the fence, too");

    driven.now += minute;
    driven.step(Input::Woke);
    driven.step(Input::Fence(Err(busy())));
    assert!(driven.effects.is_empty() && driven.machine.reads(), "the next look is soon enough");
    driven.now += minute;
    driven.step(Input::Woke);
    driven.step(Input::Fence(Ok(Some(fence(2, 2).into()))));
    driven.load(&fence(2, 2));
}

#[test]
fn records_that_come_while_the_fence_is_looked_at_are_written_behind_the_look() {
    let mut driven = Driven::reading(&fence(5, 1));
    driven.now = Duration::from_secs(60);
    driven.step(Input::Woke);
    driven.step(records(5, &["u", "v", "w"]));
    assert!(driven.effects.is_empty(), "{:?}", driven.effects);
    driven.step(Input::Fence(Ok(Some(fence(5, 1).into()))));
    assert_eq!(steps(&driven.transaction()), (5, 8));
}

#[test]
fn a_fence_that_has_the_topics_name_takes_its_id_once_the_broker_tells_it() {
    let mut driven = Driven::assigned();
    let seen = Fence { topic: TopicId("likes".into()), ..fence(3, 1) };
    driven.step(Input::Fence(Ok(Some(seen.clone().into()))));
    driven.step(Input::Log(Ok(log("id", 0, 9))));
    assert!(
        matches!(driven.asked(), Effect::ReplaceFences { seen: s, by, why: Replacing::TopicNamed } if *s == seen.into() && *by == fence(3, 1).into())
    );
    driven.step(Input::FenceStored(Ok(())));
    driven.load(&fence(3, 2));
}

#[test]
fn a_call_that_fails_for_a_while_is_sent_again_with_growing_waits_and_one_that_fails_for_good_stands_still() {
    let mut driven = Driven::assigned();
    for attempt in 0..3 {
        driven.step(Input::Fence(Err(busy())));
        assert!(matches!(driven.asked(), Effect::BackOff { attempt: a, .. } if *a == attempt));
        driven.step(Input::Fence(Ok(None)));
        assert!(driven.effects.is_empty(), "an answer that is not waited for");
        driven.waited();
        assert!(matches!(driven.asked(), Effect::ReadFence));
    }
    driven.step(Input::Fence(Err(Fault::Fatal("access denied".to_owned()))));
    assert_eq!(driven.halt().0, Halt::Refused("fence: access denied".to_owned()));
}

#[test]
fn a_batch_is_written_by_rows_by_age_and_one_at_a_time() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["a", "b", "c", "d", "e"]));
    let first = driven.transaction();
    assert_eq!((steps(&first), first.batch.rows()), ((0, 3), 3));
    assert!(!driven.machine.reads(), "nothing is read while a batch is written");
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    assert!(driven.machine.reads(), "{:?}", driven.effects);
    assert_eq!(driven.machine.wake_at(), Some(AGE));
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    assert!(driven.effects.is_empty(), "an outcome that is not waited for");
    driven.now = AGE;
    driven.step(Input::Woke);
    assert_eq!(steps(&driven.transaction()), (3, 5));
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    assert!(driven.machine.reads());
    assert_eq!(driven.machine.wake_at(), Some(AGE + Duration::from_secs(60)), "nothing is gathered: the next look");
}

#[test]
fn conflict_and_throttling_send_the_same_again_and_anything_unclear_reads_the_fence() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["a", "b", "c"]));
    let sent = driven.transaction();
    for attempt in 0..3 {
        driven.step(cancelled(if attempt == 1 { Refused::Throttled } else { Refused::Conflict }));
        assert!(matches!(driven.asked(), Effect::BackOff { attempt: a, .. } if *a == attempt));
        driven.waited();
        assert_eq!(driven.transaction(), sent);
    }
    driven.step(Input::Committed(Lane::FIRST, Commit::Unknown("no answer".to_owned())));
    assert!(matches!(driven.asked(), Effect::BackOff { attempt: 0, .. }), "the load led nowhere");
    driven.waited();
    driven.load(&fence(3, 0));
    driven.step(records(3, &["a", "b", "c", "d", "e", "f", "g"]));
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    driven.step(cancelled(Refused::Condition));
    assert!(matches!(driven.asked(), Effect::ReadFence), "this one led somewhere: at once");
}

#[test]
fn loads_that_lead_nowhere_wait_longer_each_time() {
    let mut driven = Driven::reading(&fence(0, 0));
    for attempt in 0..4 {
        driven.step(Input::Records(Err(busy())));
        assert!(matches!(driven.asked(), Effect::BackOff { attempt: a, .. } if *a == attempt));
        driven.waited();
        driven.load(&fence(0, 0));
    }
}

#[test]
fn a_store_that_refuses_the_bare_fence_and_a_full_row_key_stand_still() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &[""]));
    let (letter, _) = driven.letters().pop().unwrap();
    driven.step(Input::LetterStored(letter));
    driven.now = AGE;
    driven.step(Input::Woke);
    driven.step(Input::Committed(Lane::FIRST, Commit::Invalid("bad table".to_owned())));
    assert_eq!(driven.halt().0, Halt::Refused("the store refuses the fence: bad table".to_owned()));

    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["a", "b", "c"]));
    driven.step(cancelled(Refused::Full));
    let Halt::Refused(text) = driven.halt().0 else { panic!() };
    assert!(text.contains("row key `p#"), "{text}");
}

#[test]
fn kafka_is_told_when_reading_begins_and_now_and_then() {
    let told = |driven: &Driven| driven.effects.iter().any(|effect| matches!(effect, Effect::TellKafka(_)));
    let mut driven = Driven::reading(&fence(0, 0));
    assert!(told(&driven), "reading begins");
    for (seconds, expected) in [(0u64, false), (4, false), (5, true), (9, false), (10, true)] {
        driven.now = Duration::from_secs(seconds);
        let from = driven.machine.reads().then(|| next_offset(&driven)).unwrap();
        driven.step(records(from, &["a", "b", "c"]));
        driven.step(Input::Committed(Lane::FIRST, Commit::Done));
        assert_eq!(told(&driven), expected, "after {seconds} s");
    }
}

fn next_offset(driven: &Driven) -> u64 {
    let Phase::Reading(reading) = &driven.machine.phase else { panic!() };
    reading.least().offset.0
}

#[test]
fn a_log_that_no_longer_fits_the_fence_makes_it_read_again_once_nothing_is_under_way() {
    let look = |log| Input::Looked(Look { fence: fence(3, 0), furthest: Offset(3), log, partitions: 1 });
    for misfit in [log("later", 0, 9), log("id", 4, 9), log("id", 0, 2)] {
        let mut driven = Driven::reading(&fence(3, 0));
        driven.step(look(log("id", 0, 3)));
        assert!(driven.effects.is_empty());
        driven.step(look(misfit.clone()));
        assert!(matches!(driven.asked(), Effect::BackOff { attempt: 0, .. }), "{misfit:?}");

        let mut driven = Driven::reading(&fence(3, 0));
        driven.step(records(3, &["a", "b", "c", "d"]));
        driven.step(look(misfit));
        assert!(driven.effects.is_empty());
        driven.step(Input::Committed(Lane::FIRST, Commit::Done));
        assert!(matches!(driven.asked(), Effect::ReadFence), "{:?}", driven.effects);
    }
}

#[test]
fn records_are_counted_as_stale_before_the_fence_and_as_misrouted_outside_their_keys_partition() {
    let taken = |driven: &Driven| {
        driven.effects.iter().find_map(|effect| match effect {
            Effect::Note(Note::Taken { stale, misrouted, oldest, .. }) => Some((*stale, *misrouted, *oldest)),
            _ => None,
        })
    };
    let mut driven = Driven::reading(&fence(2, 0));
    driven.step(records(0, &["a", "b", "c"]));
    assert_eq!(taken(&driven), Some((2, None, Some(UnixMillis(2)))));
    let fits = crate::event::partition_of(b"p", 12) == 0;
    driven.step(Input::Looked(Look { fence: fence(2, 0), furthest: Offset(2), log: log("id", 0, 9), partitions: 12 }));
    assert!(!fits, "the records of this test are in partition 0");
    driven.step(records(3, &["d", "e"]));
    let misrouted = Misrouted { events: 2, last: Offset(4), partitions: 12 };
    assert_eq!(taken(&driven), Some((0, Some(misrouted), Some(UnixMillis(3)))));
}

#[test]
fn a_flush_is_noted_whole_with_the_time_since_it_was_due() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["a", "a", "b", "c"]));
    driven.now = Duration::from_millis(30);
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    let flushed = driven.effects.iter().find_map(|effect| match effect {
        Effect::Note(Note::Flushed { trigger, events, rows, took, .. }) => Some((*trigger, *events, *rows, *took)),
        _ => None,
    });
    assert_eq!(flushed, Some((Trigger::Rows, 4, 3, Duration::from_millis(30))));
}

#[test]
fn a_partition_that_has_written_since_it_stood_still_says_so_anew() {
    let mut driven = Driven::reading(&fence(0, 0));
    for (written, again) in [(false, false), (false, true), (true, false)] {
        let from = if written { 3 } else { 0 };
        if written {
            driven.step(records(0, &["a", "b", "c"]));
            driven.step(Input::Committed(Lane::FIRST, Commit::Done));
        }
        driven.step(records(from, &["a", "b", "c"]));
        driven.step(cancelled(Refused::Full));
        assert_eq!(driven.halt().1, again);
        driven.waited();
        driven.load(&fence(0, 0));
    }
}
