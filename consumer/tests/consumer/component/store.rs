//! What the store answers, and what follows from each answer.

use std::sync::Arc;
use std::time::Duration;

use tally_core::event::Action::{Like, Unlike};
use tally_core::fence::{Commit, Refused};
use tally_core::ids::{CounterId, PostId, RowKey, ShardCount};
use tokio::sync::Notify;

use super::common::{Answer, World, eventually, stop};

fn cancelled(reason: Refused) -> Commit {
    Commit::Cancelled(vec![reason])
}

#[tokio::test(start_paused = true)]
async fn a_conflict_or_a_throttle_is_sent_again_as_it_was() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    let busy = Commit::Cancelled(vec![Refused::Conflict, Refused::Throttled]);
    world.table.answers([Answer::Say(cancelled(Refused::Conflict)), Answer::Say(busy)]);
    let consumer = world.consumer();
    world.reaches(0, 1).await;
    let asked = world.table.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked.iter().all(|request| *request == asked[0]), "{asked:?}");
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_settled_by_the_fence_whether_it_happened_or_not() {
    for happened in [true, false] {
        let mut world = World::new(1);
        world.say(0, "a", Like);
        let lost = Commit::Unknown("no answer".to_owned());
        world.table.answers([if happened { Answer::DoAndSay(lost) } else { Answer::Say(lost) }]);
        let consumer = world.consumer();
        world.reaches(0, 1).await;
        world.say(0, "b", Like);
        world.reaches(0, 2).await;
        let steps: Vec<_> = world.table.asked().iter().map(|asked| (asked.from, asked.to)).collect();
        let expected: &[(u64, u64)] = if happened { &[(0, 1), (1, 2)] } else { &[(0, 1), (0, 1), (1, 2)] };
        assert_eq!(steps, expected, "happened: {happened}");
        assert_eq!(world.rows().await, *world.expected());
        stop(consumer).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_ghost_that_lands_after_newer_writes_changes_nothing() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    let late = Arc::new(Notify::new());
    let lost = Commit::Unknown("no answer".to_owned());
    world.table.answers([Answer::SayAndDoLater(lost, Arc::clone(&late))]);
    let consumer = world.consumer();
    world.reaches(0, 1).await;
    world.say(0, "a", Unlike);
    world.reaches(0, 2).await;
    late.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.rows().await, *world.expected());
    assert_eq!(world.fence(0).await, Some(2));
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_condition_means_reading_the_fence_and_never_that_nothing_happened() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    world.table.answers([Answer::DoAndSay(cancelled(Refused::Condition))]);
    let consumer = world.consumer();
    world.reaches(0, 1).await;
    world.say(0, "a", Unlike);
    world.reaches(0, 2).await;
    let steps: Vec<_> = world.table.asked().iter().map(|asked| (asked.from, asked.to)).collect();
    assert_eq!(steps, [(0, 1), (1, 2)]);
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_row_the_store_does_not_take_is_found_and_put_aside_and_the_others_are_applied() {
    let mut world = World::new(1);
    for n in 0..40 {
        world.say(0, &format!("u{n}"), Like);
    }
    world.forget(0, "u23");
    world.table.script(|asked| {
        let bad = asked.users.iter().any(|user| user == "u23");
        if bad { Answer::Say(Commit::Invalid("u23 is not welcome".to_owned())) } else { Answer::Truth }
    });
    let consumer = world.consumer();
    world.reaches(0, 40).await;
    assert_eq!(world.letters().await, [(0, 23, "refused_by_store".to_owned())]);
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_store_refuses_for_good_stops_its_partition_until_it_is_mended_and_no_other() {
    let mut world = World::new(2);
    world.say(0, "a", Like);
    world.say(1, "b", Like);
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let still = Arc::clone(&broken);
    world.table.script(move |asked| {
        let refuses = asked.partition == 0 && still.load(std::sync::atomic::Ordering::SeqCst);
        if refuses { Answer::Say(Commit::Cancelled(vec![Refused::Nothing, Refused::Full])) } else { Answer::Truth }
    });
    let consumer = world.consumer();
    world.reaches(1, 1).await;
    let readiness = consumer.host().readiness().clone();
    eventually("the alarm shows", async || !readiness.report().ready).await;
    let said = format!("{:?}", readiness.report().conditions["partition-0"]);
    let key = RowKey::of(&CounterId::likes(PostId::new("p-0").unwrap()), "a", ShardCount::DEFAULT);
    assert!(said.contains(&format!("row key `{key}`: Full")), "{said}");
    world.say(1, "c", Like);
    world.reaches(1, 2).await;
    assert_eq!(world.fence(0).await, Some(0), "nothing moves past a refusal");
    broken.store(false, std::sync::atomic::Ordering::SeqCst);
    world.reaches(0, 1).await;
    eventually("ready again", async || readiness.report().ready).await;
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn eighty_in_a_hundred_transactions_throttled_for_half_a_minute_cost_time_and_nothing_else() {
    let mut world = World::new(4);
    for n in 0..4000 {
        world.say(n % 4, &format!("u{}", n / 4), if n % 7 == 0 { Unlike } else { Like });
    }
    let began = tokio::time::Instant::now();
    let mut calls = 0u32;
    world.table.script(move |_| {
        calls += 1;
        let throttled = began.elapsed() < Duration::from_secs(30) && !calls.is_multiple_of(5);
        if throttled { Answer::Say(cancelled(Refused::Throttled)) } else { Answer::Truth }
    });
    let consumer = world.consumer();
    for partition in 0..4 {
        world.reaches(partition, 1000).await;
    }
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_never_has_more_rows_than_a_transaction_takes() {
    let mut world = World::new(1);
    for n in 0..500 {
        world.say(0, &format!("u{n}"), Like);
    }
    let consumer = world.consumer();
    world.reaches(0, 500).await;
    let sizes: Vec<usize> = world.table.asked().iter().map(|asked| asked.users.len()).collect();
    assert!(sizes.iter().all(|size| *size <= 99) && sizes.contains(&99), "{sizes:?}");
    assert_eq!(world.rows().await, *world.expected());
    stop(consumer).await;
}
