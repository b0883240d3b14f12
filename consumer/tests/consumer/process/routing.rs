//! A test of events from a producer with another partitioner.

use tally_core::event::partition_of;

use super::stage::{PARTITIONS, Stage};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn misrouted_events_are_applied_counted_and_reported_once_with_their_producer() {
    let mut stage = Stage::set().await;
    let consumer = stage.consumer(&[]);
    let value = |user: u32| format!(r#"{{"post_id":"post-7","user_id":"u-{user}","action":"like","ts":5}}"#);
    let home = partition_of(b"post-7", PARTITIONS);
    let by_crc32 = 8;
    assert_ne!(home, by_crc32);
    stage.put(home, "post-7", value(0).as_bytes(), None).await;
    for user in 1..=3 {
        stage.put(by_crc32, "post-7", value(user).as_bytes(), Some("/mobile/backend")).await;
        stage.caught_up().await;
    }
    assert_eq!(stage.rows().await.len(), 4);
    let metrics = consumer.get("/metrics").await.unwrap().body;
    assert!(metrics.contains("tally_consumer_misrouted_records_total 3"), "{metrics}");
    consumer.says("events lie in another partition").await;
    let log = consumer.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("events lie in another partition")).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for said in ["murmur2_random", "/mobile/backend", "post-7", "likes/8"] {
        assert!(warnings[0].contains(said), "{said} in {}", warnings[0]);
    }
    consumer.stop().await.unwrap();
}
