//! Tests of a fold of the change-streamer in trouble: another fold is ahead of it, others open losses, the log loses
//! its end, or writes were stored although they had no answer.

use tally_core::cached::StandingAt;
use tally_core::changes::{LossNumber, Lost, Place, Standing};
use tally_core::fold::Position;
use tally_core::topic::Offset;

use super::*;

/// Longer than a fold waits before it stores its position.
const STORED: Duration = Duration::from_secs(40);

#[tokio::test(start_paused = true)]
async fn another_fold_that_goes_on_while_this_one_begins_is_no_loss() {
    let (mut world, running) = World::running(1).await;
    world.tables.churn(30, 6, 20).await;
    tokio::time::sleep(STORED).await;
    stop(vec![running]).await;
    let mut looks = world.broker.slow_looks(Duration::from_secs(10));
    let running = world.run("b");
    // Each of its folds has an answer of the log, and waits before it goes on.
    let all = looks.wait_for(|looks| *looks >= PARTITIONS);
    tokio::time::timeout(DEADLINE, all).await.expect("each fold looks").unwrap();
    for index in 0..PARTITIONS {
        world.tell(index, Body::Repaired(LossNumber(1)));
        let (_, end) = world.ends().await[index as usize];
        let stated = StandingAt { at: Place::new(1, Offset(end)), standing: Standing::default() };
        assert!(tally_testkit::stand(&world.tables.changes(), index, &stated).await);
    }
    world.count(30, 6, 20).await;
    world.fresh().await;
    assert_eq!(world.tables.losses().await, [""; 0]);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_fold_goes_on_where_another_one_has_found_that_the_log_lost_its_end() {
    let (mut world, running) = World::running(1).await;
    world.tables.churn(30, 6, 20).await;
    tokio::time::sleep(STORED).await;
    assert_eq!(world.fill(6).await, 6);
    let changes = world.tables.changes();
    for (index, end) in world.ends().await {
        let Position { at, mut filter, ladder, .. } = changes.position(index).await.unwrap().unwrap();
        let at = Place::new(at.generation() + 1, Offset(end));
        let number = filter.jump(at, world.clock.now());
        changes.open_loss(number, "jump", &format!("{index}")).await.unwrap();
        let standing = filter.standing();
        changes.store_position(index, &Position { at, filter, ladder, last: None }).await.unwrap();
        assert!(tally_testkit::stand(&changes, index, &StandingAt { at, standing }).await);
    }
    world.fresh().await;
    world.cache_is_fresh().await;
    assert_eq!(world.cached(6).await.len(), 0, "the first fold did not tell the cache what the other one wrote");
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_jump_whose_number_another_loss_has_is_heard_of_all_the_same() {
    let (mut world, running) = World::running(1).await;
    world.tables.churn(30, 6, 20).await;
    world.fresh().await;
    let last = LossNumber(world.clock.now().0 + 1_000_000_000);
    for partition in 0..PARTITIONS {
        world.tell(partition, Body::Lost(Lost { number: last, next: None }));
    }
    tokio::time::sleep(STORED).await;
    stop(vec![running]).await;
    // This loss is announced in no partition.
    let changes = world.tables.changes();
    changes.open_loss(LossNumber(last.0 + 1), "trimmed", "a stream shard").await.unwrap();
    for (index, end) in world.ends().await {
        // Another message follows, so that the position is not in the log after the trim.
        world.tell(index, Body::Repaired(LossNumber(1)));
        world.broker.trim(TOPIC, index, end + 1);
    }
    let running = world.run("b");
    world.fresh().await;
    assert!(world.tables.losses().await.contains(&"jump".to_owned()), "{:?}", world.tables.losses().await);
    stop(vec![running]).await;
}

/// Kafka loses the end of the log while no fold runs, and appends other messages there before the next fold begins. The
/// lost messages have changed counters, unless the log is idle.
#[tokio::test(start_paused = true)]
async fn a_log_that_lost_its_end_and_grew_on_is_a_loss_before_anything_is_written() {
    for is_idle in [false, true] {
        let (mut world, running) = World::running(1).await;
        world.count(100, 6, 20).await;
        if is_idle {
            world.fresh().await;
            for (index, end) in world.ends().await {
                let stated = world.tables.changes().stated(index).await.unwrap().unwrap();
                let kept = Place::new(1, Offset(end - 2));
                assert!(stated.standing.at > kept && stated.read.is_none_or(|read| read.at <= kept), "{stated:?}");
            }
        }
        running.kill().await;
        for (index, end) in world.ends().await {
            world.broker.lose_tail(TOPIC, index, end - 2);
            for _ in 0..5 {
                world.tell(index, Body::Repaired(LossNumber(1)));
            }
        }
        let running = world.run("after");
        if !is_idle {
            world.tables.churn(30, 6, 20).await;
        }
        world.fresh().await;
        let losses = world.tables.losses().await;
        assert!(losses.iter().filter(|kind| *kind == "jump").count() >= PARTITIONS as usize, "{losses:?}");
        stop(vec![running]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_told_of_a_change_that_was_stored_without_an_answer() {
    let (mut world, running) = World::running(1).await;
    world.like(0, 0).await;
    world.exact(1).await;
    world.cache_is_fresh().await;
    assert_eq!(world.fill(1).await, 1);
    world.tables.store.faults([Rule::new(Fault::DropReply).on("BatchExecuteStatement").nth(1)]);
    world.like(0, 1).await;
    world.exact(1).await;
    world.cache_is_fresh().await;
    assert_eq!(world.tables.store.emulator.stats().fired("drop_reply"), 1);
    assert_eq!(world.cached(1).await[&post(0)].likes, 2);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_counter_that_does_not_change_is_not_told_so_a_fill_under_way_stays() {
    let (mut world, running) = World::running(1).await;
    world.like(0, 0).await;
    world.exact(1).await;
    world.cache_is_fresh().await;
    let partition = partition_of(&post(0));
    let token = world.cache.begin_fill(partition, &post(0)).await.unwrap().unwrap();
    world.tables.put(0, 0, 0, Some("eu")).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.cache_is_fresh().await;
    assert!(world.cache.fill(partition, &post(0), &token, &Cached::default()).await.unwrap());
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn counters_are_never_ahead_of_what_is_stated_as_read() {
    let (mut world, running) = World::running(1).await;
    let changes = world.tables.changes();
    for _ in 0..100 {
        world.tables.churn(5, 6, 20).await;
        let counters = world.tables.counters(6).await;
        for (id, counter) in counters {
            let stated = changes.stated(partition_of(&id)).await.unwrap().unwrap();
            assert!(stated.read.is_some_and(|read| counter.version <= read.at), "{id}: {counter:?}, {stated:?}");
        }
        tokio::time::sleep(Duration::from_millis(37)).await;
    }
    stop(vec![running]).await;
}
