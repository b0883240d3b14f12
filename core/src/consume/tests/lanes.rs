//! A partition with several lanes.

use super::*;
use crate::definitions::{Definitions, Entry};
use crate::fence::Terms;

/// Of two lanes these are members of lane 0 and of lane 1.
const ZERO: [&str; 4] = ["u-2", "a", "42", "таня"];
const ONE: [&str; 4] = ["u-1", "0", "é", "say \"hi\""];

const LANE_1: u8 = 1;

fn lane(index: u8) -> Lane {
    Lane::new(index).unwrap()
}

fn count(lanes: u64) -> LaneCount {
    LaneCount::new(lanes).unwrap()
}

/// The fences of two lanes.
fn two(zero: u64, one: u64, cfg: u64) -> Fences {
    let level = Fences::from(fence(0, cfg)).level(Offset(0), Terms { lanes: count(2), ..Terms::default() });
    let at = [zero, one];
    level.reset(&TopicId("id".into()), level.terms(), |fence| Offset(at[fence.lane.index()]))
}

/// A machine of two lanes that reads.
fn reading(zero: u64, one: u64) -> Driven {
    let mut driven = Driven::assigned_with(LanePolicy::Pinned(count(2)));
    driven.load_all(&two(zero, one, 1));
    driven
}

impl Driven {
    /// Every transaction that the last step asked for: lane, offsets and users.
    fn transactions(&self) -> Vec<(usize, (u64, u64), Vec<String>)> {
        let commit = |effect: &Effect| match effect {
            Effect::Commit(transaction) => {
                Some((transaction.lane().index(), steps(transaction), users_of(transaction)))
            }
            _ => None,
        };
        self.effects.iter().filter_map(commit).collect()
    }

    fn done(&mut self, index: u8) {
        self.step(Input::Committed(lane(index), Commit::Done));
    }

    #[track_caller]
    fn replaced(&self) -> (Fences, Fences) {
        let Effect::ReplaceFences { seen, by, .. } = self.asked() else { panic!("{:?}", self.effects) };
        (seen.clone(), by.clone())
    }

    fn told(&self) -> Option<(u64, u64)> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Note(Note::Advanced { fence, furthest, .. }) => Some((fence.offset.0, furthest.0)),
            _ => None,
        })
    }
}

fn users(users: &[&str]) -> Vec<String> {
    users.iter().map(|user| (*user).to_owned()).collect()
}

#[test]
fn lanes_write_side_by_side_and_each_goes_as_far_as_its_own_first_record_that_waits() {
    let mut driven = reading(0, 0);
    driven.step(records(0, &[ZERO[0], ONE[0], ZERO[1], ZERO[2], ZERO[3], ONE[1]]));
    assert_eq!(driven.transactions(), [(0, (0, 4), users(&ZERO[..3]))], "its fourth waits");
    assert!(driven.machine.reads(), "the other lane has room");
    driven.step(records(6, &[ONE[2], ONE[3]]));
    assert_eq!(driven.transactions(), [(1, (0, 7), users(&ONE[..3]))]);
    driven.done(LANE_1);
    assert_eq!(driven.told(), Some((0, 7)), "the partition is as far as its least lane");
    driven.done(0);
    assert_eq!(driven.told(), Some((4, 7)));
    driven.now = AGE;
    driven.step(Input::Woke);
    let rest = [(0, (4, 8), users(&ZERO[3..])), (1, (7, 8), users(&ONE[3..]))];
    assert_eq!(driven.transactions(), rest, "where nothing waits, behind the last record that was handed out");
}

#[test]
fn reading_starts_at_the_least_lane_and_the_others_ignore_what_lies_before_their_own_fence() {
    let mut driven = reading(2, 5);
    driven.step(records(2, &[ONE[0], ZERO[0], ONE[1], ONE[2], ZERO[1]]));
    driven.now = AGE;
    driven.step(Input::Woke);
    assert_eq!(driven.transactions(), [(0, (2, 7), users(&ZERO[..2])), (1, (5, 7), users(&ONE[2..3]))]);
}

