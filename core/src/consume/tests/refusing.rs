//! A store that refuses record after record, against one that refuses some.

use super::*;

/// Answers every transaction by `refuses`, and stores every letter: how many until the partition reads or stands still.
fn driven_on(driven: &mut Driven, refuses: impl Fn(&[String]) -> bool) -> u32 {
    let mut letters = 0;
    loop {
        if let Some((letter, _)) = driven.letters().pop() {
            letters += 1;
            driven.step(Input::LetterStored(letter));
            continue;
        }
        match driven.effects.iter().find(|effect| matches!(effect, Effect::Commit(_) | Effect::Rest(_))) {
            Some(Effect::Commit(transaction)) => {
                let users = users_of(transaction);
                let refused = Commit::Invalid("wrong key".to_owned());
                driven.step(Input::Committed(Lane::FIRST, if refuses(&users) { refused } else { Commit::Done }));
            }
            _ => return letters,
        }
    }
}

#[test]
fn a_store_that_takes_no_record_stands_still_after_some_and_one_that_takes_any_goes_on() {
    let bad: Vec<String> = (0..40).map(|n| format!("bad{n}")).collect();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    let mut driven = Driven::reading(&fence(0, 0));
    driven.step(records(0, &bad));
    assert_eq!(driven_on(&mut driven, |users| !users.is_empty()), REFUSED);
    let Halt::Refused(text) = driven.halt().0 else { panic!() };
    assert!(text.contains("takes no record") && text.ends_with("wrong key"), "{text}");

    // Looked at again, nothing has changed, and no further record is put aside.
    driven.waited();
    driven.load(&fence(16, 0));
    driven.step(records(16, &bad[16..]));
    assert_eq!(driven_on(&mut driven, |users| !users.is_empty()), 0);
    assert!(driven.halt().1, "for the same reason");

    // The table is mended.
    driven.waited();
    driven.load(&fence(16, 0));
    driven.step(records(16, &bad[16..]));
    assert_eq!(driven_on(&mut driven, |_| false), 0);
    assert!(driven.machine.reads());

    // Every third is taken.
    let mut driven = Driven::reading(&fence(0, 0));
    let mixed: Vec<&str> = (0..90).map(|n| if n % 3 == 0 { "good" } else { bad[n % 40] }).collect();
    driven.step(records(0, &mixed));
    assert_eq!(driven_on(&mut driven, |users| users.iter().any(|user| user.starts_with("bad"))), 60);
    assert!(driven.machine.reads());
}
