//! `tally topic adopt --topic`: moves the counters whose definition names no topic to another topic, with consumers.

use std::time::Duration;

use serde_json::json;
use tally_consumer::{App, Ports, ReadSettings};
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, RowKey, ShardCount};
use tally_emulator::{Fault, Rule};
use tally_service::{Host, Running};
use tally_testkit::eventually;

use crate::changes::File;
use crate::stage::{PARTITIONS, Stage};

/// How long a consumer may take to stop.
const GRACE: Duration = Duration::from_secs(25);
const ADOPT: &str = "topic adopt --topic moved --settle 0s";

fn consumer_of(stage: &Stage, topic: &str) -> Running {
    let ports = Ports::over(&stage.engines.kafka(), ("tally-consumer", topic), "", None).unwrap();
    let mut settings = ReadSettings::default();
    settings.topics.likes.topic = topic.to_owned();
    settings.topics.dead_letter_topic = Some("likes.dlq".to_owned());
    Running::start(App::with_ports(None, settings, ports, stage.connection.clone()), Host::new("consumer"))
}

async fn says(consumer: &Running, what: &str) {
    let readiness = consumer.host().readiness().clone();
    eventually(what, async || format!("{:?}", readiness.report()).contains(what)).await;
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
    before.stop(GRACE).await;
    // It has the offset that the like has in the topic of the rows.
    say(&stage, "moved", "unlike").await;
    let early = consumer_of(&stage, "moved");
    says(&early, "the rows are of `likes`").await;
    likes(&stage, true).await;
    early.stop(GRACE).await;

    stage.does(ADOPT, 0, []).await;
    let moved = consumer_of(&stage, "moved");
    likes(&stage, false).await;
    say(&stage, "likes", "like").await;
    let before = consumer_of(&stage, "likes");
    says(&before, "the rows are of `moved`").await;
    likes(&stage, false).await;
    before.stop(GRACE).await;
    moved.stop(GRACE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_verb_produces_to_the_topic_that_consumers_have_left_nor_looks_at_it_for_a_certain_answer() {
    let stage = Stage::set().await;
    stage.put_aside(5).await;
    stage.row("p#2", "u").await;
    let file = File::of("moved.ndjson", "{\"post_id\":\"p\",\"user_id\":\"u\",\"action\":\"like\"}\n");
    stage.does("pause consumer --settle 0s", 0, []).await;
    let seen = stage.checkpoints.usual().await.unwrap();
    assert!(stage.checkpoints.move_usual(&seen, "moved").await.unwrap());
    let before = stage.everything().await;
    for line in [
        "user erase u --yes --why test",
        "post erase p --yes --why test",
        &format!("import {} --yes --why test", file.name()),
        "dlq replay --yes --why test",
        "pause consumer --settle 0s --yes --why test",
        "verify",
    ] {
        let said = stage.shows(line, 2, ["`moved`", "say --topic moved"]).await;
        assert_eq!(said.out, "", "{line}: {said:?}");
    }
    assert_eq!(stage.everything().await, before);
    let said = stage.tally("verify --topic moved --looks 1 --pause 10ms -o json").await;
    assert_eq!(said.json()["claim"], json!("rows_moved"), "consumers of `moved` are not paused: {said:?}");
    stage.does(&format!("import {} --topic moved", file.name()), 0, ["to `moved`"]).await;
}

/// Cuts an adoption off at one write after the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_of_the_topic_before_has_lost_its_claim_once_another_topic_is_named() {
    for first in 1.. {
        let stage = Stage::set().await;
        let claims = async || stage.claims.all("likes", PARTITIONS).await.unwrap().into_iter().map(|claim| claim.n);
        let before: Vec<u64> = claims().await.collect();
        let cut = Rule::new(Fault::Outage).on("UpdateItem").table("checkpoints").calls(first, 1_000);
        stage.store().faults([cut]);
        let said = stage.made(ADOPT).await;
        stage.store().faults([]);
        if stage.checkpoints.usual().await.unwrap().topic.as_deref() == Some("moved") {
            let now: Vec<u64> = claims().await.collect();
            assert!(now.iter().zip(&before).all(|(now, before)| now > before), "cut at {first}: {now:?}, {said:?}");
            assert!(stage.topic().await.is_paused, "cut at {first}: {said:?}");
        }
        if said.code == Some(0) {
            return;
        }
        stage.does(ADOPT, 0, []).await;
        assert_eq!(stage.checkpoints.usual().await.unwrap().topic.as_deref(), Some("moved"));
    }
}
