//! `tally adopt tables`: over tables that are others than before, and over a deployment whose configuration is lost.

use std::time::Duration;

use serde_json::json;
use tally_adapters::dynamodb::{Checkpoints, ensure_tables};
use tally_core::ids::{CounterId, RowKey, ShardCount};
use tally_core::ports::TopicReader;
use tally_core::topic::Offset;

use crate::changes::File;
use crate::stage::{Said, Stage, partition, version};

const YES: [&str; 3] = ["--yes", "--why", "a test"];
/// How many members the post has: so many that with another number of shards some rows would be elsewhere.
const MEMBERS: i64 = 12;
const VIEWS: &str = "[[counters]]\nname = \"views\"\nkind = \"sum\"\nadd = \"view\"\n";

async fn adopted(stage: &Stage, args: &[&str]) -> Said {
    stage.tally(&[&["adopt", "tables", "--settle", "0s"], args].concat()).await
}

async fn row(stage: &Stage, key: &str, user: &str) {
    stage.store().put("likes", &json!({"pk": key, "user_id": user, "liked_at": 5})).await;
}

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
        row(stage, &home(&likes, &member, 4), &member).await;
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

fn refused(said: &Said, why: &str) {
    assert!(said.code.is_some_and(|code| code != 0) && said.err.contains(why), "{why}: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_another_one_is_gone_on_with_after_a_loss_was_opened() {
    let stage = Stage::set().await;
    let whole = adopted(&stage, &YES).await;
    assert!(whole.code == Some(0) && whole.out.contains("nothing to do"), "{whole:?}");
    assert!(!whole.out.contains("tombstones"), "they expire: {whole:?}");
    stage.store().call("DeleteTable", json!({"TableName": "like_counts"})).await;
    ensure_tables(&stage.connection).await.unwrap();
    let status = stage.tally(&["status"]).await;
    assert!(status.code == Some(1) && status.out.contains("table like_counts is another one"), "{status:?}");
    stage.expire("likes", "gone", false).await;
    let dry = adopted(&stage, &[]).await;
    assert!(dry.out.contains("table likes: nothing expires by `gone`, so tombstones stay for ever"), "{dry:?}");
    assert!(
        dry.code == Some(0) && dry.out.contains("another one") && dry.out.contains("nothing was changed"),
        "{dry:?}"
    );
    assert_eq!(stage.changes.losses().await.unwrap().open().count(), 0);
    let said = adopted(&stage, &YES).await;
    assert!(said.code == Some(0) && said.out.contains("until an audit has passed"), "{said:?}");
    assert!(stage.changes.losses().await.unwrap().open().count() > 0);
    assert!(Checkpoints::new(&stage.connection).seen_tables().await.unwrap().is_whole());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_is_written_anew_from_rows_logs_and_what_an_operator_has_kept() {
    let stage = Stage::set().await;
    let file = lost(&stage).await;
    refused(&stage.tally(&["status"]).await, "tally adopt tables --shards N");
    let args = ["--shards", "4", "--counters", file.name()];
    let before = stage.everything().await;
    refused(&adopted(&stage, &args).await, "say `--sums skip`");
    let args = [&args[..], &["--sums", "skip"]].concat();
    let dry = adopted(&stage, &args).await;
    assert!(dry.code == Some(0) && dry.out.contains("begin generation 4 at its start: 3 records are read"), "{dry:?}");
    assert!(dry.out.contains("begin the log of changes in generation 4"), "{dry:?}");
    assert_eq!(stage.everything().await, before);
    let said = adopted(&stage, &[&args[..], &YES].concat()).await;
    assert!(said.code == Some(0) && said.out.contains("3 events are read again"), "{said:?}");

    assert_eq!(stage.checkpoints.deployed().await, Ok(Some(ShardCount::new(4).unwrap())));
    assert!(stage.checkpoints.definitions().await.unwrap().named("views").is_some());
    let topic = stage.topic().await;
    assert_eq!((topic.current().number, &topic.current().begins), (4, &vec![Offset(0); 2]), "above every version");
    assert_eq!(topic.sums_from, [Offset(2), Offset(1)], "as it was told");
    for (index, end) in [(0, 2), (1, 1)] {
        let kept = stage.kept(index).await;
        assert_eq!((kept.safe, kept.greatest, kept.replay), (Offset(0), Offset(end), Some(Offset(end))), "{index}");
    }
    assert_eq!(
        stage.consumers().bookmark(&partition(0)).await,
        Ok(Some(Offset(0))),
        "it was of the claim that is lost"
    );
    let log = stage.changes.config().await.unwrap().unwrap();
    assert_eq!((log.partitions, log.generation), (2, 4), "above the version of every counter");
    assert_eq!(stage.changes.losses().await.unwrap().open().count(), 2);
    let again = adopted(&stage, &[&args[..], &YES].concat()).await;
    assert!(again.code == Some(0) && again.out.contains("nothing to do"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_of_another_deployment_and_a_log_whose_positions_are_lost_are_refused() {
    let stage = Stage::set().await;
    let file = lost(&stage).await;
    let before = stage.everything().await;
    let other = File::of("reads.toml", &VIEWS.replace("views", "reads"));
    let mistakes: [(&[&str], &str); 4] = [
        (&["--shards", "8", "--counters", file.name()], "is not where 8 shards put it"),
        (&["--shards", "4", "--counters", other.name()], "--counters defines no counter"),
        (&["--shards", "4"], "--counters defines no counter"),
        (&[], "tally adopt tables --shards N"),
    ];
    for (args, why) in mistakes {
        refused(&adopted(&stage, &[args, &YES].concat()).await, why);
        assert_eq!(stage.everything().await, before, "{why}");
    }
    stage.say("changes", 1, b"{}", &[], Duration::ZERO).await;
    let args = ["--shards", "4", "--counters", file.name(), "--sums", "count"];
    refused(&adopted(&stage, &[&args[..], &YES].concat()).await, "delete the topic and create it anew");
}
