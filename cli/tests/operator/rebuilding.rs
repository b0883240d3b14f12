//! `tally rebuild counts`: counters from their rows, and the streamer that goes on from there.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, StreamSpecification, StreamViewType};
use tally_adapters::dynamodb::{self, Checkpoints};
use tally_change_streamer as streamer;
use tally_core::counter::{Counter, Feeder, Touch, Update};
use tally_core::ids::{CounterId, Ordinal, Shard};
use tally_core::ports::{Applied, Counts};
use tally_core::time::UnixMillis;
use tally_emulator::{Fault, Rule};
use tally_service::{Host, Running};

use crate::stage::{Said, Stage, number, text};

const REBUILD: [&str; 5] = ["rebuild", "counts", "--yes", "--why", "a test"];
const YES: [&str; 3] = ["--yes", "--why", "a test"];

pub(crate) async fn row(stage: &Stage, pk: &str, sort: &str, n: Option<AttributeValue>) {
    let mut row = vec![("pk", text(pk)), ("user_id", text(sort))];
    row.extend(n.map(|n| ("n", n)));
    stage.put("likes", &row).await;
}

/// Rows of two sets and a sum, one of them unreadable, and counters that have nothing to do with them.
async fn lose_counts(stage: &Stage) {
    for (pk, user) in [("a#0", "u"), ("a#0", "v"), ("a#3", "w"), ("b#1", "u")] {
        row(stage, pk, user, None).await;
    }
    row(stage, "a#+views.0", "\u{1}cell/likes/0", Some(number(7))).await;
    row(stage, "a#+views.1", "\u{1}cell/likes/1", Some(number(-2))).await;
    row(stage, "a#0", "\u{1}recount", None).await;
    row(stage, "c#1", "u", Some(text("many"))).await;
    let wrong =
        [("likes", number(99)), ("s0", number(90)), ("s1", number(9)), ("o0", number(1)), ("version", number(5))];
    for id in ["a", "gone"] {
        stage.put("like_counts", &[&[("post_id", text(id))], &wrong[..]].concat()).await;
    }
}

pub(crate) async fn switch_the_stream(stage: &Stage) {
    for is_on in [false, true] {
        let view = is_on.then_some(StreamViewType::NewAndOldImages);
        let stream = StreamSpecification::builder().stream_enabled(is_on).set_stream_view_type(view).build().unwrap();
        stage.client().update_table().table_name("likes").stream_specification(stream).send().await.unwrap();
    }
}

async fn paused(stage: &Stage) {
    let said = stage.tally(&[&["pause", "consumer"][..], &YES].concat()).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    switch_the_stream(stage).await;
}

pub(crate) async fn counter(stage: &Stage, id: &str) -> Counter {
    let id: CounterId = id.parse().unwrap();
    dynamodb::Counts::new(&stage.connection).counter(&id).await.unwrap().unwrap_or_default()
}

/// Its total and what stands in each shard.
pub(crate) fn numbers(counter: &Counter) -> (i64, Vec<(u16, i64)>) {
    (counter.likes, counter.shards.iter().map(|(shard, tally)| (shard.index(), tally.rows)).collect())
}

async fn is_rebuilt(stage: &Stage) {
    assert_eq!(numbers(&counter(stage, "a").await), (3, vec![(0, 2), (3, 1)]));
    assert_eq!(numbers(&counter(stage, "b").await), (1, vec![(1, 1)]));
    assert_eq!(numbers(&counter(stage, "a\u{1f}+views").await), (5, vec![(0, 7), (1, -2)]));
    assert_eq!(numbers(&counter(stage, "gone").await), (0, vec![]));
    let doubted = counter(stage, "c").await;
    assert!(doubted.shards[&Shard::new(1).unwrap()].suspect && doubted.likes == 0);
}

fn streamer_of(stage: &Stage) -> Running {
    let mut rules = streamer::Rules::default();
    rules.cut.age = Duration::from_millis(20);
    rules.poll.idle = Duration::from_millis(100);
    let config =
        streamer::Config { table_prefix: String::new(), shards: None, cache: None, feed: None, changes: None, rules };
    let ports = streamer::Ports {
        stream: Arc::new(dynamodb::Streams::new(&stage.connection)),
        counts: Arc::new(dynamodb::Counts::new(&stage.connection)),
        checkpoints: Arc::clone(&stage.checkpoints),
        recounts: Arc::new(dynamodb::Recounts::new(&stage.connection)),
        cache: None,
        feed: None,
        changes: None,
    };
    Running::start(streamer::App::with_ports(config, ports), Host::new("streamer"))
}

