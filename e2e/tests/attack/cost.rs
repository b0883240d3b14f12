//! Tests what counting costs: the calls, rows, bytes and write units in DynamoDB for a known load, with consumers and
//! streamers under virtual time that do not crash.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use tally_core::definitions::{Definitions, Entry};
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, PostId};
use tally_core::ports::log::Outgoing;
use tally_core::time::UnixMillis;
use tally_e2e::pipeline::{Pipeline, TOPIC};
use tally_emulator::{Config, Fault, Rule};

const PARTITIONS: u32 = 4;
const POSTS: u64 = 60;
const EVENTS: u64 = 6_000;

/// Likes and unlikes, the same in every run: one event in seven undoes a like of the post four rounds before.
fn events() -> impl Iterator<Item = (String, String, &'static str)> {
    (0..EVENTS).map(|nth| {
        let said = nth.checked_sub(POSTS * 4).filter(|_| nth % 7 == 4);
        let (who, action) = said.map_or((nth, "like"), |who| (who, "unlike"));
        (format!("post-{}", nth % POSTS), format!("user-{who}"), action)
    })
}

/// The resulting likes by post. No like is undone twice.
fn likes() -> BTreeMap<String, i64> {
    let mut likes = BTreeMap::new();
    for (post, _, action) in events() {
        *likes.entry(post).or_default() += if action == "like" { 1 } else { -1 };
    }
    likes
}

/// The figures of a pipeline that only has likes. All events are in the log when the consumer starts, so a like followed by
/// its unlike is one write if both wait; that unlike finds no row, and costs a refused update and an insert. Each process
/// reads the format and the tables' ids, the topic is named once, each partition is claimed, and the claims are stored
/// once a second.
#[tokio::test(start_paused = true)]
async fn a_deployment_that_only_counts_likes_pays_nothing_for_other_counters() {
    let mut pipeline = Pipeline::new(PARTITIONS, 1, Config::default()).await;
    for (post, user, action) in events() {
        let value = format!(r#"{{"post_id":"{post}","user_id":"{user}","action":"{action}","ts":1700000000000}}"#);
        let partition = Some(partition_of(post.as_bytes(), PARTITIONS));
        let (key, value) = (Some(post.as_bytes()), Some(value.as_bytes()));
        let record = Outgoing { topic: TOPIC, partition, key, value, headers: &[] };
        pipeline.broker.append(record, UnixMillis(1_700_000_000_000)).unwrap();
    }
    pipeline.start([1, 1], Vec::new());
    for (post, expected) in likes() {
        let id = CounterId::likes(PostId::new(&post).unwrap());
        let counted = async || pipeline.counter(&id).await.unwrap().likes == expected;
        while !counted().await {
            pipeline.clock.sleep(Duration::from_millis(10)).await;
        }
    }
    let [consumer, streamer] = pipeline.meters.each_ref().map(tally_e2e::meter::Meter::counted);
    let calls = [
        ("BatchExecuteStatement", 240),
        ("DescribeTable", 12),
        ("GetItem", 13),
        ("PutItem", 4),
        ("Scan", 1),
        ("UpdateItem", 9),
    ];
    assert_eq!(consumer.calls, calls.map(|(operation, calls)| (operation.to_owned(), calls)).into());
    assert_eq!(consumer.rows, [4_514, 823, 0], "members put and removed, and no cell");
    assert_eq!((consumer.units("likes"), consumer.units("checkpoints")), (6_000.0, 11.0));
    let writes = ["BatchExecuteStatement", "TransactWriteItems", "UpdateItem", "PutItem"];
    assert_eq!(writes.map(|operation| streamer.calls(operation)), [3, 0, 5, 9], "60 counters and a statement");
    assert_eq!(["BatchGetItem", "GetItem", "Scan", "Query"].map(|operation| streamer.calls(operation)), [1, 17, 4, 0]);
    assert_eq!((streamer.units("like_counts"), streamer.units("checkpoints")), (61.0, 13.0), "the reserved row, too");
    let stats = pipeline.emulator.stats();
    let stored =
        ["likes", "like_counts", "checkpoints"].map(|table| (stats.tables[table].items, stats.tables[table].bytes));
    assert_eq!(stored, [(5_177, 316_111), (61, 16_123), (13, 1_488)], "items and bytes");
    pipeline.stop().await;
}

/// One post is very popular and the others follow Zipf, stream shards split, and the store throttles and is slow.
#[test]
fn under_load_every_like_becomes_one_row_and_is_counted_once() {
    let flags = "scale --rate 2000 --seconds 6 --every 3 --posts 300 --partitions 4 --changes 4 --consumers 2 --streamers 2 \
                 --stream-shards 4 --split-after 1500 --key-write-units 4";
    let ran = Command::new(env!("CARGO_BIN_EXE_tally-e2e")).args(flags.split_whitespace()).output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{printed}{}", String::from_utf8_lossy(&ran.stderr));
    let line = |what| printed.lines().find(|line| line.starts_with(what)).unwrap();
    assert!(line("likes").contains(" 12000, all counted") && line("differences").contains(" 0 counts, 0 rows"));
    assert!(!line("consumers").contains(", 0 statements") && !line("lag").contains(" 0 likes"), "{printed}");
    assert!(!line("staleness").contains("p99 0ns"), "{printed}");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_views_per_second_of_one_post_share_rows_by_at_least_a_hundred() {
    let mut pipeline = Pipeline::new(PARTITIONS, 1, Config::default()).await;
    let views = Definitions::new(&[Entry::sum("views", "view", None)]).unwrap();
    pipeline.tables.checkpoints.config(None).await.unwrap();
    assert!(pipeline.tables.checkpoints.define(&Definitions::likes_alone(), &views).await.unwrap());
    let late = Fault::Latency { min_ms: 8, max_ms: 25 };
    pipeline.start([1, 1], vec![Rule::new(late).on("BatchExecuteStatement")]);
    let value = Some(&br#"{"post_id":"viral","action":"view"}"#[..]);
    let view = Outgoing { topic: TOPIC, partition: Some(0), key: None, value, headers: &[] };
    // The consumer has its partitions after a second.
    let mut before = 0;
    for second in 0..5 {
        for _ in 0..100 {
            (0..100).for_each(|_| _ = pipeline.broker.append(view, pipeline.clock.now()).unwrap());
            pipeline.clock.sleep(Duration::from_millis(10)).await;
        }
        let [_, _, all] = pipeline.meters[0].counted().rows;
        let cells = all - before;
        assert!(second == 0 || (1..=100).contains(&cells), "{cells} cells were written for 10,000 views");
        before = all;
    }
    pipeline.stop().await;
}
