//! Tests `tally adopt tables`, which has a deployment go on after a table was replaced, or after its configuration was
//! lost.

use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::{Checkpoints, ensure_tables};
use tally_core::ids::{CounterId, RowKey, ShardCount};
use tally_core::ports::TopicReader;
use tally_core::topic::Offset;

use crate::changes::File;
use crate::stage::{Stage, VIEWS, partition, refused, version};

/// How many members the post has: so many that with another number of shards some rows would be elsewhere.
const MEMBERS: i64 = 12;

fn home(counter: &CounterId, member: &str, shards: u64) -> String {
    RowKey::of(counter, member, ShardCount::new(shards).unwrap()).to_string()
}

/// Writes likes and views, and a counter, and deletes the checkpoints. Returns the file that defines the counters.
async fn lost(stage: &Stage) -> File {
    let file = File::of("views.toml", VIEWS);
    for (index, age) in [(0, 9), (0, 8), (1, 7)] {
        stage.say("likes", index, b"{}", &[], Duration::from_secs(age)).await;
    }
    let likes: CounterId = "a".parse().unwrap();
    for member in (0..MEMBERS).map(|nth| format!("u{nth}")) {
        stage.row(&home(&likes, &member, 4), &member).await;
    }
    for (index, n, to) in [(0, 7, version(3, 1)), (1, 2, version(1, 0))] {
        let [pk, user] = [format!("a#+views.{index}"), format!("\u{1}cell/likes/{index}")];
        stage.store().put("likes", &json!({"pk": pk, "user_id": user, "n": n, "to": to})).await;
    }
    stage.consumers().mark(&partition(0), Offset(2)).await.unwrap();
    // Its version is of the third generation of the log.
    let counter = json!({"post_id": "a", "likes": 0, "version": 3_u64 << 48 | 5});
    stage.store().put("like_counts", &counter).await;
    stage.delete_all("checkpoints", "id").await;
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_another_one_is_gone_on_with_after_a_loss_was_opened() {
    let stage = Stage::set().await;
    let whole = stage.does("adopt tables --settle 0s", 0, ["nothing to do"]).await;
    assert!(!whole.out.contains("tombstones"), "they expire: {whole:?}");
    stage.store().call("DeleteTable", json!({"TableName": "like_counts"})).await;
    ensure_tables(&stage.connection).await.unwrap();
    stage.shows("status", 1, ["table like_counts is another one"]).await;
    stage.expire("likes", "gone", false).await;
    let stay = "table likes: nothing expires by `gone`, so tombstones stay for ever";
    stage.shows("adopt tables", 0, [stay, "another one", "nothing was changed"]).await;
    assert_eq!(stage.changes.losses().await.unwrap().open().count(), 0);
    stage.does("adopt tables --settle 0s", 0, ["until an audit has passed"]).await;
    assert!(stage.changes.losses().await.unwrap().open().count() > 0);
    assert!(Checkpoints::new(&stage.connection).seen_tables().await.unwrap().is_whole());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_is_written_anew_from_rows_logs_and_what_an_operator_has_kept() {
    let stage = Stage::set().await;
    let file = lost(&stage).await;
    refused(&stage.tally("status").await, "tally adopt tables --shards N");
    let adopt = format!("adopt tables --settle 0s --shards 4 --counters {}", file.name());
    let before = stage.everything().await;
    refused(&stage.tally(&adopt).await, "say `--sums skip`");
    let (adopt, topic) = (adopt + " --sums skip", "begin generation 4 at its start: 3 records are read");
    stage.shows(&adopt, 0, [topic, "begin the log of changes in generation 4"]).await;
    assert_eq!(stage.everything().await, before);
    stage.does(&adopt, 0, ["3 events are read again"]).await;

    assert_eq!(stage.checkpoints.deployed().await, Ok(Some(ShardCount::new(4).unwrap())));
    assert!(stage.checkpoints.definitions().await.unwrap().named("views").is_some());
    let topic = stage.topic().await;
    assert_eq!((topic.current().number, &topic.current().begins), (4, &vec![Offset(0); 2]), "above every version");
    assert_eq!(topic.sums_from, [Offset(2), Offset(1)], "as it was told");
    for (index, end) in [(0, 2), (1, 1)] {
        let kept = stage.kept(index).await;
        assert_eq!((kept.safe, kept.greatest, kept.replay), (Offset(0), Offset(end), Some(Offset(end))), "{index}");
    }
    // It was of the claim that is lost.
    assert_eq!(stage.consumers().bookmark(&partition(0)).await, Ok(Some(Offset(0))));
    let log = stage.changes.config().await.unwrap().unwrap();
    assert_eq!((log.partitions, log.generation), (2, 4), "above the version of every counter");
    assert_eq!(stage.changes.losses().await.unwrap().open().count(), 2);
    stage.does(&adopt, 0, ["nothing to do"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_of_another_deployment_and_a_log_whose_positions_are_lost_are_refused() {
    let stage = Stage::set().await;
    let file = lost(&stage).await;
    let before = stage.everything().await;
    let other = File::of("reads.toml", &VIEWS.replace("views", "reads"));
    for (args, why) in [
        (&*format!(" --shards 8 --counters {}", file.name()), "is not where 8 shards put it"),
        (&*format!(" --shards 4 --counters {}", other.name()), "--counters defines no counter"),
        (" --shards 4", "--counters defines no counter"),
        ("", "tally adopt tables --shards N"),
    ] {
        refused(&stage.made(&format!("adopt tables --settle 0s{args}")).await, why);
        assert_eq!(stage.everything().await, before, "{why}");
    }
    stage.say("changes", 1, b"{}", &[], Duration::ZERO).await;
    let adopt = format!("adopt tables --settle 0s --shards 4 --sums count --counters {}", file.name());
    refused(&stage.made(&adopt).await, "delete the topic and create it anew");
}
