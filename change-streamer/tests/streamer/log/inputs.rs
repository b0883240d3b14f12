//! Ladders and corrections in the log, messages that cannot be read, another topic, another stream.

use tally_core::changes::{Amend, Correction, LossNumber};
use tally_core::ids::MemberKey;
use tally_service::Condition;

use super::*;

/// A partition is never said to be further than its counters are, however late the stream is.
#[tokio::test(start_paused = true)]
async fn the_like_that_reaches_a_threshold_is_recorded_once_the_ladder_is_in_the_log_and_a_correction_has_no_winner() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    world.ladder.send_replace("2".parse().unwrap());
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.fresh().await;
    for user in 0..4 {
        world.like(0, user).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.exact(1).await;
    assert_eq!(world.milestones(0).await, [(2, Winner::Member(MemberKey::new("u-1").unwrap()))]);
    // 3 is reached already when it is announced.
    world.ladder.send_replace("2,3,6,10".parse().unwrap());
    world.fresh().await;
    for user in 4..8 {
        world.like(0, user).await;
    }
    world.exact(1).await;
    let part = RowKey::first(&post(0)).shard;
    let correction = Correction { counter: post(0), parts: [(part, Amend::Add(5))].into(), seen: 0, loss: None };
    world.tell(partition_of(&post(0)), Body::Correction(correction)).await;
    let began = Instant::now();
    while world.counters(1).await[&post(0)].likes != 13 {
        assert!(began.elapsed() < DEADLINE, "{:?}", world.counters(1).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let reached = world.milestones(0).await;
    let sixth = Winner::Member(MemberKey::new("u-5").unwrap());
    assert_eq!(reached[1..], [(6, sixth), (10, Winner::Unwitnessed)], "{reached:?}");
    assert_eq!(reached.len(), 3);
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_read_stops_its_partition_by_name_and_no_other() {
    let mut world = World::start(Config { shards: 1, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.fresh().await;
    assert!(running.host().readiness().report().ready, "{:?}", running.host().readiness().report());
    let other = Message { read: world.clock.now(), body: Body::Repaired(LossNumber(1)) };
    for (partition, value) in [(0, &br#"{"v":7}"#[..]), (1, &other.write(&DeploymentId("other".into())))] {
        world.write(partition, value).await;
    }
    let began = Instant::now();
    let reasons = loop {
        let report = running.host().readiness().report();
        let reasons: Vec<_> = report.conditions.values().filter(|state| **state != Condition::Ready).cloned().collect();
        if reasons.len() == 2 {
            break format!("{reasons:?}");
        }
        assert!(began.elapsed() < DEADLINE, "{report:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    for named in ["version 7", "deployment", "other"] {
        assert!(reasons.contains(named), "{reasons}");
    }
    let now = world.clock.now();
    world.churn(50, 20, 9).await;
    let changes = Changes::new(&world.store.repeating(5));
    while changes.standing(2).await.unwrap().is_none_or(|stored| stored.standing.as_of < Some(now)) {
        assert!(began.elapsed() < DEADLINE, "partition 2 stands still");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    stop(vec![running]).await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_of_another_number_of_partitions_stops_the_process_by_name() {
    let world = World::start(Config { shards: 1, ..Config::default() }).await;
    world.broker.add_partitions(TOPIC, 1);
    let running = world.run("a", Some(Duration::from_secs(6)));
    let ended = format!("{:?}", running.ended().await);
    assert!(ended.contains("4 partitions"), "{ended}");
    running.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_switched_off_is_named_and_the_next_one_begins_behind_a_loss_and_without_the_old_ones_shards()
{
    let mut world = World::start(Config { shards: 2, ..Config::default() }).await;
    let running = world.run("a", Some(Duration::from_secs(6)));
    world.churn(50, 6, 20).await;
    world.exact(6).await;
    world.fresh().await;
    let stream = |specification| json!({"TableName": "likes", "StreamSpecification": specification});
    world.store.call("UpdateTable", stream(json!({"StreamEnabled": false}))).await;
    let readiness = running.host().readiness().clone();
    let began = Instant::now();
    loop {
        let report = format!("{:?}", readiness.report().conditions.get("stream_shards"));
        if report.contains("has no stream") {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "{report}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let view = json!({"StreamEnabled": true, "StreamViewType": "NEW_AND_OLD_IMAGES"});
    world.store.call("UpdateTable", stream(view)).await;
    world.fresh().await;
    world.churn(50, 6, 20).await;
    world.exact(6).await;
    readiness.until_ready().await;
    assert_eq!(world.losses().await, ["unfollowed"]);
    let changes = Changes::new(&world.store.repeating(5));
    let old = loop {
        let every = changes.every_shard().await.unwrap();
        let old: Vec<_> = every.into_iter().filter(|stored| stored.closed.is_some()).collect();
        if old.len() == 2 {
            break old;
        }
        assert!(began.elapsed() < DEADLINE, "the old stream's shards are never closed: {old:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    for stored in &old {
        let id = json!({"id": {"S": format!("changes/shard/{}", stored.shard)}});
        world.store.edit("checkpoints", id, "closed", number(1)).await;
    }
    while changes.every_shard().await.unwrap().len() > 2 {
        assert!(began.elapsed() < DEADLINE, "the old stream's shards are never forgotten");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    stop(vec![running]).await;
}
