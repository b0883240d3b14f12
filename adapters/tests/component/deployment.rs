//! What `Deployment` does at the start of a process, over the in-process emulator: which process creates a deployment,
//! which waits for it, and when a change of the format ends a process.

use std::time::Duration;

use serde_json::json;
use tally_adapters::Deployment;
use tally_adapters::dynamodb::Checkpoints;
use tally_core::format::{Format, UnknownFormat};
use tally_core::ids::ShardCount;
use tally_service::{Clock, Exit, Host, How, Running};
use tally_testkit::{BEGAN, Store};

use crate::tables::Member;

fn shards(count: u64) -> Option<ShardCount> {
    Some(ShardCount::new(count).unwrap())
}

fn host() -> Host {
    Host::new("test").with_clock(Clock::starting_at(BEGAN))
}

fn deployment(store: &Store, shards: Option<ShardCount>) -> Deployment<'_> {
    Deployment { tables: &store.connection, shards }
}

async fn state_format(store: &Store, format: serde_json::Value) {
    store.edit("checkpoints", json!({"id": {"S": "config"}}), "format", format).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_waits_for_a_writer_and_both_refuse_another_number_of_shards() {
    let (store, host) = (Store::start().await, host());
    let of = |shards| deployment(&store, shards);
    let (read, created) = tokio::join!(of(None).join(&host), async {
        host.clock().sleep(Duration::from_secs(60)).await;
        of(shards(8)).create(&host).await
    });
    assert_eq!((read.unwrap(), created.unwrap()), (shards(8).unwrap(), shards(8).unwrap()));
    for refused in [of(shards(16)).create(&host).await, of(shards(16)).join(&host).await] {
        let message = refused.unwrap_err().to_string();
        assert_eq!(message, "--shards is 16, but this deployment was created with 8");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_with_an_unknown_format_is_neither_joined_nor_changed() {
    let store = Store::start().await;
    let config = Checkpoints::new(&store.connection);
    config.config(shards(8)).await.unwrap();
    for (stated, format) in [
        (json!(null), Format::FIRST),
        (json!({"N": "7"}), Format::Number(7)),
        (json!({"N": "-1"}), Format::Other),
        (json!({"S": "2-part1"}), Format::Named("2-part1".to_owned())),
        (json!({"BOOL": true}), Format::Other),
    ] {
        state_format(&store, stated).await;
        let before = store.items("checkpoints").await;
        for refused in [deployment(&store, None).create(&host()).await, deployment(&store, None).join(&host()).await] {
            assert_eq!(refused.unwrap_err().downcast_ref(), Some(&UnknownFormat(format.clone())));
        }
        assert_eq!(store.items("checkpoints").await, before, "nothing is written over it");
    }
}

#[tokio::test(start_paused = true)]
async fn no_process_creates_or_joins_a_deployment_whose_rows_have_no_configuration() {
    let store = Store::start().await;
    let row = json!({"pk": "p#3", "user_id": "u"});
    store.put("likes", &row).await;
    for refused in [deployment(&store, None).create(&host()).await, deployment(&store, None).join(&host()).await] {
        let error = refused.unwrap_err();
        assert_eq!(Exit::after(&error), Exit::CONFIG, "only an operator can say what to do");
        let error = format!("{error:#}");
        assert!(error.contains("the likes table has rows, and the checkpoints table has no `config`"), "{error}");
    }
    assert_eq!(Checkpoints::new(&store.connection).deployed().await, Ok(None), "nothing was created over them");
    store.delete("likes", &row).await;
    deployment(&store, None).create(&host()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_changed_format_ends_the_process_by_name() {
    let store = Store::start().await;
    Checkpoints::new(&store.connection).config(None).await.unwrap();
    let member = Member { connection: store.connection.clone(), creates: false };
    let running = Running::start(member, host());
    running.ready().await.unwrap();
    state_format(&store, json!({"N": "7"})).await;
    let end = running.ended().await;
    assert_eq!((end.task.as_str(), end.exit()), ("format", Exit::FORMAT));
    assert_eq!(end.how, How::UnknownFormat(UnknownFormat(Format::Number(7))));
    assert_eq!(
        end.to_string(),
        "task `format` failed: the deployment is written in format 7, this build knows 2: see docs/operate.md"
    );
}
