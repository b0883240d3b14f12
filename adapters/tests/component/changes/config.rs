//! Tests the stored configuration of the log of changes, which says in which Kafka topic it is: the first process
//! decides, and another topic is the next generation.

use tally_adapters::dynamodb::Checkpoints;
use tally_adapters::dynamodb::changes::Config;
use tally_core::changes::DeploymentId;
use tally_core::fault::Fault;
use tally_core::topic::TopicId;
use tally_emulator::{Fault as Injected, Rule};

use super::start;

/// The configuration of a deployment's first topic.
pub(crate) fn topic(id: &str, partitions: u32) -> Config {
    Config { deployment: DeploymentId("d-1".into()), partitions, topic: TopicId(id.into()), generation: 1 }
}

#[tokio::test(start_paused = true)]
async fn the_first_process_decides_and_the_others_learn_its_configuration() {
    let (store, changes) = start().await;
    assert_eq!(changes.config().await, Ok(None));
    let first = topic("t-1", 12);
    store.faults([Rule::new(Injected::DropReply).on("PutItem").nth(1)]);
    assert!(changes.begin_log(&first).await.is_err());
    let other = Config { deployment: DeploymentId("d-2".into()), ..topic("t-2", 24) };
    assert_eq!(changes.begin_log(&other).await, Ok(first.clone()));
    assert_eq!(changes.begin_log(&first).await, Ok(first.clone()));
    assert_eq!(changes.config().await, Ok(Some(first)));
}

#[tokio::test(start_paused = true)]
async fn a_log_whose_configuration_is_lost_is_not_created_again() {
    let (store, changes) = start().await;
    Checkpoints::new(&store.connection).config(None).await.unwrap();
    changes.begin_log(&topic("t-1", 12)).await.unwrap();
    let key = serde_json::json!({"TableName": "checkpoints", "Key": {"id": {"S": "changes/config"}}});
    store.call("DeleteItem", key).await;
    let again = changes.begin_log(&topic("t-1", 12)).await;
    assert!(matches!(&again, Err(Fault::Fatal(why)) if why.contains("tally adopt tables")), "{again:?}");
    assert_eq!(changes.config().await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn another_topic_is_adopted_once_as_the_next_generation() {
    let (store, changes) = start().await;
    let first = topic("t-1", 12);
    let next = TopicId("t-2".into());
    assert_eq!(changes.adopt_topic(&first, &next, 24).await, Ok(None), "there is no log yet");
    changes.begin_log(&first).await.unwrap();
    let adopted = Config { generation: 2, ..topic("t-2", 24) };
    store.faults([Rule::new(Injected::DropReply).on("PutItem").nth(1)]);
    assert!(changes.adopt_topic(&first, &next, 24).await.is_err());
    assert_eq!(changes.adopt_topic(&first, &next, 24).await, Ok(Some(adopted.clone())), "an earlier copy did it");
    assert_eq!(changes.adopt_topic(&first, &TopicId("t-3".into()), 24).await, Ok(None), "it knew an older one");
    assert_eq!(changes.config().await, Ok(Some(adopted.clone())));
    let other = Config { deployment: DeploymentId("d-2".into()), ..adopted.clone() };
    assert_eq!(changes.adopt_topic(&other, &next, 24).await, Ok(None), "it is of another deployment");
    let last = Config { generation: u16::MAX, ..adopted };
    assert!(matches!(changes.adopt_topic(&last, &next, 24).await, Err(Fault::Fatal(_))));
}
