//! Lists of what is trending, held against every change there was.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tally_core::ids::{CounterName, Ordinal, PostId, Region};
use tally_core::ledger::{Change, Seconds, Side};
use tally_core::time::UnixMillis;
use tally_trends::{
    BoardRules, Claim, Evidence, Fold, Latest, List, NotOne, Place, Ranked, Reason, Window, certify, merge, merge_but,
};

/// So small that boards are cut and refilled all the time.
const RULES: BoardRules = BoardRules { most: 7, keep: 4, least: 3, list: 3, min_count: 1 };

const BEGAN: u64 = 100_000;

fn windows() -> Vec<Window> {
    ["1m", "10m"].map(|window| window.parse().unwrap()).to_vec()
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// A row of a subject comes, goes, or moves from one region to another, so many seconds after the moment.
    Change { subject: u8, before: Option<u8>, after: Option<u8>, ahead: u64 },
    /// Time passes.
    Pass(u64),
    /// A message comes again.
    Again(usize),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let region = || proptest::option::of(0..3u8);
    let change = (0..14u8, region(), region(), 1..5u64).prop_map(|(subject, before, after, ahead)| Deed::Change {
        subject,
        before,
        after,
        ahead,
    });
    vec(
        prop_oneof![8 => change, 2 => (1..90u64).prop_map(Deed::Pass), 1 => any::<usize>().prop_map(Deed::Again)],
        1..150,
    )
}

fn side(region: Option<u8>) -> Side {
    let named = region.filter(|region| *region > 0).map(|region| Region::new(&format!("r{region}")).unwrap());
    Side { region: named, weight: i64::from(region.is_some()) }
}

fn change(nth: usize, subject: u8, before: Option<u8>, after: Option<u8>, second: u64) -> Change {
    Change {
        subject: PostId::new(&format!("p{subject}")).unwrap(),
        counter: CounterName::LIKES,
        before: side(before),
        after: side(after),
        second,
        sequence: (nth as u64 + 1).into(),
    }
}

fn places() -> impl Iterator<Item = Place> {
    let region = |n: u8| (n > 0).then(|| Region::new(&format!("r{n}")).unwrap());
    (0..3).map(move |n| Place { counter: CounterName::LIKES, region: region(n) })
}

/// The first `most` of what rows gained from behind `from` up to `moment`.
fn gained(changes: &[Change], place: &Place, from: u64, moment: u64, most: usize) -> Vec<Ranked> {
    let mut sums: BTreeMap<&PostId, i64> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.second > from && change.second <= moment) {
        let counts = |side: &Side| place.region.is_none() || side.region == place.region;
        let weight = |side: &Side| if counts(side) { side.weight } else { 0 };
        *sums.entry(&change.subject).or_default() += weight(&change.after) - weight(&change.before);
    }
    let worth = sums.into_iter().filter(|(_, sum)| *sum >= RULES.min_count);
    let mut ranked: Vec<Ranked> = worth.map(|(subject, sum)| Ranked::new(subject.clone(), sum)).collect();
    ranked.sort_unstable();
    ranked.truncate(most);
    ranked
}

fn right(fold: &mut Fold, changes: &[Change]) -> Result<(), TestCaseError> {
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
    fn every_list_is_what_rows_gained_in_its_window(deeds in deeds()) {
        let (mut fold, mut changes) = (Fold::new(&windows(), RULES, BEGAN), Vec::<Change>::new());
        for deed in deeds {
            match deed {
                Deed::Change { subject, before, after, ahead } => {
                    let change = change(changes.len(), subject, before, after, fold.moment() + ahead);
                    prop_assert!(fold.take(Ordinal(1), &change));
                    changes.push(change);
                }
                Deed::Again(nth) if !changes.is_empty() => {
                    prop_assert!(!fold.take(Ordinal(1), &changes[nth % changes.len()]));
                }
                Deed::Again(_) => {}
                Deed::Pass(span) => {
                    fold.advance(fold.moment() + span);
                    right(&mut fold, &changes)?;
                }
            }
        }
        prop_assert_eq!(fold.late(), None);
    }

    #[test]
    fn a_fold_made_anew_from_the_log_lists_the_same(deeds in deeds(), moment in 1..900u64) {
        let (mut fold, mut changes) = (Fold::new(&windows(), RULES, BEGAN), Vec::new());
        for deed in deeds {
            match deed {
                Deed::Change { subject, before, after, ahead } => {
                    let change = change(changes.len(), subject, before, after, fold.moment() + ahead);
                    fold.take(Ordinal(1), &change);
                    changes.push(change);
                }
                Deed::Pass(span) => fold.advance(fold.moment() + span),
                Deed::Again(_) => {}
            }
        }
        fold.advance(fold.moment() + moment);
        let mut anew = Fold::new(&windows(), RULES, BEGAN);
        for change in &changes {
            anew.take(Ordinal(1), change);
        }
        anew.advance(fold.moment());
        for place in places() {
            for index in 0..windows().len() {
                let (before, after) = (fold.list(&place, index), anew.list(&place, index));
                prop_assert_eq!(&before.items[..RULES.list.min(before.items.len())], &after.items[..]);
            }
        }
        right(&mut anew, &changes)?;
    }

    #[test]
    fn lists_of_partitions_make_that_of_all(deeds in deeds()) {
        let mut folds: Vec<Fold> = (0..3).map(|_| Fold::new(&windows(), RULES, BEGAN)).collect();
        let (mut changes, mut moment) = (Vec::new(), BEGAN);
        for deed in deeds {
            match deed {
                Deed::Change { subject, before, after, ahead } => {
                    let change = change(changes.len(), subject, before, after, moment + ahead);
                    folds[usize::from(subject) % 3].take(Ordinal(1), &change);
                    changes.push(change);
                }
                Deed::Pass(span) => moment += span,
                Deed::Again(_) => {}
            }
        }
        folds.iter_mut().for_each(|fold| fold.advance(moment + 1));
        for place in places() {
            let lists: Vec<List> = folds.iter_mut().map(|fold| fold.list(&place, 1)).collect();
            let merged = merge(&lists, RULES.list).unwrap();
            prop_assert_eq!(merged.items, gained(&changes, &place, merged.from, merged.moment, RULES.list));
            let behind = List { moment: moment + 2, ..lists[0].clone() };
            prop_assert_eq!(merge([&behind, &lists[1]], 1), Err(NotOne::Moments));
        }
    }
}

