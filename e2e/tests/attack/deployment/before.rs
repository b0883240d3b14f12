//! What the last version before several counters had stored in its tables, its stream and its cache when it was stopped, and
//! how that is put back: `before/README.md` says how it was made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tally_core::fence::{Offset, TopicId};
use tally_core::ids::{CachePrefix, CounterKind, ShardCount};
use tally_core::ports::Cache as _;
use tally_core::served::Served;
use tally_core::time::UnixMillis;

use super::raw;
use super::stack::{Stack, TOPIC, counter};

const DUMP: &str = include_str!("before/dump.txt");

/// Lines of the dump that begin with `kind`, without it.
fn lines(kind: &str) -> impl Iterator<Item = &'static str> {
    DUMP.lines().filter_map(move |line| line.strip_prefix(kind)?.strip_prefix(' '))
}

fn parsed(kind: &str) -> impl Iterator<Item = Value> {
    lines(kind).map(|line| serde_json::from_str(line).unwrap())
}

/// The tables' items, as lines.
pub(crate) fn items() -> Vec<String> {
    let tables = ["likes", "like_counts", "checkpoints", "recounts"];
    let mut items: Vec<_> =
        tables.iter().flat_map(|table| lines(table).map(move |item| format!("{table} {item}"))).collect();
    items.sort();
    items
}

/// Every user that likes a post, by post.
pub(crate) fn likes() -> BTreeMap<String, BTreeSet<String>> {
    let mut likes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in parsed("likes").filter(|row| row["post_id"].is_object()) {
        let text = |name: &str| row[name]["S"].as_str().unwrap().to_owned();
        likes.entry(text("post_id")).or_default().insert(text("user_id"));
    }
    likes
}

/// When the table of rows was made: the label of its stream.
fn label() -> UnixMillis {
    let label = parsed("label").next().unwrap();
    let (date, time) = label.as_str().unwrap().split_once('T').unwrap();
    let numbers = |text: &str| text.split(['-', ':', '.']).map(|n| n.parse::<u64>().unwrap()).collect::<Vec<_>>();
    let (date, time) = (numbers(date), numbers(time));
    let (year, month, day) = (date[0], date[1], date[2]);
    // Days since 1970 by the civil calendar, the year beginning in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468;
    UnixMillis((((days * 24 + time[0]) * 60 + time[1]) * 60 + time[2]) * 1_000 + time[3])
}

/// The deployment as it was left, a minute later; nothing runs.
pub(crate) async fn stopped() -> Stack {
    let stack = Stack::at(label(), ShardCount::new(4).unwrap(), 2).await;
    for change in parsed("change") {
        if change == json!("trim") {
            stack.emulator.trim("likes", None, None).unwrap();
            continue;
        }
        let (key, new) = (&change["key"], &change["new"]);
        if new.is_null() {
            raw::call(&stack.emulator, "DeleteItem", json!({"TableName": "likes", "Key": key})).await;
        } else {
            raw::call(&stack.emulator, "PutItem", json!({"TableName": "likes", "Item": new})).await;
        }
    }
    let others: Vec<_> = items().into_iter().filter(|item| !item.starts_with("likes ")).collect();
    raw::put(&stack.emulator, &others.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(raw::lines(&stack.emulator).await, items(), "the rows are what their changes came to");

    let fence =
        |item: &Value| Some((item["id"]["S"].as_str()?.strip_prefix("kafka/likes/")?.parse().ok()?, item.clone()));
    let fences: BTreeMap<usize, Value> = parsed("checkpoints").filter_map(|item| fence(&item)).collect();
    let ends: Vec<_> =
        fences.values().map(|fence| Offset(fence["offset"]["N"].as_str().unwrap().parse().unwrap())).collect();
    let id = fences[&0]["topic_id"]["S"].as_str().unwrap();
    stack.broker.restore_topic(TOPIC, TopicId(id.into()), &ends);
    stack.broker.create_topic("likes.dlq", 1);
    for (key, value) in lines("cached").map(|line| line.rsplit_once(' ').unwrap()) {
        let served: Served = value.parse().unwrap();
        let counted = likes().into_keys().map(|post| counter(&post, "likes", CounterKind::Set));
        let prefix = CachePrefix::of_tables("");
        let mut counted = counted;
        let counted = counted.find(|counter| prefix.key(counter) == key).unwrap();
        let token = stack.cache.begin_fill(&counted).await.unwrap().expect("it is empty");
        assert_eq!(stack.cache.fill(&counted, &token, &served).await, Ok(true));
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    stack
}
