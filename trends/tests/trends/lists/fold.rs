//! Tests the fold that adds up changes to lists of what is trending: each list is compared with the sums of all
//! changes. With a limit of keys (a key is a subject, a post or hashtag, in one region) the fold forgets some, and
//! states a bound: how far a listed count may be off because of that. `TALLY_TEST_SCHEDULES` sets the number of random
//! schedules.

use proptest::collection::vec;
use proptest::prelude::*;
use tally_core::changes::{Entry, Side};
use tally_core::ids::Region;
use tally_trends::{Fold, List};

use super::world::{BEGAN, RULES, entry, gained, likes, sums, windows};

/// What happens next.
#[derive(Clone, Debug)]
enum Operation {
    /// A row of a subject is added, removed, changed, or moved to another region, `ahead` seconds after the moment.
    Change { subject: u8, sides: [Side; 2], ahead: u64 },
    /// So many seconds pass.
    Pass(u64),
    /// So many keys are kept from now on.
    Allow(usize),
}

fn side(region: Option<u8>, weight: i64) -> Side {
    Side { region: region.map(|region| Region::new(&format!("r{region}")).unwrap()), weight, v: None }
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let subject = prop_oneof![2 => 0..6u8, 3 => 0..60u8];
    let region = || proptest::option::of(1..3u8);
    let weight = prop_oneof![6 => Just(1i64), 4 => Just(-1), 1 => -9..10i64];
    let before = prop_oneof![3 => Just(None), 1 => region().prop_map(Some)];
    let change = (subject, before, region(), weight, 1..5u64);
    let change = change.prop_map(|(subject, before, region, weight, ahead)| {
        // A row that was there moves with its weight.
        let before = before.map_or_else(|| side(region, 0), |before| side(before, weight));
        Operation::Change { subject, sides: [before, side(region, weight)], ahead }
    });
    let operation = prop_oneof![
        30 => change,
        4 => (1..40u64).prop_map(Operation::Pass),
        1 => (40..400u64).prop_map(Operation::Pass),
        1 => (4..40usize).prop_map(Operation::Allow),
    ];
    vec(operation, 1..300)
}

struct World {
    fold: Fold,
    changes: Vec<Entry>,
}

impl World {
    fn new(most: usize) -> Self {
        Self { fold: Fold::new(&windows(), RULES, BEGAN).with_keys(most), changes: Vec::new() }
    }

    fn change(&mut self, subject: u8, sides: [Side; 2], ahead: u64) {
        let (nth, post) = (self.changes.len() as u64 + 1, format!("p{subject}"));
        let change = entry(nth, &post, sides, self.fold.moment() + ahead);
        self.fold.take(&change);
        self.changes.push(change);
    }

    fn gain(&mut self, subject: u8, gained: i64) {
        self.change(subject, [side(None, 0), side(None, gained)], 1);
    }

    /// Moves on, and checks every list of the moment.
    fn advance(&mut self, seconds: u64) -> Result<(), TestCaseError> {
        self.fold.advance(self.fold.moment() + seconds);
        self.fold.tell();
        self.right()
    }

    fn right(&mut self) -> Result<(), TestCaseError> {
        for place in [None, Some("r1"), Some("r2")].map(likes) {
            for index in 0..windows().len() {
                let (List { moment, from, items, complete }, bound) =
                    (self.fold.list(&place, index), self.fold.bound(index));
                if bound == 0 {
                    let all = gained(&self.changes, &place, from, moment, usize::MAX);
                    prop_assert_eq!(&items[..], &all[..items.len()], "{:?}, window {}", place, index);
                    prop_assert!(items.len() >= RULES.list.min(all.len()), "{} of {}", items.len(), all.len());
                    prop_assert!(!complete || items.len() == all.len());
                    continue;
                }
                // No listed count is off by more than the bound, and no unlisted subject beats the last one by more.
                let mut sums = sums(&self.changes, &place, from, moment);
                for item in &items {
                    let sum = sums.remove(&item.subject).unwrap_or_default();
                    prop_assert!(sum.abs_diff(item.count()) <= bound, "{item:?} is {sum}, bound {bound}");
                }
                let full = items.len() >= RULES.list;
                let last = items.last().filter(|_| full).map_or(RULES.min_count - 1, |last| last.count());
                let beats = sums.values().max().map_or(0, |sum| (*sum).max(last).abs_diff(last));
                prop_assert!(beats <= bound, "{place:?}: an unlisted one beats {last} by {beats}, bound {bound}");
            }
        }
        Ok(())
    }
}

fn schedules() -> u32 {
    std::env::var("TALLY_TEST_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: schedules(), ..ProptestConfig::default() })]

    #[test]
    fn every_list_is_what_rows_gained_in_its_window_and_off_by_no_more_than_the_bound_if_keys_are_limited(
        limit in proptest::option::of(4..60usize),
        operations in operations(),
        later in 1..900u64,
    ) {
        let mut most = limit.unwrap_or(usize::MAX);
        let mut world = World::new(most);
        for operation in operations {
            match operation {
                Operation::Change { subject, sides, ahead } => world.change(subject, sides, ahead),
                Operation::Pass(span) => world.advance(span)?,
                Operation::Allow(other) if limit.is_some() => {
                    most = other;
                    world.fold.allow(most);
                    world.right()?;
                }
                Operation::Allow(_) => {}
            }
            prop_assert!(world.fold.keys() <= most);
        }
        let mut anew = World { changes: world.changes.clone(), ..World::new(usize::MAX) };
        anew.changes.iter().for_each(|change| anew.fold.take(change));
        anew.advance(world.fold.moment() + later - BEGAN)?;
        prop_assert_eq!([anew.fold.bound(0), anew.fold.bound(1)], [0, 0]);
        world.fold.allow(usize::MAX);
        world.advance(5)?;
        world.change(1, [side(Some(1), 0), side(Some(1), 1)], 1);
        // The edge of a bucket is up to a bucket earlier.
        for _ in 0..62 {
            world.advance(10)?;
        }
        prop_assert_eq!((world.fold.late(), world.fold.bound(0), world.fold.bound(1)), (None, 0, 0));
    }
}

#[test]
fn keys_with_the_smallest_effect_are_forgotten_first_even_if_others_have_a_sum_of_0() {
    let mut world = World::new(8);
    for subject in 0..8 {
        // The first subject has gained much and lost it again: its sum is 0 until the gain leaves the window.
        world.gain(subject, if subject == 0 { 50 } else { 2 + i64::from(subject) });
    }
    world.advance(30).unwrap();
    world.gain(0, -50);
    world.advance(30).unwrap();
    assert_eq!((world.fold.keys(), world.fold.bound(0)), (8, 0));
    world.gain(8, 9);
    world.advance(5).unwrap();
    assert_eq!((world.fold.keys(), world.fold.shed_keys(), world.fold.bound(0)), (7, 2, 4));
    world.advance(65).unwrap();
    assert_eq!((world.fold.bound(0), world.fold.bound(1)), (0, 4));
}

#[test]
fn a_loss_that_came_before_a_gain_leaves_the_window_first() {
    let mut world = World::new(1);
    world.gain(0, -5);
    world.advance(30).unwrap();
    world.gain(0, 9);
    world.advance(20).unwrap();
    world.gain(1, 20);
    let mut bounds = Vec::new();
    for _ in 0..20 {
        world.advance(5).unwrap();
        assert_eq!(world.fold.keys(), 1);
        bounds.push(world.fold.bound(0));
    }
    assert!(bounds.iter().any(|bound| *bound > 0), "{bounds:?}");
}