#[test]
fn a_lane_with_nothing_to_write_follows_when_it_is_far_or_long_behind() {
    let mut driven = reading(0, 0);
    driven.step(records(0, &[ZERO[0]]));
    driven.now = AGE;
    driven.step(Input::Woke);
    assert_eq!(driven.transactions(), [(0, (0, 1), users(&ZERO[..1]))]);
    driven.done(0);
    let due = Duration::from_secs(10);
    assert_eq!(driven.machine.wake_at(), Some(due), "since it was handed out");
    driven.now = due;
    driven.step(Input::Woke);
    assert_eq!(driven.transactions(), [(1, (0, 1), vec![])]);
    driven.done(LANE_1);
    let many: Vec<&str> = std::iter::repeat_n(ZERO[0], 5_001).collect();
    driven.step(records(1, &many));
    assert_eq!(driven.transactions(), [(1, (1, 5_002), vec![])]);
}

#[test]
fn reading_pauses_while_a_lane_is_too_far_ahead_of_another() {
    let mut driven = reading(0, 0);
    driven.step(records(0, &ONE[..3]));
    assert_eq!(driven.transactions().len(), 1);
    let many: Vec<&str> = std::iter::repeat_n(ZERO[0], 19_997).collect();
    driven.step(records(3, &many));
    assert!(!driven.machine.reads());
    driven.done(LANE_1);
    assert!(!driven.machine.reads(), "the other lane is at the start");
    driven.now = AGE;
    driven.step(Input::Woke);
    driven.done(0);
    assert!(driven.machine.reads(), "{:?}", driven.effects);
}

#[test]
fn a_lane_that_follows_is_left_alone_for_a_while_however_much_was_handed_out_meanwhile() {
    let mut driven = reading(0, 0);
    driven.step(records(0, &[ZERO[0]]));
    for at in [AGE, Duration::from_secs(10)] {
        driven.now = at;
        driven.step(Input::Woke);
        assert_eq!(driven.transactions().len(), 1);
        let lane = if at == AGE { 0 } else { LANE_1 };
        if lane == LANE_1 {
            driven.step(records(1, &[ZERO[1]]));
        }
        driven.done(lane);
    }
    assert!(driven.transactions().is_empty(), "it follows in ten seconds again: {:?}", driven.transactions());
}

#[test]
fn a_lane_with_nothing_to_write_follows_at_once_where_reading_waits_for_it() {
    let mut driven = reading(0, 0);
    let mut large = value(ZERO[0]);
    large.resize(1 << 20, b' ');
    let mut records = Records::default();
    for offset in 0..17 {
        records.push(Offset(offset), UnixMillis(offset), None, Some(&large), []);
    }
    driven.step(Input::Records(Ok(Arc::new(records))));
    assert!(!driven.machine.reads());
    assert!(driven.transactions().contains(&(1, (0, 17), vec![])), "{:?}", driven.transactions());
}

#[test]
fn fences_are_read_again_once_the_transactions_of_other_lanes_are_answered() {
    let mut driven = reading(0, 0);
    driven.step(records(0, &[ZERO[0], ZERO[1], ZERO[2], ONE[0], ONE[1], ONE[2], ZERO[3]]));
    assert_eq!(driven.transactions().len(), 2);
    driven.step(Input::Committed(lane(1), Commit::Unknown("no answer".to_owned())));
    assert!(driven.effects.is_empty() && !driven.machine.reads(), "one is still under way: {:?}", driven.effects);
    driven.done(0);
    assert!(driven.transactions().is_empty(), "nothing new is begun");
    assert!(matches!(driven.asked(), Effect::ReadFence), "{:?}", driven.effects);
}

