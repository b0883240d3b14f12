//! The whole consumer over in-memory twins under paused time: every branch of the chain, one law each.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Answer, World, eventually, stop};
use tally_core::event::Action::{Like, Unlike};
use tally_core::fault::Fault;
use tally_core::fence::{Commit, Refused};
use tokio::sync::Notify;

fn cancelled(reason: Refused) -> Commit {
    Commit::Cancelled(vec![reason])
}

#[tokio::test(start_paused = true)]
async fn rows_equal_the_fold_and_dead_letters_the_poison() {
    let mut world = World::new(12);
    let mut poison = Vec::new();
    for n in 0..2400u32 {
        let partition = n % 12;
        if n % 100 == 7 {
            poison.push((partition, world.put(partition, b"k", Some(b"{")).0, "not_json".to_owned()));
        } else {
            let user = format!("u#{}-\u{1f44d}", n % 701);
            world.say(partition, &user, if n % 10 < 3 { Unlike } else { Like });
        }
    }
    let consumer = world.consumer();
    for partition in 0..12 {
        world.reaches(partition, 200).await;
    }
    assert_eq!(world.rows().await, *world.expected());
    let mut letters = world.letters().await;
    letters.sort();
    poison.sort();
    assert_eq!(letters, poison);
    assert!(consumer.host().readiness().report().ready);
    stop(consumer).await;
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
        if refuses { Answer::Say(cancelled(Refused::Full)) } else { Answer::Truth }
    });
    let consumer = world.consumer();
    world.reaches(1, 1).await;
    let readiness = consumer.host().readiness().clone();
    eventually("the alarm shows", async || !readiness.report().ready).await;
    let said = format!("{:?}", readiness.report().conditions["partition-0"]);
    assert!(said.contains("Full"), "{said}");
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
async fn a_log_that_does_not_fit_its_fence_stops_that_partition_with_an_alarm_and_no_other() {
    type Damage = fn(&World);
    let damages: [(&str, Damage); 2] = [
        ("deleted unread", |world| {
            world.broker.trim(common::TOPIC, 0, 2);
        }),
        ("lost its tail", |world| world.broker.lose_tail(common::TOPIC, 0, 0)),
    ];
    for (said, damage) in damages {
        let mut world = World::new(2);
        world.say(0, "a", Like);
        world.say(1, "b", Like);
        let first = world.consumer();
        world.reaches(0, 1).await;
        world.reaches(1, 1).await;
        stop(first).await;
        world.say(0, "lost", Like);
        world.forget(0, "lost");
        world.say(1, "c", Like);
        damage(&world);
        let second = world.consumer();
        world.reaches(1, 2).await;
        let readiness = second.host().readiness().clone();
        eventually("the alarm shows", async || readiness.report().conditions.contains_key("partition-0")).await;
        let condition = format!("{:?}", readiness.report().conditions["partition-0"]);
        assert!(condition.contains(said), "{condition}");
        assert_eq!(world.fence(0).await, Some(1));
        assert_eq!(world.rows().await, *world.expected());
        stop(second).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_topic_created_again_is_never_read_by_the_old_fence() {
    let mut world = World::new(1);
    for user in ["a", "b"] {
        world.say(0, user, Like);
    }
    let first = world.consumer();
    world.reaches(0, 2).await;
    stop(first).await;
    world.broker.create_topic(common::TOPIC, 1);
    for user in ["c", "d", "e"] {
        world.say(0, user, Like);
        world.forget(0, user);
    }
    let second = world.consumer();
    let readiness = second.host().readiness().clone();
    eventually("the alarm shows", async || readiness.report().conditions.contains_key("partition-0")).await;
    let condition = format!("{:?}", readiness.report().conditions["partition-0"]);
    assert!(condition.contains("re-created"), "{condition}");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.fence(0).await, Some(2));
    assert_eq!(world.rows().await, *world.expected());
    stop(second).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_passes_a_record_whose_dead_letter_is_refused() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    world.put(0, b"k", None);
    world.say(0, "b", Like);
    world.broker.refuse_writes(common::DLQ, Some(Fault::Fatal("not authorised".to_owned())));
    let consumer = world.consumer();
    let readiness = consumer.host().readiness().clone();
    eventually("it shows", async || readiness.report().conditions.contains_key("dead-letters-0")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((world.fence(0).await, world.letters().await.len()), (Some(0), 0));
    assert!(consumer.host().readiness().report().conditions.len() > 1, "no crash");
    world.broker.refuse_writes(common::DLQ, None);
    world.reaches(0, 3).await;
    assert_eq!(world.letters().await, [(0, 1, "empty_value".to_owned())]);
    assert_eq!(world.rows().await, *world.expected());
    eventually("ready again", async || readiness.report().ready).await;
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_revoked_partition_is_drained_before_it_is_given_back() {
    let mut world = World::new(2);
    world.say(1, "a", Like);
    let held = Arc::new(Notify::new());
    let hold = Arc::clone(&held);
    let mut first = true;
    world.table.script(move |asked| {
        let holds = asked.partition == 1 && std::mem::take(&mut first);
        if holds { Answer::Hold(Arc::clone(&hold)) } else { Answer::Truth }
    });
    let one = world.consumer();
    eventually("a transaction is under way", async || !world.table.asked().is_empty()).await;
    let two = world.consumer();
    world.say(1, "b", Like);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.table.asked().len(), 1, "the other has to wait for the drain");
    held.notify_one();
    world.reaches(1, 2).await;
    let steps: Vec<_> = world.table.asked().iter().map(|asked| (asked.from, asked.to)).collect();
    assert_eq!(steps, [(0, 1), (1, 2)], "no transaction was sent twice");
    assert_eq!(world.rows().await, *world.expected());
    stop(one).await;
    stop(two).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_too_long_is_dropped_and_its_late_write_is_harmless() {
    let mut world = World::new(2);
    world.say(1, "a", Like);
    let never = Arc::new(Notify::new());
    let hold = Arc::clone(&never);
    let mut first = true;
    world.table.script(move |asked| {
        let holds = asked.partition == 1 && std::mem::take(&mut first);
        let lost = Commit::Unknown("no answer".to_owned());
        if holds { Answer::SayAndDoLater(lost, Arc::clone(&hold)) } else { Answer::Truth }
    });
    let one = world.consumer();
    eventually("a transaction is under way", async || !world.table.asked().is_empty()).await;
    let two = world.consumer();
    world.reaches(1, 1).await;
    world.say(1, "a", Unlike);
    world.reaches(1, 2).await;
    never.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.rows().await, *world.expected());
    stop(one).await;
    stop(two).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_partition_is_dropped_at_once_and_its_zombie_is_refused_by_the_fence() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    let held = Arc::new(Notify::new());
    let hold = Arc::clone(&held);
    let mut first = true;
    world.table.script(move |_| {
        let lost = Commit::Unknown("nobody waits for it".to_owned());
        if std::mem::take(&mut first) { Answer::SayAndDoLater(lost, Arc::clone(&hold)) } else { Answer::Truth }
    });
    let consumer = world.consumer();
    eventually("a transaction is under way", async || !world.table.asked().is_empty()).await;
    world.broker.expire(common::GROUP);
    world.say(0, "a", Unlike);
    world.reaches(0, 2).await;
    held.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.rows().await, *world.expected());
    assert!(world.rows().await.is_empty());
    stop(consumer).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_writes_what_was_gathered_and_ends_clean() {
    let mut world = World::new(3);
    world.settings.limits.age = Duration::from_secs(60);
    for partition in 0..3 {
        world.say(partition, "a", Like);
    }
    let consumer = world.consumer();
    let readiness = consumer.host().readiness().clone();
    eventually("it has joined", async || readiness.report().ready).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.table.asked().len(), 0, "nothing is due yet");
    stop(consumer).await;
    assert_eq!(world.rows().await, *world.expected());
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_store_is_silent_ends_clean_inside_the_grace() {
    let mut world = World::new(1);
    world.say(0, "a", Like);
    let never = Arc::new(Notify::new());
    world.table.script(move |_| Answer::Hold(Arc::clone(&never)));
    let consumer = world.consumer();
    eventually("a transaction is under way", async || !world.table.asked().is_empty()).await;
    let began = tokio::time::Instant::now();
    stop(consumer).await;
    assert!(began.elapsed() < Duration::from_secs(25));
    assert_eq!(world.fence(0).await, Some(0));
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
async fn a_replay_of_the_whole_topic_changes_nothing() {
    let mut world = World::new(2);
    for n in 0..200 {
        world.say(n % 2, &format!("u{}", n % 17), if n % 3 == 0 { Unlike } else { Like });
    }
    let first = world.consumer();
    world.reaches(0, 100).await;
    world.reaches(1, 100).await;
    stop(first).await;
    let (rows, asked) = (world.rows().await, world.table.asked().len());
    world.broker.expire(common::GROUP);
    let second = world.consumer();
    let readiness = second.host().readiness().clone();
    eventually("it has joined", async || readiness.report().ready).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((world.rows().await, world.table.asked().len()), (rows, asked));
    stop(second).await;
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
