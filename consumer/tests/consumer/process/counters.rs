//! Sums through kills, lost replies and ghosts: every record counts once.

use std::io::Write as _;
use std::process::Stdio;

use tally_core::fence::{Fence, Offset, Terms};
use tally_core::ports::{FencedRows as _, Rows as _, Segment};

use super::faults;
use super::stage::{Stage, eventually, sized};

const DEFINED: &str = r#"
[[counters]]
name = "retweets"
kind = "set"
add = "retweet"
remove = "unretweet"

[[counters]]
name = "views"
kind = "sum"
add = "view"
remove = "unview"
"#;

/// Runs `counters apply -` with `text` as its input; what it said.
async fn apply(stage: &Stage, text: &str) -> (Option<i32>, String) {
    let mut command = stage.command(&["counters", "apply", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    (
        output.status.code(),
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
    )
}

/// What all cells and all retweets weigh.
async fn weighed(stage: &Stage) -> (i64, i64) {
    let (mut views, mut retweets, mut after) = (0, 0, None);
    loop {
        let page = stage.rows.scan(Segment { index: 0, of: 1 }, after.as_ref()).await.unwrap();
        for row in &page.items {
            let weight = row.weight().unwrap().get();
            match row.pk.rsplit('#').next().unwrap().split_once('.') {
                Some(("+views", _)) => views += weight,
                Some(("retweets", _)) => retweets += weight,
                _ => {}
            }
        }
        after = page.next;
        if after.is_none() {
            return (views, retweets);
        }
    }
}

/// Says `count` views and unviews of a few posts in `partition`; what they come to.
async fn say(stage: &mut Stage, partition: u32, count: i64) -> i64 {
    let mut total = 0;
    for n in 0..count {
        let (amount, up) = (1 + n * 7 % 50, n % 4 != 1);
        let action = if up { "view" } else { "unview" };
        let value = format!(r#"{{"post_id":"p-{}","action":"{action}","n":{amount}}}"#, n % 3);
        stage.put(partition, "p", value.as_bytes(), None).await;
        total += if up { amount } else { -amount };
    }
    total
}

/// Runs `fence reset --back` of partition 3.
async fn move_back(stage: &Stage, to: &str) {
    let moved = stage.run(&["fence", "reset", "--partition", "3", "--to", to, "--back"]).await;
    assert!(moved.status.success(), "{moved:?}");
}

async fn offset(stage: &Stage) -> u64 {
    stage.likes.fence(&Stage::partition(3)).await.unwrap().map_or(0, |fence| fence.offset.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn every_record_of_a_sum_counts_once_when_its_fence_is_moved_back_and_an_edited_one_changes_no_count() {
    let mut stage = Stage::set().await;
    let first = stage.consumer(&[]);
    first.says("reading from the fence").await;
    assert_eq!(apply(&stage, DEFINED).await.0, Some(0));
    let mut expected = say(&mut stage, 3, 150).await + say(&mut stage, 4, 20).await;
    stage.caught_up().await;
    first.stop().await;
    assert_eq!(weighed(&stage).await, (expected, 0));

    let refused = stage.run(&["fence", "reset", "--partition", "3", "--to", "41"]).await;
    assert!(!refused.status.success(), "only --back lowers a fence: {refused:?}");
    move_back(&stage, "41").await;
    assert_eq!(offset(&stage).await, 41);
    expected += say(&mut stage, 3, 50).await;
    stage.emulator.set_faults(faults());
    let mut second = stage.consumer(&[]);
    eventually("the fence is on its way", async || offset(&stage).await > 41).await;
    second.signal("KILL");
    assert_eq!(second.exit().await, None);
    // Again, and further, while what was killed may be under way.
    move_back(&stage, "start").await;
    let third = stage.consumer(&[]);
    stage.caught_up().await;
    eventually("every ghost has landed", async || stage.emulator.stats().ghosts_pending == 0).await;
    assert_eq!(weighed(&stage).await, (expected, 0));
    third.stop().await;
    stage.emulator.set_faults(vec![]);

    let (partition, seen) = (Stage::partition(3), stage.likes.fence(&Stage::partition(3)).await.unwrap().unwrap());
    let edited = Fence { offset: Offset(30), terms: Terms { redo: None, ..seen.terms }, ..seen.clone() };
    assert!(stage.likes.replace_fences(&partition, &seen.clone().into(), &edited.clone().into()).await.unwrap());
    expected += say(&mut stage, 4, 7).await;
    let consumer = stage.consumer(&[]);
    consumer.says("standing still").await;
    eventually("the others go on", async || stage.behind().await == stage.ends[&3] - 30).await;
    assert!(consumer.get("/metrics").contains(r#"tally_consumer_alarms_total{alarm="cell_ahead"} 1"#));
    assert_eq!(weighed(&stage).await, (expected, 0), "no count has changed");
    expected += say(&mut stage, 3, 9).await;
    move_back(&stage, "30").await;
    stage.caught_up().await;
    assert_eq!(weighed(&stage).await, (expected, 0), "and from there on every event counts once");
    consumer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn every_record_of_a_sum_counts_once_whatever_is_killed_and_lost() {
    let mut stage = Stage::set().await;
    let first = stage.consumer(&[]);
    first.says("reading from the fence").await;
    let (code, said) = apply(&stage, DEFINED).await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("defined retweets\ndefined views\n"), "{said}");
    let (code, said) = apply(&stage, &DEFINED.replace("sum", "set")).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("views") && said.contains("no part of it may change"), "{said}");

    stage.emulator.set_faults(faults());
    let (mut expected, mut running) = (0, Some(first));
    for round in 0..=sized("TALLY_TEST_KILLS", 2) {
        let mut consumer = running.take().unwrap_or_else(|| stage.consumer(&[]));
        for n in 0..240 {
            let (post, amount) = (n % 7, 1 + (n * 31 + round) % 100);
            let (action, sign) = if n % 11 == 3 { ("unview", -1) } else { ("view", 1) };
            let value = format!(r#"{{"post_id":"p-{post}","action":"{action}","n":{amount}}}"#);
            stage.put(u32::try_from(n % 12).unwrap(), "p", value.as_bytes(), None).await;
            expected += sign * i64::try_from(amount).unwrap();
        }
        let left = stage.behind().await.saturating_sub(80 * (round + 1));
        eventually("as much is written", async || stage.behind().await <= left).await;
        consumer.signal("KILL");
        assert_eq!(consumer.exit().await, None);
    }
    for user in ["a", "b", "a"] {
        let value = format!(r#"{{"post_id":"p-1","user_id":"{user}","action":"retweet"}}"#);
        stage.put(3, "p-1", value.as_bytes(), None).await;
    }
    let last = stage.consumer(&[]);
    stage.caught_up().await;
    eventually("every ghost has landed", async || stage.emulator.stats().ghosts_pending == 0).await;
    assert_eq!(weighed(&stage).await, (expected, 2));
    assert_eq!(stage.rows().await.len(), 2, "and the retweets are its only members");
    last.stop().await;
}
