//! Property tests of a counter's update, which can be sent as a statement of a batch or as an expression of a
//! transaction. Both have the same effect: the counter becomes what the update says, or the update is refused and the
//! counter stays.

use proptest::collection::{btree_map, btree_set};
use proptest::option;
use proptest::prelude::*;
use tally_adapters::dynamodb::counters::{Crossed, Written};
use tally_core::changes::Place;
use tally_core::fold::Counter;
use tally_core::time::UnixMillis;

use super::{now, shard, start, update, write};

fn counters() -> impl Strategy<Value = Counter> {
    let shards = || prop_oneof![0..5u16, Just(255)].prop_map(shard);
    let parts = btree_map(shards(), prop_oneof![-2..3i64, any::<i64>()], 0..5);
    let doubt = btree_set(shards(), 0..3);
    let version = prop_oneof![3 => 0..3u64, 1 => Just(u64::MAX)];
    let gap = option::of((0..3u64).prop_map(Place::from_stored));
    (-2..3i64, parts, version, 0..3u64, gap, doubt, 0..2u64).prop_map(
        |(likes, parts, version, corrections, gap, doubt, updated_at)| Counter {
            likes,
            parts,
            version: Place::from_stored(version),
            corrections,
            gap,
            doubt,
            updated_at: UnixMillis(updated_at),
        },
    )
}

/// Returns whether an update from `before` to `after` succeeds on `stands`: all that it sets has the old value there,
/// and so have the version, the total and the number of corrections.
fn admits(stands: &Counter, before: &Counter, after: &Counter) -> bool {
    let same_parts = before.parts.keys().chain(after.parts.keys()).all(|shard| {
        before.parts.get(shard) == after.parts.get(shard) || stands.parts.get(shard) == before.parts.get(shard)
    });
    (stands.version, stands.likes, stands.corrections) == (before.version, before.likes, before.corrections)
        && (before.gap == after.gap || stands.gap == before.gap)
        && (before.doubt == after.doubt || stands.doubt == before.doubt)
        && same_parts
}

fn overlaid(stands: &Counter, before: &Counter, after: &Counter) -> Counter {
    let mut then = stands.clone();
    (then.version, then.likes, then.corrections) = (after.version, after.likes, after.corrections);
    if before.gap != after.gap {
        then.gap = after.gap;
    }
    if before.doubt != after.doubt {
        then.doubt.clone_from(&after.doubt);
    }
    if before.updated_at != after.updated_at {
        then.updated_at = after.updated_at;
    }
    for shard in before.parts.keys().chain(after.parts.keys()) {
        match (before.parts.get(shard), after.parts.get(shard)) {
            (before, after) if before == after => {}
            (_, Some(part)) => drop(then.parts.insert(*shard, *part)),
            (_, None) => drop(then.parts.remove(shard)),
        }
    }
    then
}

async fn check(stands: Counter, before: Counter, after: Counter) {
    let (_store, counters) = start().await;
    for post in ["statement", "transaction"] {
        assert_eq!(write(&counters, &update(post, None, &stands)).await, Written::Stored);
    }
    let written = write(&counters, &update("statement", Some(&before), &after)).await;
    let crossed = counters.cross(&update("transaction", Some(&before), &after), &[]).await.unwrap();
    let expected = if admits(&stands, &before, &after) {
        assert_eq!((written, crossed), (Written::Stored, Crossed::Stored));
        overlaid(&stands, &before, &after)
    } else {
        assert_eq!(written, Written::Refused(Some(stands.clone())));
        assert_eq!(crossed, Crossed::Refused(Some(stands.clone())));
        stands
    };
    for post in ["statement", "transaction"] {
        assert_eq!(now(&counters, post).await, Some(expected.clone()), "{post}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The stored counter may be another one, or differ in a single value, which the update may or may not set.
    #[test]
    fn an_update_succeeds_if_the_counter_has_the_expected_values_and_is_refused_otherwise(
        before in counters(),
        after in counters(),
        other in counters(),
        nth in 0..10usize,
    ) {
        let mut stands = before.clone();
        match nth {
            0 => stands.likes = other.likes,
            1 => stands.version = other.version,
            2 => stands.corrections = other.corrections,
            3 => stands.gap = other.gap,
            4 => stands.doubt = other.doubt,
            5 => stands.parts = other.parts,
            6 => stands = other,
            _ => {}
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(stands, before, after));
    }
}
