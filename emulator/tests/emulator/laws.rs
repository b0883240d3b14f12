//! Tests laws of the emulator over random histories of writes, splits, rolls and time: a stream has every change once
//! and those of an item in order, and scans and queries cover a table.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tally_emulator::{Config, Emulator};

use crate::raw::{call, items, pages, put, table};
use crate::reader;

/// Creates a table with a sort key that is a number.
pub(crate) async fn create(emulator: &Emulator) {
    call(emulator, "CreateTable", table("rows", &[("p", "S"), ("s", "N")])).await.unwrap();
}

fn key(rng: &mut StdRng) -> Value {
    json!({"p": {"S": format!("p{}", rng.random_range(0..5))}, "s": {"N": rng.random_range(0..4).to_string()}})
}

fn item(rng: &mut StdRng) -> Value {
    let mut item = key(rng);
    item["v"] = json!({"N": rng.random_range(0..3).to_string()});
    item
}

/// Makes one random change, or several in a transaction.
async fn write(emulator: &Emulator, rng: &mut StdRng) {
    let (operation, request) = match rng.random_range(0..4) {
        0 => ("DeleteItem", json!({"TableName": "rows", "Key": key(rng)})),
        1 => ("PutItem", json!({"TableName": "rows", "Item": item(rng)})),
        2 => (
            "UpdateItem",
            json!({
                "TableName": "rows", "Key": key(rng), "UpdateExpression": "SET v = :v",
                "ExpressionAttributeValues": {":v": {"N": rng.random_range(0..3).to_string()}},
            }),
        ),
        _ => {
            let mut keys = BTreeSet::new();
            let actions: Vec<Value> = (0..4)
                .map(|_| item(rng))
                .filter(|item| keys.insert((item["p"].to_string(), item["s"].to_string())))
                .map(|item| json!({"Put": {"TableName": "rows", "Item": item}}))
                .collect();
            ("TransactWriteItems", json!({"TransactItems": actions}))
        }
    };
    call(emulator, operation, request).await.unwrap();
}

fn key_of(item: &Value) -> (String, String) {
    (item["p"]["S"].as_str().unwrap().to_owned(), item["s"]["N"].as_str().unwrap().to_owned())
}

async fn history(emulator: &Emulator, rng: &mut StdRng, writes: usize) {
    for _ in 0..writes {
        write(emulator, rng).await;
        match rng.random_range(0..40) {
            0 => drop(emulator.roll_shards("rows", None).unwrap()),
            1 | 2 => drop(emulator.split_shard("rows", None, None)),
            3 => tokio::time::advance(Duration::from_millis(rng.random_range(0..2000))).await,
            4 => drop(emulator.advance_clock(Duration::from_secs(rng.random_range(0..7200)))),
            _ => {}
        }
    }
}

/// Compares a whole stream with the table: each change appears once, each item's changes are in order, and the last is the
/// table's.
async fn check_stream(emulator: &Emulator, page: usize) -> usize {
    let arn = reader::stream_arn(emulator, "rows").await;
    let mut rows: BTreeMap<(String, String), Value> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    let mut count = 0;
    for (_, records) in reader::everything(emulator, &arn, page).await {
        let mut last = 0u128;
        for record in records {
            let change = &record["dynamodb"];
            let sequence: u128 = change["SequenceNumber"].as_str().unwrap().parse().unwrap();
            assert!(sequence > last, "sequences rise within a shard");
            last = sequence;
            assert!(ids.insert(record["eventID"].to_string()), "a change appears once");
            let (old, new) = (&change["OldImage"], &change["NewImage"]);
            let key = key_of(&change["Keys"]);
            assert_eq!(rows.get(&key).unwrap_or(&Value::Null), old, "an item's changes come in order");
            assert_ne!(old, new, "a write that changes nothing writes no record");
            let name = match (old.is_null(), new.is_null()) {
                (true, _) => "INSERT",
                (_, true) => "REMOVE",
                _ => "MODIFY",
            };
            assert_eq!(record["eventName"], name);
            rows.insert(key, new.clone());
            count += 1;
        }
    }
    rows.retain(|_, item| !item.is_null());
    let table: BTreeMap<_, _> = items(emulator, "rows").await.into_iter().map(|item| (key_of(&item), item)).collect();
    assert_eq!(rows, table, "the changes add up to the table");
    count
}

