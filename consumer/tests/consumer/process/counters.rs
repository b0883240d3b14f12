//! Tests that a sum counts every record once, despite kills, lost replies and late requests.

use serde_json::json;
use tally_adapters::dynamodb::Checkpoints;
use tally_core::definitions::{Definitions, Entry};
use tally_testkit::{eventually, sized};

use super::faults;
use super::stage::{READING, Stage};

/// Defines retweets, which are a set, and views, which are a sum.
async fn define(stage: &Stage) {
    let entries: Vec<Entry> = serde_json::from_value(json!([
        {"name": "retweets", "kind": "set", "add": "retweet", "remove": "unretweet"},
        {"name": "views", "kind": "sum", "add": "view", "remove": "unview"},
    ]))
    .unwrap();
    let deployment = Checkpoints::new(&stage.engines.store.connection);
    let seen = deployment.definitions().await.unwrap();
    let grown = seen.grown(&Definitions::new(&entries).unwrap()).unwrap();
    assert_eq!(deployment.define(&seen, &grown).await, Ok(true));
}

/// The total weight of all cells and of all retweets.
async fn weighed(stage: &Stage) -> (i64, i64) {
    let (mut views, mut retweets) = (0, 0);
    for row in stage.engines.store.items("likes").await {
        match row["pk"]["S"].as_str().unwrap().rsplit('#').next().unwrap().split_once('.') {
            Some(("+views", _)) => views += row["n"]["N"].as_str().unwrap().parse::<i64>().unwrap(),
            Some(("retweets", _)) => retweets += i64::from(row.get("gone").is_none()),
            _ => {}
        }
    }
    (views, retweets)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn each_event_of_a_sum_is_added_exactly_once_despite_kills_and_lost_answers() {
    let mut stage = Stage::set().await;
    let first = stage.consumer(&[]);
    first.says(READING).await;
    define(&stage).await;
    stage.emulator.set_faults(faults());
    let (mut expected, mut running) = (0, Some(first));
    for round in 0..=sized("TALLY_TEST_KILLS", 2) {
        let consumer = running.take().unwrap_or_else(|| stage.consumer(&[]));
        for n in 0..240 {
            let (post, amount) = (n % 7, 1 + (n * 31 + round) % 100);
            let (action, sign) = if n % 11 == 3 { ("unview", -1) } else { ("view", 1) };
            let value = format!(r#"{{"post_id":"p-{post}","action":"{action}","n":{amount}}}"#);
            stage.put(u32::try_from(n % 12).unwrap(), "p", value.as_bytes(), None).await;
            expected += sign * i64::try_from(amount).unwrap();
        }
        let left = stage.behind().await.saturating_sub(80 * (round + 1));
        eventually("as much is written", async || stage.behind().await <= left).await;
        consumer.kill().await.unwrap();
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
    last.stop().await.unwrap();
}
