//! Tests of the time up to which each partition claims that all changes are counted, while the stream is never empty,
//! has nothing, or is late.

use super::*;

#[tokio::test(start_paused = true)]
async fn what_may_be_said_of_a_busy_table_is_not_much_behind_although_no_read_finds_nothing() {
    let (mut world, running) = World::running(1).await;
    world.fresh().await;
    let changes = world.tables.changes();
    for nth in 0..3000 {
        world.tables.churn(1, 6, 400).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        if nth > 500 && nth % 100 == 0 {
            for (partition, stored) in changes.standings(PARTITIONS).await.unwrap() {
                let behind = world.clock.now().since(stored.standing.as_of.expect("all stream shards are known"));
                assert!(behind <= Duration::from_secs(6), "partition {partition} is {behind:?} behind");
            }
        }
    }
    world.exact(6).await;
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_deployment_is_at_most_four_seconds_behind() {
    let (world, running) = World::running(4).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let standings = world.tables.changes().standings(PARTITIONS).await.unwrap();
        assert_eq!(standings.len(), PARTITIONS as usize);
        for (partition, stored) in standings {
            let as_of = stored.standing.as_of.expect("all stream shards are known");
            let behind = world.clock.now().since(as_of);
            assert!(behind <= Duration::from_secs(4), "partition {partition} is {behind:?} behind");
        }
    }
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn on_an_idle_table_whose_stream_is_a_minute_late_no_standing_passes_a_like_that_is_not_counted() {
    let delay = Duration::from_secs(60);
    let mut world = World::start(Config { shards: 1, stream_delay: delay, ..Config::default() }).await;
    let running = world.run("a");
    let (changes, index) = (world.tables.changes(), partition_of(&post(0)));
    let (mut likes, mut moved) = (Vec::new(), None);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(600) {
        if world.tables.chance.token().is_multiple_of(20) {
            let user = u64::try_from(likes.len()).unwrap();
            world.like(0, user).await;
            likes.push(world.clock.now());
        }
        let stored = changes.stated(index).await.unwrap().unwrap_or_default().standing;
        let counted = world.tables.counters(1).await.get(&post(0)).map_or(0, |counter| counter.likes);
        if let Some(as_of) = stored.standing.as_of {
            let before = likes.iter().filter(|at| **at < as_of).count();
            assert!(i64::try_from(before).unwrap() <= counted, "{before} likes before {as_of}, and {counted} counted");
            moved = Some(as_of);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let behind = world.clock.now().since(moved.expect("something is known"));
    assert!(likes.len() > 50 && behind < delay * 3, "{} likes, {behind:?} behind", likes.len());
    world.exact(1).await;
    stop(vec![running]).await;
}
