//! Tests that a count's `as_of` is never later than the time up to which consumers have turned all events that Kafka
//! had acknowledged into rows.

use std::time::Duration;

use tally_core::event::partition_of;
use tally_core::ids::CounterId;
use tally_core::register::Generation;
use tally_core::topic::Offset;
use tokio::time::sleep;

use super::world::{Beginning, PARTITIONS, SECOND, World, after, counter, elsewhere, likes, partition, standing};
use crate::harness::{begin_topic, counter_id, keep, kept};

/// Starts a world without anything known of the topics. `p` has three likes; everything up to ten seconds is counted,
/// and the time is twelve seconds.
async fn world() -> (World, CounterId) {
    let (world, p) = (Box::pin(World::with(Beginning { all_rows: false, ..Beginning::default() })).await, likes("p"));
    world.write(&p, counter(3, 5)).await;
    begin_topic(&world.claims, "likes", PARTITIONS as usize).await;
    sleep(12 * SECOND).await;
    world.stood(&p, &standing(6, 10 * SECOND)).await;
    (world, p)
}

/// Returns how long after the beginning a counter's `as_of` is, once the API has read all that is stored.
async fn said(world: &World, id: &CounterId) -> Option<Duration> {
    sleep(2 * SECOND).await;
    let answer = world.count(id).await;
    let as_of = answer.served.as_of;
    assert_eq!(answer.served.exact, as_of.0 > 0, "{answer:?}");
    assert_eq!(answer.fresh, world.now().since(as_of) <= 10 * SECOND, "{answer:?}");
    assert_eq!(world.reader.detailed(id).await.unwrap().answer, answer);
    (as_of.0 > 0).then(|| as_of.since(after(Duration::ZERO)))
}

#[tokio::test(start_paused = true)]
async fn before_anything_is_stored_of_its_partition_a_count_has_no_as_of_and_is_not_exact() {
    let (world, p) = world().await;
    assert_eq!(said(&world, &p).await, None);
    let other = partition(&elsewhere(&p));
    world.keep("likes", other, 9 * SECOND, Some(8 * SECOND)).await;
    assert_eq!(said(&world, &p).await, None, "another partition's");
    world.keep("likes", partition(&p), 9 * SECOND, None).await;
    assert_eq!(said(&world, &p).await, None, "a replay");
    world.keep("likes", partition(&p), 10 * SECOND, Some(7 * SECOND)).await;
    assert_eq!(said(&world, &p).await, Some(7 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn of_what_is_stored_the_newest_counts_that_is_no_younger_than_the_standing() {
    let (world, p) = world().await;
    for second in 5..15 {
        world.keep("likes", partition(&p), second * SECOND, Some((second - 3) * SECOND)).await;
        sleep(SECOND * 11 / 10).await;
    }
    assert_eq!(said(&world, &p).await, Some(7 * SECOND), "the rows of a younger one need not be in the counts");
    world.stood(&p, &standing(7, 13 * SECOND)).await;
    assert_eq!(said(&world, &p).await, Some(10 * SECOND));
    world.stood(&p, &standing(8, 99 * SECOND)).await;
    assert_eq!(said(&world, &p).await, Some(11 * SECOND), "the consumer is dead");
}

#[tokio::test(start_paused = true)]
async fn a_number_from_the_cache_is_as_of_what_was_known_beside_the_standing_of_the_cache() {
    let beginning = Beginning { all_rows: false, cached: true, ..Beginning::default() };
    let (world, p) = (World::with(beginning).await, likes("p"));
    world.write(&p, counter(3, 5)).await;
    begin_topic(&world.claims, "likes", PARTITIONS as usize).await;
    for second in [4, 6] {
        world.keep("likes", partition(&p), second * SECOND, Some((second - 1) * SECOND)).await;
        sleep(4 * SECOND).await;
    }
    let mut hold = world.take_over(&p, &standing(6, 5 * SECOND)).await;
    world.count(&p).await;
    sleep(SECOND / 10).await;
    world.tell(&mut hold, &p, &counter(4, 8), Some(&standing(9, 5 * SECOND))).await;
    let answer = world.count(&p).await.served;
    assert_eq!((answer.likes, answer.exact, answer.as_of), (4, true, after(3 * SECOND)));
    world.tell(&mut hold, &p, &counter(4, 8), Some(&standing(10, 7 * SECOND))).await;
    assert_eq!(world.count(&p).await.served.as_of, after(5 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_counter_whose_definition_names_a_topic_goes_by_that_one() {
    let (world, _) = world().await;
    let posts = counter_id("rust", "posts");
    world.stood(&posts, &standing(6, 10 * SECOND)).await;
    for index in 0..PARTITIONS {
        world.keep("likes", index, 9 * SECOND, Some(8 * SECOND)).await;
    }
    assert_eq!(said(&world, &posts).await, None);
    begin_topic(&world.claims, "posts", 1).await;
    world.keep("posts", 0, 9 * SECOND, Some(4 * SECOND)).await;
    assert_eq!(said(&world, &posts).await, Some(4 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn what_was_stored_of_an_earlier_generation_of_the_topic_says_nothing() {
    let (world, p) = world().await;
    for index in 0..PARTITIONS {
        world.keep("likes", index, 9 * SECOND, Some(8 * SECOND)).await;
    }
    assert_eq!(said(&world, &p).await, Some(8 * SECOND));
    let seen = world.claims.topic("likes").await.unwrap().unwrap();
    let mut grown = seen.clone();
    grown.generations.push(Generation { number: 2, begins: vec![Offset(0); PARTITIONS as usize + 3] });
    assert_eq!(world.claims.replace_topic("likes", &seen, &grown).await, Ok(true));
    world.stood(&p, &standing(7, 11 * SECOND)).await;
    assert_eq!(said(&world, &p).await, None);
    let moved = partition_of(p.post.as_bytes(), PARTITIONS + 3);
    let of_the_new = |at: Duration| {
        let mut kept = kept(0, after(at), Some(after(at)));
        kept.generation = 2;
        kept
    };
    keep(&world.claims, "likes", moved, &of_the_new(10 * SECOND)).await;
    assert_eq!(said(&world, &p).await, Some(10 * SECOND));
}

/// Nothing was read before: the claim is read for the first time when it is half a minute further than the counts.
#[tokio::test(start_paused = true)]
async fn a_process_that_starts_while_counts_are_late_knows_up_to_when_they_are_complete() {
    let (world, p) = world().await;
    let mut stored = kept(0, after(SECOND), Some(after(SECOND / 2)));
    for second in 2..40 {
        let (safe_at, now) = (Some(after((second - 1) * SECOND)), after(second * SECOND));
        stored = stored.come_to([Offset(0); 2], safe_at, now, Duration::from_hours(24));
    }
    keep(&world.claims, "likes", partition(&p), &stored).await;
    let as_of = said(&world, &p).await.expect("an earlier time is stored");
    assert!((5 * SECOND..=9 * SECOND).contains(&as_of), "the counts are of ten seconds: {as_of:?}");
}

#[tokio::test(start_paused = true)]
async fn claims_that_cannot_be_read_leave_what_was_known() {
    let (world, p) = world().await;
    world.keep("likes", partition(&p), 9 * SECOND, Some(8 * SECOND)).await;
    assert_eq!(said(&world, &p).await, Some(8 * SECOND));
    world.store.faults([tally_emulator::Rule::new(tally_emulator::Fault::Outage).table("checkpoints")]);
    assert_eq!(said(&world, &p).await, Some(8 * SECOND));
}
