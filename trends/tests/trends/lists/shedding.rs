//! The trends' fold keeps a limited number of keys (a key is a subject in a Region) and states a bound: how far a
//! listed count may be off because of the keys that it has forgotten. These tests compare its lists with the sums of
//! all changes. `TALLY_TEST_SCHEDULES` sets the number of random schedules.

use proptest::collection::vec;
use proptest::prelude::*;
use tally_core::changes::{Entry, Side};
use tally_core::ids::Region;
use tally_trends::Fold;

use super::world::{BEGAN, RULES, entry, likes, sums, windows};

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Rows are added or removed.
    Gain { subject: u8, region: Option<u8>, gained: i64 },
    /// So many seconds pass.
    Pass(u64),
    /// So many keys are kept from now on.
    Allow(usize),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let subject = prop_oneof![2 => 0..6u8, 3 => 0..60u8];
    let gained = prop_oneof![6 => Just(1i64), 4 => Just(-1), 1 => -9..10i64];
    let gain = (subject, proptest::option::of(1..3u8), gained);
    let operation = prop_oneof![
        30 => gain.prop_map(|(subject, region, gained)| Operation::Gain { subject, region, gained }),
        4 => (1..40u64).prop_map(Operation::Pass),
        1 => (40..400u64).prop_map(Operation::Pass),
        1 => (4..40usize).prop_map(Operation::Allow),
    ];
    vec(operation, 1..300)
}

struct World {
    fold: Fold,
    changes: Vec<Entry>,
    /// The numbers of lists that were exact, and of those with a bound.
    exact: usize,
    bounded: usize,
}

impl World {
    fn new(most: usize) -> Self {
        let fold = Fold::new(&windows(), RULES, BEGAN).with_keys(most);
        Self { fold, changes: Vec::new(), exact: 0, bounded: 0 }
    }

    fn gain(&mut self, subject: u8, region: Option<u8>, gained: i64) {
        let region = region.map(|region| Region::new(&format!("r{region}")).unwrap());
        let side = |weight| Side { region: region.clone(), weight, v: None };
        let change = entry(self.changes.len() as u64 + 1, subject, [side(0), side(gained)], self.fold.moment() + 1);
        self.fold.take(&change);
        self.changes.push(change);
    }

    /// No listed count is off by more than the bound, and no unlisted subject beats the last one by more.
    fn right(&mut self) -> Result<(), TestCaseError> {
        for place in [None, Some("r1"), Some("r2")].map(likes) {
            for index in 0..windows().len() {
                let (list, bound) = (self.fold.list(&place, index), self.fold.bound(index));
                let mut sums = sums(&self.changes, &place, list.from, self.fold.moment());
                for item in &list.items {
                    let sum = sums.remove(&item.subject).unwrap_or_default();
                    prop_assert!(sum.abs_diff(item.count()) <= bound, "{item:?} is {sum}, bound {bound}");
                }
                let full = list.items.len() >= RULES.list;
                let last = list.items.last().filter(|_| full).map_or(RULES.min_count - 1, |last| last.count());
                let beats = sums.values().max().map_or(0, |sum| (*sum).max(last).abs_diff(last));
                prop_assert!(beats <= bound, "{place:?}: an unlisted one beats {last} by {beats}, bound {bound}");
                *(if bound == 0 { &mut self.exact } else { &mut self.bounded }) += 1;
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
    fn no_sum_is_off_by_more_than_the_bound_and_it_is_0_again_a_window_later(most in 4..60usize, operations in operations()) {
        let (mut world, mut most) = (World::new(most), most);
        for operation in operations {
            match operation {
                Operation::Gain { subject, region, gained } => world.gain(subject, region, gained),
                Operation::Pass(span) => {
                    world.fold.advance(world.fold.moment() + span);
                    world.right()?;
                }
                Operation::Allow(other) => {
                    most = other;
                    world.fold.allow(most);
                    world.right()?;
                }
            }
            prop_assert!(world.fold.keys() <= most);
        }
        world.fold.allow(usize::MAX);
        world.fold.advance(world.fold.moment() + 1);
        world.gain(1, Some(1), 1);
        // The edge of a bucket is up to a bucket earlier.
        for _ in 0..62 {
            world.fold.advance(world.fold.moment() + 10);
            world.right()?;
        }
        prop_assert_eq!([world.fold.bound(0), world.fold.bound(1)], [0, 0]);
    }
}

#[test]
fn keys_with_the_smallest_effect_are_forgotten_first_even_if_others_have_a_sum_of_0() {
    let mut world = World::new(8);
    for subject in 0..8 {
        // The first subject has gained much and lost it again: its sum is 0 until the gain leaves the window.
        world.gain(subject, None, if subject == 0 { 50 } else { 2 + i64::from(subject) });
    }
    world.fold.advance(BEGAN + 30);
    world.gain(0, None, -50);
    world.fold.advance(BEGAN + 60);
    world.right().unwrap();
    assert_eq!((world.fold.keys(), world.fold.bound(0)), (8, 0));
    world.gain(8, None, 9);
    world.fold.advance(BEGAN + 65);
    assert_eq!((world.fold.keys(), world.fold.shed_keys(), world.fold.bound(0)), (7, 2, 4));
    world.right().unwrap();
    world.fold.advance(BEGAN + 130);
    assert_eq!((world.fold.bound(0), world.fold.bound(1)), (0, 4));
    world.right().unwrap();
}

#[test]
fn a_loss_that_came_before_a_gain_leaves_the_window_first() {
    let mut world = World::new(1);
    world.gain(0, None, -5);
    world.fold.advance(BEGAN + 30);
    world.gain(0, None, 9);
    world.fold.advance(BEGAN + 50);
    world.gain(1, None, 20);
    for _ in 0..20 {
        world.fold.advance(world.fold.moment() + 5);
        assert_eq!(world.fold.keys(), 1);
        world.right().unwrap();
    }
    assert!(world.bounded > 0);
}
