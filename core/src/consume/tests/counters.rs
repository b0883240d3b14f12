//! Definitions that come while records are read, and cells.

use super::*;
use crate::definitions::{Definitions, Entry};
use crate::fence::{Reached, Terms};

fn views() -> Definitions {
    let views = Entry::sum("views", "view", None);
    Definitions::new(&[views]).unwrap()
}

fn stating(offset: u64, cfg: u64) -> Fence {
    Fence { terms: Terms { defs: 2, ..Terms::default() }, ..fence(offset, cfg) }
}

fn said(from: u64, values: &[&str]) -> Input {
    let mut records = Records::default();
    for (offset, value) in (from..).zip(values) {
        records.push(Offset(offset), UnixMillis(offset), None, Some(value.as_bytes()), []);
    }
    Input::Records(Ok(Arc::new(records)))
}

const VIEW: &str = r#"{"post_id":"p","action":"view","n":3}"#;
const LOVE: &str = r#"{"post_id":"p","action":"love"}"#;
const LIKE: &str = r#"{"post_id":"p","user_id":"a","action":"like"}"#;

/// A machine that reads at a fence that states views.
fn counting(at: &Fence) -> Driven {
    let mut driven = Driven::assigned();
    driven.load_defined(at);
    driven
}

impl Driven {
    fn load_defined(&mut self, fence: &Fence) {
        self.step(Input::Fence(Ok(Some(fence.clone().into()))));
        self.step(Input::Log(Ok(log("id", 0, 1000))));
        assert!(matches!(self.asked(), Effect::ReadDefinitions));
        self.step(Input::Definitions(Ok(views())));
        self.step(Input::Announced(Ok(0)));
        self.step(Input::Partitions(Ok(1)));
        self.step(Input::Started(Ok(())));
    }
}

fn cells(transaction: &Transaction) -> Vec<(i64, u64)> {
    let cell =
        |change: Change<'_>| if let Change::Cell { add, from, .. } = change { Some((add, from.0)) } else { None };
    transaction.changes().into_iter().filter_map(cell).collect()
}

#[test]
fn an_action_that_was_defined_meanwhile_is_taken_by_a_new_fence_once_what_lies_before_it_is_written() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(said(0, &[LIKE, VIEW]));
    assert!(matches!(driven.asked(), Effect::ReadDefinitions));
    assert!(!driven.machine.reads(), "nothing more is read until that is settled");
    assert_eq!(driven.machine.wake_at(), None, "nor does what is gathered wake the machine again and again");
    driven.step(Input::Definitions(Ok(views())));
    assert_eq!(driven.transaction().advance.to, Offset(1));
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    let Effect::ReplaceFences { seen, by, why: Replacing::Definitions } = driven.asked() else { panic!() };
    assert_eq!((seen, by), (&fence(1, 0).into(), &stating(1, 0).into()));
    driven.step(Input::FenceStored(Ok(())));
    assert!(matches!(driven.asked(), Effect::ReadFence), "what became of it is read");
    driven.load_defined(&stating(1, 1));
    driven.step(said(1, &[VIEW, VIEW]));
    driven.now += AGE;
    driven.step(Input::Woke);
    assert_eq!(cells(&driven.transaction()), [(6, 1)]);
}

#[test]
fn an_action_that_nothing_defines_is_rejected_after_one_look_for_all_that_were_polled() {
    let mut driven = counting(&stating(0, 1));
    driven.step(said(0, &[LOVE, LIKE, LOVE]));
    assert!(matches!(driven.asked(), Effect::ReadDefinitions));
    driven.step(Input::Definitions(Err(busy())));
    assert!(matches!(driven.asked(), Effect::BackOff { attempt: 0, .. }));
    driven.waited();
    assert!(matches!(driven.asked(), Effect::ReadDefinitions));
    driven.step(Input::Definitions(Ok(views())));
    let letters = driven.letters();
    let reasons: Vec<_> = letters.iter().map(|(letter, _)| (letter.offset.0, letter.rejection.reason())).collect();
    assert_eq!(reasons, [(0, "bad_action"), (2, "bad_action")]);
    driven.step(said(3, &[LOVE]));
    assert!(matches!(driven.asked(), Effect::ReadDefinitions), "it was polled after that look");
}

