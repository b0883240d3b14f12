//! Tests `tally restore`: its plan for restoring the tables to a moment, and its checks of tables that were restored
//! under another prefix.

use std::time::Duration;

use serde_json::{Value, json};
use tally_adapters::dynamodb::{Connection, Settings, ensure_tables};
use tally_adapters::kafka;
use tally_core::ports::TopicReader;
use tally_core::topic::Offset;

use crate::stage::{Stage, partition, point};

const HOUR: Duration = Duration::from_secs(3_600);

/// Does what a restore of the store does: creates tables under another prefix, with the items of the moment.
async fn restore(stage: &Stage, tables: Vec<(&str, Vec<Value>)>) {
    let client = stage.store().emulator.http_client();
    let connection = Connection::in_process(&Settings::local("r-"), client, stage.clock.now());
    ensure_tables(&connection).await.unwrap();
    for (table, items) in tables {
        for item in items {
            stage.store().call("PutItem", json!({"TableName": format!("r-{table}"), "Item": item})).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_whether_it_can_be_done_and_how() {
    let stage = Stage::set().await;
    let now = stage.clock.now();
    let plan = async |at: u64, prefix: &str| {
        let at = at.to_string();
        stage.tally(&format!("restore plan --to-time {at} --to-prefix {prefix} -o json")).await
    };
    let said = plan(now.minus(HOUR).0, "r-").await;
    assert_eq!(
        ["moment", "prefix", "likes/0"].map(|what| point(&said, what)[0].clone()),
        ["good", "good", "good"],
        "{said:?}"
    );
    let steps = said.json()["steps"].to_string();
    let set_back = "--group r-tally-consumer --topic likes --reset-offsets --to-datetime 20";
    assert!(steps.contains(set_back), "{steps}");
    let (rows, checkpoints) = (now.minus(HOUR).0.div_ceil(1_000), now.minus(HOUR).0.div_ceil(1_000) + 60);
    assert!(steps.contains(&format!("--target-table-name r-likes --restore-date-time {rows}")), "{steps}");
    assert!(steps.contains(&format!("--target-table-name r-checkpoints --restore-date-time {checkpoints}")), "{steps}");
    for (table, by) in [("r-likes", "gone"), ("r-recounts", "ttl")] {
        let expire = format!("--table-name {table} --time-to-live-specification Enabled=true,AttributeName={by}");
        assert!(steps.contains(&expire), "a restored table expires nothing: {steps}");
    }
    for (at, prefix, what) in [(now.plus(HOUR).0, "r-", "moment"), (1, "r-", "moment"), (now.0, "", "prefix")] {
        let said = plan(at, prefix).await;
        assert_eq!((said.code, point(&said, what)[0].as_str()), (Some(1), "bad"), "{said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_moment_are_good_once_reading_begins_before_it() {
    let stage = Stage::set().await;
    for age in [2 * HOUR, HOUR, Duration::ZERO] {
        stage.say("likes", 0, b"{}", &[], age).await;
    }
    // The tables as of an hour ago: one event was applied. The checkpoints are a minute younger and have two.
    stage.row("p#2", "u").await;
    stage.come_to(0, 2, stage.clock.now()).await;
    let mut tables = Vec::new();
    for table in ["likes", "like_counts", "checkpoints", "recounts"] {
        tables.push((table, stage.store().items(table).await));
    }
    restore(&stage, tables).await;

    let moment = stage.clock.now().minus(HOUR).0.to_string();
    let check = async || stage.tally(&format!("restore check --to-time {moment} --table-prefix r- -o json")).await;
    let before = stage.everything().await;
    let said = check().await;
    assert_eq!(stage.everything().await, before);
    let bad = ["tables: ids", "likes/0", "exactness"];
    assert_eq!(bad.map(|what| point(&said, what)[0].clone()), ["bad"; 3], "{said:?}");
    assert!(said.code == Some(1) && said.out.contains("reading begins at 2, behind events that the rows may not have"));
    assert!(said.out.contains("kafka-consumer-groups.sh"), "{said:?}");

    stage.does("adopt tables --table-prefix r-", 0, []).await;
    // Set the group back, as Kafka's own tool does.
    let consumers = kafka::TopicReader::new(&stage.engines.kafka(), "r-tally-consumer", "likes").unwrap();
    consumers.mark(&partition(0), Offset(1)).await.unwrap();
    let said = check().await;
    let good = ["likes/0", "likes/1", "exactness", "tables: ids", "log of changes"];
    assert_eq!(good.map(|what| point(&said, what)[0].clone()), ["good"; 5], "{said:?}");
    let losses = stage.changes.losses().await.unwrap();
    assert_eq!(losses.open().count(), 0, "of the tables that are there nothing was changed");
}