#[test]
fn what_is_blocked_leaves_no_more_than_is_sure() {
    let list = |items: &[(&str, i64)], complete| {
        let ranked = |(id, count): &(&str, i64)| Ranked::new(PostId::new(id).unwrap(), *count);
        List { moment: 5, from: 0, items: items.iter().map(ranked).collect(), complete }
    };
    let lists = [list(&[("a", 9), ("b", 5), ("c", 3)], false), list(&[("d", 8), ("e", 2), ("f", 1)], true)];
    let but = |blocked: &[&str], k| {
        let (list, is_enough) = merge_but(&lists, k, |id| blocked.contains(&id.as_str())).unwrap();
        (list.items.iter().map(|item| item.subject.to_string()).collect::<String>(), is_enough)
    };
    assert_eq!(but(&[], 3), ("adb".to_owned(), true));
    assert_eq!(but(&["d"], 3), ("abc".to_owned(), true));
    // Behind c, which has 3, the first partition may have another one before e.
    assert_eq!(but(&["a"], 3), ("dbc".to_owned(), true));
    assert_eq!(but(&["a", "b"], 3), ("dc".to_owned(), false));
    let whole = [lists[1].clone()];
    let (list, is_enough) = merge_but(&whole, 3, |id| id.as_str() == "d").unwrap();
    assert_eq!((list.items.len(), list.complete, is_enough), (2, true, true), "there are no more");
}

#[test]
fn what_comes_after_its_moment_is_counted_and_told() {
    let mut fold = Fold::new(&windows(), RULES, BEGAN);
    fold.advance(BEGAN + 100);
    let late = change(0, 1, None, Some(0), BEGAN + 100);
    assert!(fold.take(Ordinal(1), &late));
    assert_eq!(fold.late(), Some(BEGAN + 100));
    right(&mut fold, &[late]).unwrap();
}

#[test]
fn a_list_never_takes_the_place_of_a_later_one() {
    let list = |moment, count| {
        let items = vec![Ranked::new(PostId::new("p").unwrap(), count)];
        List { moment, from: 0, items, complete: true }
    };
    let mut latest = Latest::default();
    for (moment, taken) in [(5, true), (4, false), (5, false), (6, true)] {
        assert_eq!(latest.take(1, list(moment, 1)), taken, "{moment}");
    }
    assert!(latest.take(2, list(3, 1)), "each partition by itself");
    assert_eq!(latest.lists().map(|list| list.moment).collect::<Vec<_>>(), [6, 3]);
    assert_eq!(merge(latest.lists(), 1), Err(NotOne::Moments));
    let short = List { complete: false, ..list(6, 1) };
    assert_eq!(merge([&short], 2), Err(NotOne::Short));
    assert_eq!(merge([], 2), Err(NotOne::None));
}

#[test]
fn a_list_is_exact_where_nothing_of_its_window_is_in_doubt() {
    let sound = Evidence {
        from: 100,
        moment: 200,
        since: Some(UnixMillis(100_000)),
        lapses: &[],
        late: None,
        missing: false,
        shed: 0,
    };
    let unknown = |evidence: Evidence<'_>, reason| assert_eq!(certify(&evidence), Claim::Unknown(reason));
    assert_eq!(certify(&sound), Claim::Exact);
    assert_eq!(certify(&Evidence { shed: 3, ..sound }), Claim::Bound(3));
    for (first, last, overlaps) in [(90, 100, false), (90, 101, true), (200, 300, true), (201, 300, false)] {
        let lapses = [Seconds { first, last }];
        let claim = certify(&Evidence { lapses: &lapses, ..sound });
        assert_eq!(claim == Claim::Unknown(Reason::Loss), overlaps, "{first}..{last}");
    }
    unknown(Evidence { since: None, ..sound }, Reason::Young);
    unknown(Evidence { since: Some(UnixMillis(100_001)), ..sound }, Reason::Young);
    unknown(Evidence { missing: true, shed: 3, ..sound }, Reason::Missing);
    unknown(Evidence { late: Some(101), ..sound }, Reason::Clock);
    assert_eq!(certify(&Evidence { late: Some(100), ..sound }), Claim::Exact, "it has left the window");
}
