//! Compares the lists with all changes.

use proptest::collection::vec;
use proptest::prelude::*;
use tally_core::changes::Entry;
use tally_core::ids::PostId;
use tally_core::time::UnixMillis;
use tally_trends::{Claim, Evidence, Fold, List, Place, Ranked, Reason, certify, merge};

use super::world::{BEGAN, RULES, entry, gained, likes, side, windows};

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// A row of a subject is added, removed, or moved to another region, `ahead` seconds after the moment.
    Change { subject: u8, before: Option<u8>, after: Option<u8>, ahead: u64 },
    /// Time passes.
    Pass(u64),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let region = || proptest::option::of(0..3u8);
    let change = (0..14u8, region(), region(), 1..5u64).prop_map(|(subject, before, after, ahead)| Operation::Change {
        subject,
        before,
        after,
        ahead,
    });
    vec(prop_oneof![8 => change, 2 => (1..90u64).prop_map(Operation::Pass)], 1..150)
}

fn places() -> [Place; 3] {
    [None, Some("r1"), Some("r2")].map(likes)
}

fn right(fold: &mut Fold, changes: &[Entry]) -> Result<(), TestCaseError> {
    for place in places() {
        for index in 0..windows().len() {
            let List { moment, from, items, complete } = fold.list(&place, index);
            let all = gained(changes, &place, from, moment, usize::MAX);
            prop_assert_eq!(&items[..], &all[..items.len()], "{:?}, window {}", place, index);
            prop_assert!(items.len() >= RULES.list.min(all.len()), "{} of {}", items.len(), all.len());
            prop_assert!(!complete || items.len() == all.len());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_list_is_what_rows_gained_in_its_window_also_of_a_fold_made_anew(
        operations in operations(),
        later in 1..900u64,
    ) {
        let (mut fold, mut changes) = (Fold::new(&windows(), RULES, BEGAN), Vec::<Entry>::new());
        for operation in operations {
            match operation {
                Operation::Change { subject, before, after, ahead } => {
                    let sides = [side(before), side(after)];
                    let change = entry(changes.len() as u64 + 1, subject, sides, fold.moment() + ahead);
                    fold.take(&change);
                    changes.push(change);
                }
                Operation::Pass(span) => {
                    fold.advance(fold.moment() + span);
                    fold.tell();
                    right(&mut fold, &changes)?;
                }
            }
        }
        prop_assert_eq!(fold.late(), None);
        let mut anew = Fold::new(&windows(), RULES, BEGAN);
        changes.iter().for_each(|change| anew.take(change));
        anew.advance(fold.moment() + later);
        right(&mut anew, &changes)?;
    }

    #[test]
    fn lists_of_partitions_make_that_of_all(operations in operations()) {
        let mut folds: Vec<Fold> = (0..3).map(|_| Fold::new(&windows(), RULES, BEGAN)).collect();
        let (mut changes, mut moment) = (Vec::new(), BEGAN);
        for operation in operations {
            match operation {
                Operation::Change { subject, before, after, ahead } => {
                    let sides = [side(before), side(after)];
                    let change = entry(changes.len() as u64 + 1, subject, sides, moment + ahead);
                    folds[usize::from(subject) % 3].take(&change);
                    changes.push(change);
                }
                Operation::Pass(span) => moment += span,
            }
        }
        folds.iter_mut().for_each(|fold| fold.advance(moment + 1));
        for place in places() {
            let lists: Vec<List> = folds.iter_mut().map(|fold| fold.list(&place, 1)).collect();
            let (merged, is_enough) = merge(&lists, RULES.list, |_| false).unwrap();
            prop_assert!(is_enough);
            prop_assert_eq!(merged.items, gained(&changes, &place, merged.from, merged.moment, RULES.list));
            let behind = List { moment: moment + 2, ..lists[0].clone() };
            prop_assert_eq!(merge(&[behind, lists[1].clone()], 1, |_| false), None);
        }
    }
}

#[test]
fn blocked_subjects_leave_a_list_that_is_as_long_as_is_certain() {
    let list = |items: &[(&str, i64)], complete| {
        let ranked = |(id, count): &(&str, i64)| Ranked::new(PostId::new(id).unwrap(), *count);
        List { moment: 5, from: 0, items: items.iter().map(ranked).collect(), complete }
    };
    let lists = [list(&[("a", 9), ("b", 5), ("c", 3)], false), list(&[("d", 8), ("e", 2), ("f", 1)], true)];
    let but = |blocked: &[&str], k| {
        let (list, is_enough) = merge(&lists, k, |id| blocked.contains(&id.as_str())).unwrap();
        (list.items.iter().map(|item| item.subject.to_string()).collect::<String>(), is_enough)
    };
    assert_eq!(but(&[], 3), ("adb".to_owned(), true));
    assert_eq!(but(&["d"], 3), ("abc".to_owned(), true));
    // After c, which has 3, the first partition may have another subject before e.
    assert_eq!(but(&["a"], 3), ("dbc".to_owned(), true));
    assert_eq!(but(&["a", "b"], 3), ("dc".to_owned(), false));
    let whole = [lists[1].clone()];
    let (list, is_enough) = merge(&whole, 3, |id| id.as_str() == "d").unwrap();
    assert_eq!((list.items.len(), list.complete, is_enough), (2, true, true), "there are no more");
    assert_eq!(merge(&lists[..1], 4, |_| false), None, "a list that is too short may lack some");
    assert_eq!(merge(&[], 1, |_| false), None);
}

#[test]
fn a_list_is_exact_if_nothing_in_its_window_is_in_doubt() {
    let sound = Evidence { from: 100, since: Some(UnixMillis(0)), loss: None, unreadable: None, late: None, shed: 0 };
    let unknown = |evidence: Evidence, reason| assert_eq!(certify(&evidence), Claim::Unknown(reason));
    assert_eq!(certify(&sound), Claim::Exact);
    assert_eq!(certify(&Evidence { shed: 3, ..sound }), Claim::Bound(3));
    // The clocks of the log and the table may differ by a minute.
    let at = |second: u64| Some(UnixMillis(second * 1000));
    unknown(Evidence { loss: at(41), shed: 3, ..sound }, Reason::Loss);
    assert_eq!(certify(&Evidence { loss: at(40), ..sound }), Claim::Exact, "it lies before the window");
    unknown(Evidence { unreadable: Some(101), ..sound }, Reason::Loss);
    assert_eq!(certify(&Evidence { unreadable: Some(100), ..sound }), Claim::Exact);
    unknown(Evidence { since: None, ..sound }, Reason::Young);
    unknown(Evidence { since: at(41), ..sound }, Reason::Young);
    assert_eq!(certify(&Evidence { since: at(40), ..sound }), Claim::Exact);
    assert_eq!(certify(&Evidence { from: 1, ..sound }), Claim::Exact, "from the first second on");
    unknown(Evidence { late: Some(101), ..sound }, Reason::Clock);
    assert_eq!(certify(&Evidence { late: Some(100), ..sound }), Claim::Exact, "it has left the window");
}