#[test]
fn a_record_that_is_no_event_holds_the_first_lane_alone() {
    let mut driven = reading(0, 0);
    driven.step(records(0, &[ONE[0], "", ZERO[0]]));
    let [(letter, 0)] = &driven.letters()[..] else { panic!("{:?}", driven.effects) };
    let letter = Arc::clone(letter);
    driven.now = AGE;
    driven.step(Input::Woke);
    assert_eq!(driven.transactions(), [(1, (0, 3), users(&ONE[..1]))]);
    driven.done(LANE_1);
    assert_eq!(driven.told(), Some((0, 3)));
    driven.step(Input::LetterStored(letter));
    assert_eq!(driven.transactions(), [(0, (0, 3), users(&ZERO[..1]))]);
}

#[test]
fn a_stop_writes_what_every_lane_has_gathered_and_the_others_follow() {
    let mut driven = reading(0, 0);
    driven.step(records(0, &[ZERO[0], ZERO[1]]));
    driven.step(Input::Leave(Leave::Stopping));
    assert_eq!(driven.transactions(), [(0, (0, 2), users(&ZERO[..2])), (1, (0, 2), vec![])]);
    driven.done(0);
    assert!(driven.machine.wake_at().is_none() && driven.transactions().is_empty());
    driven.done(LANE_1);
    assert_eq!(driven.left(), (Some(Offset(2)), false));
}

#[test]
fn a_partition_that_is_left_is_woken_by_answers_alone() {
    let mut driven = Driven::assigned_with(LanePolicy::Adaptive);
    driven.load_all(&two(0, 0, 1));
    driven.step(records(0, &[ZERO[0]]));
    driven.step(Input::Leave(Leave::Stopping));
    driven.done(LANE_1);
    driven.now = Duration::from_secs(61);
    assert_eq!(driven.machine.wake_at(), None, "lanes may be given up after a minute, but not now");
    driven.done(0);
    assert_eq!(driven.left(), (Some(Offset(1)), false));
}

