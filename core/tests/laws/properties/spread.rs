//! Properties of [`Spread`], by which producers choose Kafka partitions for the events of sums, such as views: the
//! number of partitions (the width) settles at any rate, and a greater width contains the partitions of a smaller one.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId};
use tally_core::spread::{Spread, SumPolicy};

use super::{cases, id};

fn counter() -> impl Strategy<Value = CounterId> {
    let name = select(vec!["views", "plays"]);
    (id(), name).prop_map(|(post, name)| {
        let name = CounterName::new(name, CounterKind::Sum).unwrap();
        CounterId { post: PostId::new(&post).unwrap(), name }
    })
}

fn spreading() -> impl Strategy<Value = SumPolicy> {
    select(vec![SumPolicy::RoundRobin, SumPolicy::Random, SumPolicy::LeastLag])
}

/// Sends `rate` events in one second, and returns their partitions and the width at its end.
fn second(spread: &mut Spread, counter: &CounterId, nth: u64, rate: u64, partitions: u32) -> (BTreeSet<u32>, u32) {
    let home = partition_of(counter.post.as_bytes(), partitions);
    let mut chosen = BTreeSet::new();
    for event in 0..rate {
        let now = Duration::from_secs(nth) + Duration::from_secs(1).mul_f64(event as f64 / rate as f64);
        let draw = (nth * rate + event).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        chosen.insert(spread.choose(counter, now, draw).unwrap_or(home));
    }
    (chosen, spread.width(counter))
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn at_any_rate_a_width_settles_within_seconds_and_no_partition_gets_too_much_or_too_little(
        counter in counter(),
        policy in spreading(),
        partitions in 1..24u32,
        before in select(vec![1, 3_000, 40_000, 90_000]),
        rate in 1..90_000u64,
    ) {
        let mut spread = Spread::new(policy);
        spread.seen(&vec![0; partitions as usize]);
        for nth in 0..7 {
            second(&mut spread, &counter, nth, before, partitions);
        }
        let widths: Vec<u32> = (7..18).map(|nth| second(&mut spread, &counter, nth, rate, partitions).1).collect();
        let width = u64::from(widths[6]);
        prop_assert!(widths[6..].iter().all(|later| u64::from(*later) == width), "{widths:?}");
        prop_assert!(rate <= 10_000 * width || width == u64::from(partitions));
        prop_assert!(rate >= 2_500 * width || width == 1);
    }

    #[test]
    fn the_partitions_of_a_width_contain_those_of_every_smaller_one_and_all_producers_choose_the_same(
        counter in counter(),
        policies in (spreading(), spreading()),
        partitions in 1..24u32,
        lags in proptest::collection::vec(any::<u16>(), 24),
    ) {
        let lags: Vec<u64> = lags[..partitions as usize].iter().map(|lag| u64::from(*lag)).collect();
        let (mut one, mut other) = (Spread::new(policies.0), Spread::new(policies.1));
        let level = vec![0; partitions as usize];
        let mut smaller = BTreeSet::from([partition_of(counter.post.as_bytes(), partitions)]);
        for (nth, rate) in [9_000u64, 18_000, 36_000, 72_000, 72_000, 72_000].into_iter().enumerate() {
            // The first second of a rate ends with the width that it requires.
            for (spread, lags) in [(&mut one, &level), (&mut other, &lags)] {
                spread.seen(lags);
                second(spread, &counter, 2 * nth as u64, rate, partitions);
                spread.seen(lags);
            }
            let (chosen, width) = second(&mut one, &counter, 2 * nth as u64 + 1, rate, partitions);
            let (others, also) = second(&mut other, &counter, 2 * nth as u64 + 1, rate, partitions);
            prop_assert_eq!((width, chosen.len()), (also, width as usize));
            prop_assert!(chosen.is_superset(&smaller) && others.is_subset(&chosen));
            smaller = chosen;
        }
    }
}
