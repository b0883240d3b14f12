//! Tests `tally verify`, which compares every count with its rows: which counts it calls wrong, and how certain it is;
//! and `tally verify --erased`, which finds erased ids that are in rows again.

use std::cell::Cell;
use std::time::Duration;

use serde_json::json;
use tally_core::changes::Standing;
use tally_emulator::Config;

use crate::changes::File;
use crate::stage::{Said, Stage, shown};

/// When the tombstones expire, in seconds since 1970.
const GONE: i64 = 4_000_000_000;

async fn verified(stage: &Stage) -> Said {
    stage.tally("verify --looks 2 --pause 10ms -o json").await
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_that_are_what_their_rows_weigh_are_found_right_and_each_other_one_is_named() {
    let stage = Stage::set().await;
    let right = [("right#1", "a"), ("right#1", "b"), ("right#2", "c")];
    for (key, user) in right.into_iter().chain(["more#0", "less#3", "none#1", "part#0"].map(|key| (key, "a"))) {
        stage.row(key, user).await;
    }
    stage.count("right", 3, &[("s1", 2), ("s2", 1), ("s3", 0)]).await;
    stage.count("more", 2, &[("s0", 2)]).await;
    stage.count("less", 0, &[("s3", 0)]).await;
    stage.count("gone", 4, &[("s2", 4)]).await;
    stage.count("total", 5, &[("s2", 0)]).await;
    // Its total is right, but the sum of its shards is not.
    stage.count("part", 1, &[("s0", 9)]).await;
    // Tombstones, also of posts that have no counter: they do not count as rows.
    for (key, user) in [("right#1", "z"), ("gone#2", "a"), ("unliked#0", "a")] {
        stage.store().put("likes", &json!({"pk": key, "user_id": user, "v": 7, "gone": GONE})).await;
    }
    let before = stage.everything().await;
    let said = verified(&stage).await;
    shown(&said, 1, []);
    let found = said.json();
    let differences = found["differences"].as_array().unwrap();
    assert_eq!((&found["rows"], &found["counters"], &found["wrong"]), (&json!(7), &json!(6), &json!(6)));
    assert_eq!((differences.len(), stage.everything().await), (6, before), "it writes nothing");
    for (post, shard, rows, count) in [
        ("gone", json!(2), 0, 4),
        ("less", json!(3), 1, 0),
        ("more", json!(0), 1, 2),
        ("none", json!(1), 1, 0),
        ("part", json!(0), 1, 9),
        ("total", json!(null), 0, 5),
    ] {
        let found = differences.iter().find(|found| found["post"] == post).unwrap();
        assert_eq!((&found["shard"], &found["rows"], &found["count"]), (&shard, &json!(rows), &json!(count)), "{post}");
        // From here on it is right.
        stage.count(post, rows, &[(&format!("s{}", shard.as_u64().unwrap_or(2)), rows)]).await;
    }
    let said = verified(&stage).await;
    let right = said.json();
    assert_eq!((said.code, &right["wrong"], &right["claim"]), (Some(0), &json!(0), &json!("rows_moved")));
}

/// Pauses consumers, of which none has run.
async fn pause(stage: &Stage) {
    stage.does("pause consumer --settle 0s", 0, []).await;
}

/// Stores that every change up to an hour from now is counted.
async fn count_all(stage: &Stage) {
    let later = stage.clock.now().plus(Duration::from_secs(3_600));
    for partition in 0..2 {
        stage.stand(partition, 9, Standing { as_of: Some(later), ..Standing::default() }).await;
    }
}

/// Runs `tally verify`, and `meanwhile` once it has sent so many requests of this operation.
async fn verified_while(
    stage: &Stage,
    line: &str,
    (requests, operation): (u64, &str),
    meanwhile: impl Future<Output = ()>,
) -> Said {
    let (until, has_ended) = (stage.store().requests(operation) + requests, Cell::new(false));
    let meanwhile = async {
        tally_testkit::eventually("it has read", async || stage.store().requests(operation) >= until).await;
        meanwhile.await;
        assert!(!has_ended.get(), "the command ended before that");
    };
    let verify = async {
        let said = stage.tally(line).await;
        has_ended.set(true);
        said
    };
    tokio::join!(verify, meanwhile).0
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_certain_while_consumers_are_paused_and_all_changes_are_counted() {
    let stage = Stage::unfollowed(Config { shards: 2, ..Config::default() }).await;
    let streamer = stage.streamer();
    stage.row("p#1", "a").await;
    stage.counted(&"p".parse().unwrap(), 1).await;
    pause(&stage).await;
    stage.shows("verify --looks 120 --pause 500ms", 0, ["\ncertain: no row was written meanwhile"]).await;
    // A change that is not counted.
    streamer.stop(Duration::from_secs(10)).await;
    stage.row("p#1", "b").await;
    let said = verified(&stage).await;
    assert_eq!((said.code, &said.json()["claim"]), (Some(1), &json!("not_counted")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_partition_has_to_be_counted_up_to_now_by_the_stores_clock_once_a_pause_is_over() {
    let stage = Stage::set().await;
    let claim = async || verified(&stage).await.json()["claim"].clone();
    stage.know(|topic| topic.is_paused = true).await;
    assert_eq!(claim().await, json!("rows_moved"), "a pause is still waited for");
    // It is begun again.
    pause(&stage).await;
    assert_eq!(claim().await, json!("not_counted"));
    let later = stage.clock.now().plus(Duration::from_secs(3_600));
    stage.stand(1, 8, Standing { as_of: Some(later), ..Standing::default() }).await;
    assert_eq!(claim().await, json!("not_counted"), "that of partition 0 is of before");
    count_all(&stage).await;
    assert_eq!(claim().await, json!("certain"));
    stage.store().emulator.advance_clock(Duration::from_secs(7_200));
    assert_eq!(claim().await, json!("not_counted"), "this machine's clock is slow");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_are_counted_only_after_the_counts_were_read_make_no_answer_certain() {
    let stage = Stage::set().await;
    // Somebody has edited this count, and its one row is not counted yet. The other count keeps the command
    // busy after it has read this one.
    for post in ["p", "other"] {
        stage.row(&format!("{post}#1"), "a").await;
    }
    stage.count("p", 1, &[("s1", 1)]).await;
    pause(&stage).await;
    let said = verified_while(&stage, "verify -o json --looks 3 --pause 300ms", (2, "Scan"), async {
        stage.count("p", 2, &[("s1", 2)]).await;
        count_all(&stage).await;
    });
    let said = Box::pin(said).await;
    assert_eq!((said.code, &said.json()["claim"]), (Some(1), &json!("not_counted")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_certain_if_consumers_went_on_meanwhile_even_if_they_are_paused_again() {
    let stage = Stage::set().await;
    pause(&stage).await;
    // It waits for the counts.
    let said = verified_while(&stage, "verify -o json --looks 100 --pause 300ms", (2, "BatchGetItem"), async {
        stage.does("resume consumer", 0, []).await;
        pause(&stage).await;
        count_all(&stage).await;
    });
    let said = Box::pin(said).await;
    assert_eq!((said.code, &said.json()["claim"]), (Some(0), &json!("rows_moved")), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_were_erased_and_are_in_a_row_again_are_named() {
    let stage = Stage::set().await;
    for (key, user) in [("p#1", "a"), ("p#1", "b"), ("q#+retweets.2", "a"), ("q#1", "c")] {
        stage.row(key, user).await;
    }
    stage.store().put("likes", &json!({"pk": "q#1", "user_id": "d", "v": 7, "gone": GONE})).await;
    let look = async |ids: &str| {
        let file = File::of("erased.txt", ids);
        stage.tally(&format!("verify --erased {}", file.name())).await
    };
    let said = look("a\n\nq\tc\np\tc\nd\n").await;
    shown(&said, 1, ["3 rows of ids that were erased", "tombstones that still hold an id: 1, the last for "]);
    assert!(said.out.contains("q     likes     c") && !said.out.contains("p     likes     c"), "{said:?}");
    shown(&look("d\nstranger\nq\tb").await, 0, ["3 ids: no like or other row of theirs is left"]);
    shown(&look("a\n\u{1}\n").await, 2, ["line 2 of the ids"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_not_called_right() {
    let stage = Stage::set().await;
    stage.row("p#1", "a").await;
    stage.store().put("likes", &json!({"pk": "p#1", "user_id": "b", "n": "many"})).await;
    stage.count("p", 1, &[("s1", 1)]).await;
    stage.store().put("like_counts", &json!({"post_id": "q", "likes": "many"})).await;
    let said = verified(&stage).await;
    assert_eq!((said.code, &said.json()["wrong"]), (Some(1), &json!(2)), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_follows_its_rows_is_not_called_wrong() {
    let stage = Stage::set().await;
    stage.row("p#1", "a").await;
    let verified = std::sync::atomic::AtomicBool::new(false);
    // Most of the time the count is one row behind.
    let follow = async {
        for nth in 0.. {
            stage.count("p", nth + 1, &[("s1", nth + 1)]).await;
            stage.row("p#1", &format!("u-{nth}")).await;
            // Requests are answered at once in this process. The sleep lets the command go on meanwhile.
            tokio::time::sleep(Duration::from_millis(1)).await;
            if verified.load(std::sync::atomic::Ordering::Relaxed) {
                return;
            }
        }
    };
    let verify = async {
        let said = stage.tally("verify --looks 2 --pause 200ms -o json").await;
        verified.store(true, std::sync::atomic::Ordering::Relaxed);
        said
    };
    let ((), said) = tokio::join!(follow, verify);
    assert_eq!((said.code, &said.json()["wrong"]), (Some(0), &json!(0)), "{said:?}");
}