#[test]
fn three_full_batches_in_a_row_double_the_lanes_at_one_offset() {
    let mut driven = Driven::assigned_with(LanePolicy::Adaptive);
    driven.load(&fence(0, 0));
    let many: Vec<String> = (0..12).map(|n| format!("user-{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    driven.step(records(0, &many));
    for end in [3, 6] {
        assert_eq!(steps(&driven.transaction()).1, end);
        driven.done(0);
    }
    driven.done(0);
    let (seen, by) = driven.replaced();
    assert_eq!((seen.least().offset.0, seen.lanes().get()), (9, 1));
    assert_eq!((by.least().offset.0, by.furthest().0, by.lanes().get()), (9, 9, 2));
    assert!(!driven.machine.reads(), "nothing is written until it is known what came of it");
    driven.step(Input::FenceStored(Err(busy())));
    assert!(matches!(driven.asked(), Effect::ReadFence), "an answer that is lost is read back");
    driven.load_all(&two(9, 9, 1));
}

#[test]
fn lanes_that_do_not_meet_in_time_go_on_as_they_are() {
    let mut driven = Driven::assigned_with(LanePolicy::Pinned(LaneCount::ONE));
    driven.load_all(&two(0, 1, 1));
    driven.step(records(0, &[ZERO[0], ONE[0], ZERO[1]]));
    assert!(driven.transactions().is_empty(), "what was not handed out yet may be any lane's");
    driven.now = AGE;
    driven.step(Input::Woke);
    assert_eq!(
        driven.transactions(),
        [(0, (0, 3), users(&ZERO[..2])), (1, (1, 3), users(&ONE[..1]))],
        "they meet at 3"
    );
    driven.done(0);
    assert!(driven.effects.iter().all(|effect| !matches!(effect, Effect::ReplaceFences { .. })));
    assert_eq!(driven.machine.wake_at(), Some(AGE + Duration::from_secs(2)));
    driven.now += Duration::from_secs(2);
    driven.step(Input::Woke);
    assert!(driven.machine.reads(), "{:?}", driven.effects);
}

#[test]
fn lanes_halve_after_a_quiet_minute_and_a_single_one_looks_at_its_fence() {
    let mut driven = Driven::assigned_with(LanePolicy::Adaptive);
    driven.load_all(&two(7, 7, 1));
    let minute = Duration::from_secs(60);
    assert_eq!(driven.machine.wake_at(), Some(minute));
    driven.now = minute;
    driven.step(Input::Woke);
    let (seen, by) = driven.replaced();
    assert_eq!((seen, by.lanes()), (two(7, 7, 1), LaneCount::ONE));
    driven.step(Input::FenceStored(Ok(())));
    driven.waited();
    driven.load(&fence(7, 2));
    driven.now += minute;
    driven.step(Input::Woke);
    assert!(matches!(driven.asked(), Effect::ReadFence), "{:?}", driven.effects);
}

#[test]
fn an_action_that_was_defined_meanwhile_stops_all_lanes_at_its_record_and_is_taken_at_one_offset() {
    let mut driven = reading(0, 0);
    let mut said = Records::default();
    let like = |user: &str| value(user);
    let view = br#"{"post_id":"p","action":"view"}"#.to_vec();
    for (offset, value) in [like(ZERO[0]), like(ONE[0]), view, like(ZERO[1])].iter().enumerate() {
        said.push(Offset(offset as u64), UnixMillis(0), None, Some(value), []);
    }
    driven.step(Input::Records(Ok(Arc::new(said))));
    assert!(matches!(driven.asked(), Effect::ReadDefinitions));
    let views = Entry { name: "views".into(), kind: "sum".into(), add: "view".into(), ..Entry::default() };
    driven.step(Input::Definitions(Ok(Definitions::new(&[views]).unwrap())));
    assert_eq!(driven.transactions(), [(0, (0, 2), users(&ZERO[..1])), (1, (0, 2), users(&ONE[..1]))]);
    driven.done(LANE_1);
    assert_eq!(driven.machine.wake_at(), None, "it is not given up: nothing can be read before");
    driven.done(0);
    let (seen, by) = driven.replaced();
    assert_eq!((seen.least().offset, by.least().offset), (Offset(2), Offset(2)));
    assert_eq!((by.terms().defs, by.lanes().get()), (2, 2));
}

#[test]
fn a_record_that_some_lane_has_passed_as_no_event_is_none() {
    let mut driven = reading(0, 2);
    let mut said = Records::default();
    said.push(Offset(0), UnixMillis(0), None, Some(br#"{"post_id":"p","action":"view"}"#), []);
    driven.step(Input::Records(Ok(Arc::new(said))));
    let letters = driven.letters();
    assert_eq!(letters[0].0.rejection.reason(), "bad_action", "it was settled before the other lane passed it");
}

#[test]
fn a_row_that_the_table_refuses_is_found_in_its_lane_while_another_goes_on() {
    let mut driven = reading(0, 0);
    driven.step(records(0, &[ONE[0], ONE[1], ZERO[0], ONE[2]]));
    assert_eq!(driven.transactions(), [(1, (0, 4), users(&ONE[..3]))]);
    driven.step(Input::Committed(lane(1), Commit::Invalid("not welcome".to_owned())));
    assert_eq!(driven.transactions(), [(1, (0, 1), users(&ONE[..1]))]);
    driven.now = AGE;
    driven.step(Input::Woke);
    assert_eq!(driven.transactions(), [(0, (0, 4), users(&ZERO[..1]))]);
    driven.step(Input::Committed(lane(1), Commit::Invalid("not welcome".to_owned())));
    let letters = driven.letters();
    assert_eq!(letters[0].0.offset, Offset(0));
    driven.step(Input::LetterStored(Arc::clone(&letters[0].0)));
    assert_eq!(driven.transactions(), [(1, (0, 1), vec![])]);
}
