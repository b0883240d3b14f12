//! What is served and how long to wait: values that survive the cache, an order that never goes back, bounded waits.

use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, proptest};
use tally_core::backoff::Backoff;
use tally_core::served::Served;
use tally_core::time::UnixMillis;

use super::cases;

fn served() -> impl Strategy<Value = Served> {
    (any::<i64>(), 0..4u64, any::<bool>(), any::<u64>()).prop_map(|(likes, version, exact, as_of)| Served {
        likes,
        version,
        exact,
        as_of: UnixMillis(as_of),
    })
}

/// What stays of `offered` where one value is kept.
fn kept(offered: &[Served]) -> Served {
    let keep = |held: Served, value: &Served| if value.replaces(&held) { *value } else { held };
    offered[1..].iter().fold(offered[0], keep)
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn a_served_count_survives_the_cache(served in served(), version in any::<u64>()) {
        let served = Served { version, ..served };
        prop_assert_eq!(served.to_string().parse(), Ok(served));
    }

    #[test]
    fn any_text_in_the_cache_is_a_count_or_an_error(text in "[0-9:\\-x]{0,24}") {
        if let Ok(served) = text.parse::<Served>() {
            prop_assert_eq!(served.to_string().parse(), Ok(served));
        }
    }

    #[test]
    fn of_any_two_values_at_most_one_replaces_the_other_and_a_newer_version_always_does(a in served(), b in served()) {
        prop_assert!(!a.replaces(&a));
        prop_assert!(!(a.replaces(&b) && b.replaces(&a)));
        prop_assert!(a.version <= b.version || a.replaces(&b));
        prop_assert!(a.version != b.version || !a.exact || b.exact || a.replaces(&b));
    }

    #[test]
    fn the_same_value_is_kept_in_whatever_order_values_are_offered(
        (offered, shuffled) in proptest::collection::vec(served(), 1..20)
            .prop_flat_map(|offered| (Just(offered.clone()), Just(offered).prop_shuffle())),
    ) {
        let known = |served: Served| (served.version, served.exact, served.as_of);
        let (kept, other) = (kept(&offered), kept(&shuffled));
        prop_assert_eq!(known(kept), known(other));
        prop_assert!(offered.contains(&kept) && !offered.iter().any(|value| value.replaces(&kept)));
    }

    #[test]
    fn a_wait_lies_between_nothing_and_a_ceiling_that_grows_to_the_cap(
        base in 1..10_000u64,
        cap in 1..100_000u64,
        attempt in any::<u32>(),
        jitter in any::<f64>().prop_filter("a number", |jitter| !jitter.is_nan()),
    ) {
        let backoff = Backoff { base: Duration::from_millis(base), cap: Duration::from_millis(cap) };
        let ceiling = backoff.ceiling(attempt);
        prop_assert!(backoff.wait(attempt, jitter) <= ceiling && ceiling <= backoff.cap);
        prop_assert!(backoff.ceiling(attempt.saturating_add(1)) >= ceiling);
    }
}
