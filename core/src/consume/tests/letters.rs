//! Records that become dead letters: nothing passes one whose letter is not acknowledged.

use super::*;

#[test]
fn nothing_passes_a_record_whose_dead_letter_is_not_acknowledged() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["a", "", "b"]));
    let [(letter, 0)] = &driven.letters()[..] else { panic!("{:?}", driven.effects) };
    let letter = Arc::clone(letter);
    assert_eq!((letter.offset, &letter.rejection), (Offset(1), &Rejection::EmptyValue));
    driven.now = AGE;
    driven.step(Input::Woke);
    assert!(driven.effects.is_empty(), "it is due, and waits: {:?}", driven.effects);
    assert!(!driven.machine.reads());
    for tries in 1..3 {
        driven.step(Input::LetterRefused(Arc::clone(&letter)));
        assert_eq!(driven.letters(), [(Arc::clone(&letter), tries)]);
    }
    driven.step(Input::LetterStored(letter));
    assert_eq!(steps(&driven.transaction()), (0, 3));
}

#[test]
fn an_acknowledged_dead_letter_is_not_sent_again_unless_the_fence_counts_anew() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["", ""]));
    let letters = driven.letters();
    driven.step(Input::LetterStored(Arc::clone(&letters[0].0)));
    driven.step(Input::Records(Err(busy())));
    driven.waited();
    driven.load(&fence(0, 0));
    driven.step(records(0, &["", ""]));
    let again = driven.letters();
    assert_eq!(again.iter().map(|(letter, _)| letter.offset).collect::<Vec<_>>(), [Offset(1)]);
    driven.step(Input::Records(Err(busy())));
    driven.waited();
    driven.load(&fence(0, 1));
    driven.step(records(0, &["", ""]));
    assert_eq!(driven.letters().len(), 2, "another topic may be there");
    for (letter, _) in letters.into_iter().chain(again) {
        driven.step(Input::LetterStored(letter));
        driven.now += AGE;
        driven.step(Input::Woke);
        assert!(driven.effects.is_empty(), "an acknowledgement from before the reset: {:?}", driven.effects);
    }
}

#[test]
fn a_row_that_the_table_refuses_is_found_and_put_aside_and_the_others_are_written() {
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &["a", "bad", "c"]));
    let (mut written, mut letters) = (Vec::new(), Vec::new());
    while !driven.machine.reads() {
        if let Some((letter, _)) = driven.letters().pop() {
            letters.push((letter.offset, letter.rejection.clone()));
            driven.step(Input::LetterStored(letter));
            continue;
        }
        let transaction = driven.transaction();
        let users = users_of(&transaction);
        if users.iter().any(|user| user == "bad") {
            driven.step(Input::Committed(Lane::FIRST, Commit::Invalid("not welcome".to_owned())));
        } else {
            written.push((steps(&transaction), users));
            driven.step(Input::Committed(Lane::FIRST, Commit::Done));
        }
    }
    assert_eq!(letters, [(Offset(1), Rejection::RefusedByStore("not welcome".to_owned()))]);
    let users = |users: &[&str]| users.iter().map(|user| (*user).to_owned()).collect::<Vec<_>>();
    assert_eq!(written, [((0, 1), users(&["a"])), ((1, 2), users(&[])), ((2, 3), users(&["c"]))]);
}
