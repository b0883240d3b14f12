//! Tests of the times that standings claim while the stream is never empty, or has nothing.

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
