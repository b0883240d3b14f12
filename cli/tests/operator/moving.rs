//! `tally topic adopt --topic`: moves the counters whose definition names no topic to another topic, with consumers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tally_adapters::kafka;
use tally_consumer::{App, Ports, ReadSettings};
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, RowKey, ShardCount};
use tally_service::{Host, Running};
use tally_testkit::eventually;

use crate::stage::{PARTITIONS, Stage};

const ADOPT: [&str; 9] = ["topic", "adopt", "--topic", "moved", "--settle", "0s", "--yes", "--why", "a test"];

fn consumer_of(stage: &Stage, topic: &str) -> Running {
    let (of_group, of_readers, group_topic) = (stage.engines.kafka(), stage.engines.kafka(), topic.to_owned());
    let ports = Ports {
        producer: Arc::new(kafka::Producer::new(&of_group).unwrap()),
        join: Box::new(move || Ok(Box::new(kafka::Source::new(&of_group, "tally-consumer", &group_topic)?))),
        reader: Box::new(move |topic| Ok(Arc::new(kafka::TopicReader::new(&of_readers, "tally-dlq-replay", topic)?))),
    };
    let letters = Some("likes.dlq".to_owned());
    let settings = ReadSettings { topic: topic.to_owned(), dead_letter_topic: letters, ..ReadSettings::default() };
    Running::start(App::with_ports(settings, ports, stage.connection.clone()), Host::new("consumer"))
}

async fn says(consumer: &Running, what: &str) {
    let readiness = consumer.host().readiness().clone();
    eventually(what, async || format!("{:?}", readiness.report()).contains(what)).await;
}

async fn stop(consumer: Running) {
    consumer.stop(Duration::from_secs(25)).await;
}

/// Writes what `u` does to `p`, to the partition where it belongs.
async fn say(stage: &Stage, topic: &str, action: &str) {
    let event = json!({"post_id": "p", "user_id": "u", "action": action}).to_string();
    let partition = i32::try_from(partition_of(b"p", PARTITIONS)).unwrap();
    stage.say(topic, partition, event.as_bytes(), &[], Duration::ZERO).await;
}

/// Waits until `u` likes `p`, or no longer does.
async fn likes(stage: &Stage, expected: bool) {
    let id: CounterId = "p".parse().unwrap();
    let key = RowKey::of(&id, "u", ShardCount::new(4).unwrap());
    let key = json!({"pk": {"S": key.to_string()}, "user_id": {"S": "u"}});
    eventually(&format!("u likes p: {expected}"), async || {
        let row = stage.store().item("likes", key.clone()).await;
        row.get("pk").is_some() && row.get("gone").is_none() == expected
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_an_adopted_topic_count_and_consumers_of_the_one_before_stand_still() {
    let stage = Stage::set().await;
    say(&stage, "likes", "like").await;
    let before = consumer_of(&stage, "likes");
    likes(&stage, true).await;
    stop(before).await;
    // It has the offset that the like has in the topic of the rows.
    say(&stage, "moved", "unlike").await;
    let early = consumer_of(&stage, "moved");
    says(&early, "the rows are of `likes`").await;
    likes(&stage, true).await;
    stop(early).await;

    let said = stage.tally(&ADOPT).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let moved = consumer_of(&stage, "moved");
    likes(&stage, false).await;
    say(&stage, "likes", "like").await;
    let before = consumer_of(&stage, "likes");
    says(&before, "the rows are of `moved`").await;
    likes(&stage, false).await;
    stop(before).await;
    stop(moved).await;
}
