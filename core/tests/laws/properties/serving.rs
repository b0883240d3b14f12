//! What is served and how long to wait: values that survive the cache, an order that never goes back, bounded waits.

use std::time::Duration;

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
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
    fn newer_is_a_strict_order_by_version(a in served(), b in served(), c in served()) {
        prop_assert!(!a.is_newer_than(&a));
        prop_assert!(!(a.is_newer_than(&b) && b.is_newer_than(&a)));
        prop_assert!(!(a.is_newer_than(&b) && b.is_newer_than(&c)) || a.is_newer_than(&c));
        prop_assert_eq!(a.is_newer_than(&b), a.version > b.version);
    }

    #[test]
    fn a_cached_version_never_goes_back(offered in proptest::collection::vec(served(), 1..20)) {
        let mut cached = offered[0];
        for value in &offered {
            let before = cached.version;
            if value.is_newer_than(&cached) {
                cached = *value;
            }
            prop_assert!(cached.version >= before);
        }
        prop_assert_eq!(Some(cached.version), offered.iter().map(|value| value.version).max());
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
