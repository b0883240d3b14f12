//! The tables' items as they are, by the wire protocol alone: no code of ours reads or writes them here.

use bytes::Bytes;
use serde_json::{Value, json};
use tally_emulator::Emulator;

/// The tables of a deployment without a prefix.
const TABLES: [&str; 4] = ["likes", "like_counts", "checkpoints", "recounts"];

/// Every item, as one line of JSON each, sorted. The ids of tables are others each time and left out.
pub(crate) async fn lines(emulator: &Emulator) -> Vec<String> {
    let mut lines = Vec::new();
    for table in TABLES {
        let found = call(emulator, "Scan", json!({"TableName": table, "ConsistentRead": true})).await;
        assert!(found.get("LastEvaluatedKey").is_none(), "a page holds {table}");
        for mut item in found["Items"].as_array().unwrap().iter().cloned() {
            item.as_object_mut().unwrap().remove("tables");
            lines.push(format!("{table} {}", sorted(item)));
        }
    }
    lines.sort();
    lines
}

/// Puts every item of `lines`.
pub(crate) async fn put(emulator: &Emulator, lines: &[&str]) {
    for line in lines {
        let (table, item) = line.split_once(' ').unwrap();
        let item: Value = serde_json::from_str(item).unwrap();
        call(emulator, "PutItem", json!({"TableName": table, "Item": item})).await;
    }
}

async fn call(emulator: &Emulator, operation: &str, body: Value) -> Value {
    let request = http::Request::post("http://in-process.invalid/")
        .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
        .header("authorization", "observer")
        .body(Bytes::from(body.to_string()))
        .unwrap();
    let response = emulator.handle(request).await.ok().unwrap();
    let (status, body) = (response.status(), response.into_body());
    assert!(status.is_success(), "{operation}: {body:?}");
    serde_json::from_slice(&body).unwrap()
}

/// A set has no order; everything else stays as it is, and keys of objects come out sorted.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| match value {
                Value::Array(mut members) if name == "SS" => {
                    members.sort_by_key(Value::to_string);
                    (name, Value::Array(members))
                }
                value => (name, sorted(value)),
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other,
    }
}
