//! Properties of the times up to which the rows of a Kafka partition were complete (`safe_at`), as a consumer stores
//! some of them in its claim: a process that reads the claim for the first time finds the time of an earlier moment,
//! never one that is too new.

use std::time::Duration;

use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};
use tally_core::register::{Kept, SafeTimes, Topic};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, TopicId};

use super::cases;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Generates waits between two values: mostly a second or a little more, and now and then up to hours.
fn waits() -> impl Strategy<Value = Vec<u64>> {
    let wait = proptest::prop_oneof![20 => 1_000..1_500_u64, 3 => 1_000..60_000_u64, 1 => 1_000..10_000_000_u64];
    proptest::collection::vec(wait, 1..1_500)
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn what_a_claim_says_of_an_earlier_moment_is_never_too_new_and_older_by_twice_the_age_of_the_moment_at_most(
        waits in waits()
    ) {
        let topic = Topic::first(TopicId("likes".into()), vec![Offset(0)]);
        let (mut kept, mut now) = (Kept::first(&topic, Offset(0)), UnixMillis(1_750_000_000_000));
        let mut stored = Vec::new();
        for wait in waits {
            now = UnixMillis(now.0 + wait);
            // The events of the last second are still on their way.
            let safe_at = UnixMillis(now.0 - 1_000);
            kept = kept.come_to([Offset(0); 2], Some(safe_at), now, DAY);
            stored.push((now, safe_at));
        }
        let text = kept.earlier.to_string();
        prop_assert!(text.len() <= 500, "{text}");
        prop_assert_eq!(text.parse(), Ok(kept.earlier.clone()));
        let mut times = SafeTimes::default();
        times.take(&kept);
        prop_assert_eq!(times.by(UnixMillis(stored[0].0.0 - 1)), None);
        for (nth, (at, safe_at)) in stored.iter().enumerate() {
            // The last moment at which this was the newest.
            let moment = stored.get(nth + 1).map_or(now, |(next, _)| UnixMillis(next.0 - 1));
            for moment in [*at, moment] {
                let age = now.0 - moment.0;
                if age > 2 * 24 * 3_600_000 {
                    continue;
                }
                let Some(found) = times.by(moment) else {
                    return Err(proptest::test_runner::TestCaseError::fail(format!("nothing is known {age} ms ago")));
                };
                prop_assert!(found <= *safe_at, "{found} instead of {safe_at}, {age} ms ago");
                prop_assert!(safe_at.0 - found.0 <= 2 * age, "{found} instead of {safe_at}, {age} ms ago");
            }
        }
    }
}