fn refused(said: &Said, why: &str) {
    assert!(said.code == Some(1) && said.err.contains(why), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_are_what_their_rows_weigh_and_a_streamer_goes_on_from_there() {
    let stage = Stage::set().await;
    lose_counts(&stage).await;
    refused(&stage.tally(&REBUILD).await, "is not paused");
    let said = stage.tally(&[&["pause", "consumer"][..], &YES].concat()).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    refused(&stage.tally(&REBUILD).await, "a change-streamer follows the stream");
    switch_the_stream(&stage).await;
    let before = stage.everything().await;
    let dry = stage.tally(&REBUILD[..2]).await;
    assert!(dry.code == Some(0) && dry.out.contains("anew from its rows"), "{dry:?}");
    assert_eq!(stage.everything().await, before);

    let said = stage.tally(&REBUILD).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("5 counters written from 7 rows of 6 row keys, 1 of them in doubt"), "{said:?}");
    is_rebuilt(&stage).await;
    assert_eq!(Checkpoints::new(&stage.connection).rebuilding().await, Ok(None));

    // A worker of the stream that was switched off comes too late.
    let touch = Touch { shard: Shard::FIRST, delta: 1, feeder: Feeder::Usual, window: None, doubt: false };
    let sequence = "9".repeat(20).parse().unwrap();
    let late = Update {
        shard: Ordinal(1),
        first: sequence,
        last: sequence,
        at: UnixMillis(1),
        touched: vec![touch],
        ancestors: vec![],
        closed_through: None,
        prune: None,
        guard: None,
    };
    let applied = dynamodb::Counts::new(&stage.connection).apply(&"a".parse().unwrap(), &late).await.unwrap();
    assert!(matches!(applied, Applied::Refused(_)), "{applied:?}");

    let said = stage.tally(&[&["resume", "consumer"][..], &YES].concat()).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let following = streamer_of(&stage);
    row(&stage, "a#0", "x", None).await;
    row(&stage, "gone#2", "x", None).await;
    let delete = stage.client().delete_item().table_name("likes");
    delete.key("pk", text("b#1")).key("user_id", text("u")).send().await.unwrap();
    let wanted = [("a", 4), ("gone", 1), ("b", 0), ("a\u{1f}+views", 5)];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    loop {
        let mut found = Vec::new();
        for (id, _) in wanted {
            found.push((id, counter(&stage, id).await.likes));
        }
        if found == wanted {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(following.stop(Duration::from_secs(25)).await.exit(), tally_service::Exit::CLEAN);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_has_a_change_of_a_row_is_refused() {
    let stage = Stage::set().await;
    lose_counts(&stage).await;
    paused(&stage).await;
    row(&stage, "a#0", "late", None).await;
    let before = stage.everything().await;
    refused(&stage.tally(&REBUILD).await, "has changes of rows");
    assert_eq!(stage.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "night: kills, stops or starves processes"]
async fn one_that_was_killed_keeps_consumers_paused_and_is_done_again() {
    let stage = Stage::set().await;
    lose_counts(&stage).await;
    paused(&stage).await;
    let slow = Rule::new(Fault::Latency { min_ms: 60_000, max_ms: 60_000 });
    stage.emulator.set_faults(vec![slow.on("UpdateItem").table("like_counts")]);
    let mut process = stage.command(&REBUILD).spawn().unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(120);
    // All counters are empty by then, and none is written yet.
    while counter(&stage, "a").await.likes != 0 || counter(&stage, "gone").await.likes != 0 {
        assert!(tokio::time::Instant::now() < deadline, "it never began");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process.kill().unwrap();
    process.wait().unwrap();
    stage.emulator.set_faults(vec![]);

    let resume = [&["resume", "consumer"][..], &YES].concat();
    refused(&stage.tally(&resume).await, "a rebuild of the counts began");
    let status = stage.tally(&["status"]).await;
    assert!(status.code == Some(1) && status.out.contains("rebuild unfinished"), "{status:?}");
    // Workers that met the new stream meanwhile are no obstacle.
    let following = streamer_of(&stage);
    following.ready().await.unwrap();
    let said = stage.tally(&REBUILD).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    is_rebuilt(&stage).await;
    assert_eq!(stage.tally(&resume).await.code, Some(0));
    assert_eq!(following.stop(Duration::from_secs(25)).await.exit(), tally_service::Exit::CLEAN);
}
