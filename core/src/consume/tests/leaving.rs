//! What a partition does when it is stopped, revoked or lost.

use super::*;

#[test]
fn a_stop_writes_what_was_gathered_and_leaves() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["a"]));
    driven.step(Input::Leave(Leave::Stopping));
    assert_eq!(steps(&driven.transaction()), (0, 1));
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    assert_eq!(driven.left(), (Some(Offset(1)), false));
    assert!(driven.effects.iter().any(|effect| matches!(effect, Effect::TellKafka(Offset(1)))));
    driven.step(Input::Woke);
    assert!(driven.effects.is_empty());
}

#[test]
fn a_stop_where_nothing_is_gathered_or_read_leaves_at_once() {
    let mut driven = Driven::reading(&fence(4, 0));
    driven.step(Input::Leave(Leave::Stopping));
    assert_eq!(driven.left(), (Some(Offset(4)), false));
    let mut driven = Driven::assigned();
    driven.step(Input::Leave(Leave::Revoked));
    assert_eq!(driven.left(), (None, false));
}

#[test]
fn a_revoked_partition_is_drained_for_five_seconds_and_then_dropped() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["a", "b", "c", "d"]));
    driven.now = Duration::from_secs(7);
    driven.step(Input::Leave(Leave::Revoked));
    assert!(driven.effects.is_empty(), "what is under way is finished");
    assert_eq!(driven.machine.wake_at(), Some(Duration::from_secs(12)));
    driven.now = Duration::from_secs(11);
    driven.step(Input::Woke);
    assert!(driven.effects.is_empty());
    driven.now = Duration::from_secs(12);
    driven.step(Input::Woke);
    assert_eq!(driven.left(), (Some(Offset(0)), true));
    assert_eq!(driven.machine.wake_at(), None);
}

#[test]
fn a_lost_partition_is_dropped_at_once() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["a", "b", "c"]));
    driven.step(Input::Leave(Leave::AtOnce));
    assert_eq!(driven.left(), (Some(Offset(0)), true));
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    assert!(driven.effects.is_empty());
}

#[test]
fn an_unclear_outcome_while_leaving_ends_instead_of_reading_the_fence() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["a", "b", "c"]));
    driven.step(Input::Leave(Leave::Stopping));
    driven.step(Input::Committed(Lane::FIRST, Commit::Unknown("no answer".to_owned())));
    assert_eq!(driven.left(), (Some(Offset(0)), true));
}