#[tokio::test(start_paused = true)]
async fn a_stream_read_parents_first_has_every_change_once_and_adds_up_to_the_table() {
    let mut records = 0;
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let config = Config {
            seed,
            shards: rng.random_range(1..5),
            split_after: rng.random_bool(0.3).then_some(25),
            max_open_shards: 12,
            stream_delay: Duration::from_millis(rng.random_range(0..500)),
            stream_reorder: Duration::from_millis(rng.random_range(0..500)),
            ..Config::default()
        };
        let emulator = Emulator::new(config);
        create(&emulator).await;
        history(&emulator, &mut rng, 200).await;
        tokio::time::advance(Duration::from_secs(1)).await;
        records += check_stream(&emulator, rng.random_range(1..1000)).await;
    }
    assert!(records > 3000, "the histories must change something: {records}");
}

#[tokio::test(start_paused = true)]
async fn reordering_swaps_items_but_never_the_changes_of_one_item() {
    let mut swapped = 0;
    for seed in 0..20 {
        let second = Duration::from_secs(1);
        let config = Config { seed, shards: 1, stream_delay: second, stream_reorder: second, ..Config::default() };
        let emulator = Emulator::new(config);
        create(&emulator).await;
        for n in 0..50 {
            let item = json!({"p": {"S": "p"}, "s": {"N": (n % 7).to_string()}, "n": {"N": n.to_string()}});
            put(&emulator, item).await.unwrap();
        }
        tokio::time::advance(2 * second).await;
        check_stream(&emulator, 1000).await;
        let arn = reader::stream_arn(&emulator, "rows").await;
        let read = reader::everything(&emulator, &arn, 1000).await;
        let order: Vec<u64> = read
            .iter()
            .flat_map(|(_, records)| records)
            .map(|record| record["dynamodb"]["NewImage"]["n"]["N"].as_str().unwrap().parse().unwrap())
            .collect();
        swapped += order.windows(2).filter(|pair| pair[0] > pair[1]).count();
    }
    assert!(swapped > 100, "only {swapped} pairs were swapped");
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_in_one_open_shard() {
    let emulator = Emulator::new(Config { shards: 1, ..Config::default() });
    create(&emulator).await;
    for round in 0..6 {
        drop(emulator.split_shard("rows", None, None));
        for n in 0..20 {
            let item = json!({"p": {"S": "hot"}, "s": {"N": n.to_string()}, "v": {"N": round.to_string()}});
            put(&emulator, item).await.unwrap();
        }
    }
    let arn = reader::stream_arn(&emulator, "rows").await;
    let read = reader::everything(&emulator, &arn, 1000).await;
    let ends = |records: &Vec<Value>| records.iter().any(|record| record["dynamodb"]["NewImage"]["v"]["N"] == "5");
    assert_eq!(read.iter().filter(|(_, records)| ends(records)).count(), 1);
    check_stream(&emulator, 1000).await;
}

#[tokio::test(start_paused = true)]
async fn segments_partition_a_table_and_pages_cover_it_once() {
    let emulator = Emulator::new(Config::default());
    create(&emulator).await;
    let mut rng = StdRng::seed_from_u64(5);
    history(&emulator, &mut rng, 300).await;
    let whole = items(&emulator, "rows").await;
    assert!(whole.len() > 5);
    for total in [1, 2, 3, 7, 64] {
        let mut parts = Vec::new();
        for segment in 0..total {
            let request =
                json!({"TableName": "rows", "Segment": segment, "TotalSegments": total, "Limit": 1 + segment % 3});
            parts.extend(pages(&emulator, "Scan", request).await);
        }
        assert_eq!(parts, whole, "{total} segments");
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_reads_a_collection_in_numeric_order_in_both_directions() {
    let emulator = Emulator::new(Config::default());
    create(&emulator).await;
    let numbers = ["-100", "-2.5", "-1", "0", "0.5", "2", "10", "11", "100"];
    for number in numbers {
        let item = json!({"p": {"S": "p"}, "s": {"N": number}});
        put(&emulator, item).await.unwrap();
    }
    for (forward, limit) in [(true, 2), (false, 4)] {
        let request = json!({
            "TableName": "rows", "KeyConditionExpression": "p = :p AND s >= :s", "ScanIndexForward": forward, "Limit": limit,
            "ExpressionAttributeValues": {":p": {"S": "p"}, ":s": {"N": "-2.5"}},
        });
        let read = pages(&emulator, "Query", request).await;
        let read: Vec<_> = read.iter().map(|item| item["s"]["N"].as_str().unwrap()).collect();
        let mut expected = numbers[1..].to_vec();
        if !forward {
            expected.reverse();
        }
        assert_eq!(read, expected);
    }
}
