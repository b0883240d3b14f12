//! How long to wait: bounded waits that grow to a cap.

use std::time::Duration;

use proptest::prelude::{Strategy, any, prop_assert, proptest};
use tally_core::backoff::Backoff;

use super::cases;

proptest! {
    #![proptest_config(cases(256))]

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