#[test]
fn an_action_that_the_list_has_is_taken_although_one_polled_with_it_is_in_no_list() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(said(0, &[LOVE, VIEW]));
    assert!(matches!(driven.asked(), Effect::ReadDefinitions));
    driven.step(Input::Definitions(Ok(views())));
    assert!(matches!(driven.asked(), Effect::ReadDefinitions), "views are defined, and not in force yet");
    let letters: Vec<_> = driven.letters().iter().map(|(letter, _)| letter.offset.0).collect();
    assert_eq!(letters, [0]);
}

#[test]
fn a_list_that_lacks_what_the_fence_states_makes_the_partition_stand_still() {
    let mut driven = Driven::assigned();
    driven.step(Input::Fence(Ok(Some(stating(0, 1).into()))));
    driven.step(Input::Log(Ok(log("id", 0, 9))));
    driven.step(Input::Definitions(Ok(Definitions::likes_alone())));
    assert!(driven.halt().0.to_string().contains("states 2 counters"));
}

#[test]
fn a_sum_that_comes_to_nothing_still_says_how_far_its_cell_is() {
    let entry = Entry {
        name: "v".into(),
        kind: "sum".into(),
        add: "up".into(),
        remove: Some("down".into()),
        ..Entry::default()
    };
    let both = Definitions::new(&[entry]).unwrap();
    let mut batch = crate::batch::Batch::new(BatchLimits { rows: 9, bytes: 999, age: AGE }, Offset(0));
    for (offset, action) in (0..).zip(["up", "down"]) {
        let value = format!(r#"{{"post_id":"p","action":"{action}","n":7}}"#);
        let event = crate::event::decode_value(Some(value.as_bytes()), UnixMillis(0), &both).unwrap();
        assert_eq!(batch.accept(Offset(offset), &event, 1, AGE), crate::batch::Taken::Taken);
    }
    let sealed = batch.seal().unwrap();
    assert!(matches!(sealed.changes()[..], [Change::Cell { add: 0, from: Offset(0), .. }]));
    assert!(sealed.changes_behind(&[], |_| Offset(2)).is_empty(), "nothing of it is left to add");
    let later = sealed.changes_behind(&[], |_| Offset(1));
    assert!(matches!(later[..], [Change::Cell { add: -7, from: Offset(1), .. }]));
}

#[test]
fn below_redo_each_cell_is_read_and_only_what_it_has_not_is_added() {
    let redo = Terms { defs: 2, redo: Some(Offset(3)), ..Terms::default() };
    let mut driven = counting(&Fence { terms: redo, ..fence(0, 1) });
    driven.step(said(0, &[VIEW, VIEW, VIEW, VIEW]));
    driven.now += AGE;
    driven.step(Input::Woke);
    let Effect::ReadCells { counters: asked, .. } = driven.asked() else { panic!() };
    assert_eq!(asked.iter().map(ToString::to_string).collect::<Vec<_>>(), ["p +views"]);
    driven.step(Input::Cells(Lane::FIRST, Err(busy())));
    driven.waited();
    driven.step(Input::Cells(Lane::FIRST, Ok(vec![Some(Reached { to: Offset(3), generation: 0 })])));
    assert_eq!(cells(&driven.transaction()), [(3, 3)]);
    driven.step(Input::Committed(Lane::FIRST, Commit::Done));
    driven.step(said(4, &[VIEW]));
    driven.now += AGE;
    driven.step(Input::Woke);
    assert_eq!(cells(&driven.transaction()), [(3, 4)], "past it nothing is read");
}

#[test]
fn a_cell_ahead_of_a_fence_that_still_stands_is_an_alarm_and_one_that_moved_is_none() {
    let refused = || Input::Committed(Lane::FIRST, Commit::Cancelled(vec![Refused::Nothing, Refused::Condition]));
    let ahead = || Input::Cells(Lane::FIRST, Ok(vec![Some(Reached { to: Offset(9), generation: 0 })]));
    for still_stands in [true, false] {
        let mut driven = counting(&stating(0, 1));
        driven.step(said(0, &[VIEW]));
        driven.now += AGE;
        driven.step(Input::Woke);
        driven.step(refused());
        assert!(matches!(driven.asked(), Effect::ReadCells { .. }));
        driven.step(ahead());
        driven.waited();
        assert!(matches!(driven.asked(), Effect::ReadFence));
        let stored = if still_stands { stating(0, 1) } else { stating(9, 1) };
        driven.step(Input::Fence(Ok(Some(stored.into()))));
        if still_stands {
            assert_eq!(driven.halt().0.name(), "cell_ahead");
        } else {
            assert!(matches!(driven.asked(), Effect::ReadLog));
        }
    }
}
