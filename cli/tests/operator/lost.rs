//! `tally rebuild counts --config`: the checkpoints are lost, too.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_adapters::dynamodb::{Checkpoints, Maps, Numbers};
use tally_core::fence::{Offset, Terms};
use tally_core::ids::{CounterId, RowKey, ShardCount, StreamTable};
use tally_core::ports::{CounterMaps, FencedRows};
use tally_emulator::{Fault, Rule};

use crate::changes::File;
use crate::rebuilding::{counter, numbers, row, switch_the_stream};
use crate::stage::{Said, Stage, number, partition, text};

/// Members of one post: under another number of shards some are elsewhere.
const MEMBERS: i64 = 12;
const VIEWS: &str = "[[counters]]\nname = \"views\"\nkind = \"sum\"\nadd = \"view\"\n";

/// Likes and views that were said, counted and are in no checkpoint any more; what the deployment was.
async fn lost(stage: &Stage) -> File {
    let file = File::of("views.toml", VIEWS);
    let said = stage.tally(&["counters", "apply", file.name(), "--yes", "--why", "a test"]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let exported = stage.tally(&["counters", "export"]).await;
    assert_eq!(exported.code, Some(0), "{exported:?}");
    for (index, age) in [(0, 9), (0, 8), (1, 7)] {
        stage.say("likes", index, b"{}", &[], Duration::from_secs(age)).await;
    }
    let likes: CounterId = "a".parse().unwrap();
    for member in (0..MEMBERS).map(|nth| format!("u{nth}")) {
        row(stage, &home(&likes, &member, 4), &member, None).await;
    }
    for (index, n, to, generation) in [(0, 7, 2, 3), (1, 2, 1, 0)] {
        let key = [("pk", text(&format!("a#+views.{index}"))), ("user_id", text(&format!("\u{1}cell/likes/{index}")))];
        let reached = [("n", number(n)), ("to", number(to)), ("gen", number(generation))];
        stage.put("likes", &[&key[..], &reached].concat()).await;
    }
    let counted = [("likes", number(9)), ("s0", number(9)), ("w40", text("000000000000000000001")), ("fl", number(39))];
    stage.put("like_counts", &[&[("post_id", text("a")), ("version", number(5))][..], &counted].concat()).await;
    for item in items(stage).await {
        let delete = stage.client().delete_item().table_name("checkpoints").key("id", item["id"].clone());
        delete.send().await.unwrap();
    }
    switch_the_stream(stage).await;
    File::of("config.toml", &exported.out)
}

fn home(counter: &CounterId, member: &str, shards: u64) -> String {
    RowKey::of(counter, member, ShardCount::new(shards).unwrap()).to_string()
}

async fn items(stage: &Stage) -> Vec<HashMap<String, AttributeValue>> {
    let scan = stage.client().scan().table_name("checkpoints").consistent_read(true);
    scan.send().await.unwrap().items.unwrap_or_default()
}

fn rebuild(file: &File) -> Vec<&str> {
    vec!["rebuild", "counts", "--config", file.name(), "--settle", "0s", "--yes", "--why", "a test"]
}

fn refused(said: &Said, why: &str) {
    assert!(said.code.is_some_and(|code| code != 0) && said.err.contains(why), "{why}: {said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_are_written_anew_from_rows_logs_and_what_an_operator_has_kept() {
    let stage = Stage::set().await;
    let file = lost(&stage).await;
    let said = stage.tally(&rebuild(&file)).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("3 events of 2 partitions are read again"), "{said:?}");
    assert_eq!(counter(&stage, "a").await.likes, MEMBERS);
    assert_eq!(numbers(&counter(&stage, "a\u{1f}+views").await).0, 9);

    assert_eq!(stage.checkpoints.deployed().await, Ok(Some(ShardCount::new(4).unwrap())));
    assert!(stage.checkpoints.definitions().await.unwrap().named("views").is_some());
    assert_eq!(Maps::new(&stage.connection).announced().await, Ok(0), "no set has a map");
    for (index, end, generation) in [(0, 2, 3), (1, 1, 0)] {
        let fence = stage.likes.fence(&partition(index)).await.unwrap().unwrap();
        let terms = Terms { defs: 2, generation, redo: Some(Offset(end)), ..Terms::default() };
        assert_eq!((fence.offset, fence.terms), (Offset(0), terms), "partition {index}");
        assert!(fence.cfg > 1_700_000_000, "above any that there was: {}", fence.cfg);
    }
    let next = Checkpoints::new(&stage.connection).greatest_next(StreamTable::LIKES).await.unwrap().unwrap();
    assert!(next.0 > 1_040, "{next}");
    assert_eq!(Numbers::read(&stage.connection, true).await.unwrap().behind(), None);
    let said = stage.tally(&rebuild(&file)).await;
    refused(&said, "`config` is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_another_deployment_is_refused_and_nothing_is_changed() {
    let stage = Stage::set().await;
    let kept = lost(&stage).await;
    let before = stage.everything().await;
    let text = std::fs::read_to_string(kept.name()).unwrap();
    for (wrong, why) in [
        (text.replace("shards = 4", "shards = 8"), "is not where 8 shards put it"),
        (text.replace("name = \"views\"", "name = \"reads\""), "no counter"),
        (text.replace("format = 1", "format = 9"), "format 9"),
        (text.replace("shards = 4", ""), "is no configuration"),
    ] {
        let file = File::of("wrong.toml", &wrong);
        refused(&stage.tally(&rebuild(&file)).await, why);
        assert_eq!(stage.everything().await, before, "{why}");
    }
    let dry = stage.tally(&rebuild(&kept)[..6]).await;
    assert!(dry.code == Some(0) && dry.out.contains("every fence at its log's start"), "{dry:?}");
    assert_eq!(stage.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: kills, stops or starves processes"]
async fn one_that_was_killed_leaves_nothing_to_start_over_and_is_done_again() {
    let stage = Stage::set().await;
    let file = lost(&stage).await;
    let slow = Rule::new(Fault::Latency { min_ms: 60_000, max_ms: 60_000 });
    stage.emulator.set_faults(vec![slow.on("UpdateItem").table("like_counts")]);
    let mut process = stage.command(&rebuild(&file)).spawn().unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    while counter(&stage, "a").await.likes != 0 {
        assert!(tokio::time::Instant::now() < deadline, "it never began");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process.kill().unwrap();
    process.wait().unwrap();
    stage.emulator.set_faults(vec![]);
    assert_eq!(stage.checkpoints.deployed().await, Ok(None), "nothing starts");
    let said = stage.tally(&rebuild(&file)).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(counter(&stage, "a").await.likes, MEMBERS);
    assert_eq!(Checkpoints::new(&stage.connection).rebuilding().await, Ok(None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_ends_before_its_cells_needs_a_word_about_sums() {
    let stage = Stage::set().await;
    let file = lost(&stage).await;
    let cell =
        [("pk", text("b#+views.0")), ("user_id", text("\u{1}cell/likes/0")), ("n", number(1)), ("to", number(50))];
    stage.put("likes", &[&cell[..], &[("gen", number(3))]].concat()).await;
    switch_the_stream(&stage).await;
    refused(&stage.tally(&rebuild(&file)).await, "say `--sums skip`");
    let skip = [&rebuild(&file)[..], &["--sums", "skip"]].concat();
    let said = stage.tally(&skip).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let fence = stage.likes.fence(&partition(0)).await.unwrap().unwrap();
    assert_eq!((fence.terms.generation, fence.terms.redo, fence.terms.sums_from), (4, None, Offset(2)));
}

#[tokio::test(flavor = "multi_thread")]
async fn maps_are_announced_anew_above_any_number_that_was_read() {
    let stage = Stage::set().await;
    let file = lost(&stage).await;
    let homes = AttributeValue::Ns(vec!["4".to_owned(), "8".to_owned()]);
    let map = [("pk", text("a#0")), ("user_id", text("\u{1}homes")), ("homes", homes), ("newest", number(8))];
    let decided = [("decided_by", text("number_of_shards")), ("at", number(5))];
    stage.put("likes", &[&map[..], &decided].concat()).await;
    let likes: CounterId = "a".parse().unwrap();
    // Not where four shards put it, and at home all the same.
    let other =
        (0..99).map(|n| format!("m{n}")).find(|member| home(&likes, member, 4) != home(&likes, member, 8)).unwrap();
    row(&stage, &home(&likes, &other, 8), &other, None).await;
    switch_the_stream(&stage).await;
    let said = stage.tally(&rebuild(&file)).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(counter(&stage, "a").await.likes, MEMBERS + 1);
    assert!(Maps::new(&stage.connection).announced().await.unwrap() > 1_700_000_000);
}
