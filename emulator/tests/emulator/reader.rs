//! A helper of the emulator's tests that reads a whole stream like a careful consumer: parents before children, every
//! page, each shard to its end.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tally_emulator::Emulator;

use crate::raw::call;

/// The ARN of a table's stream.
pub(crate) async fn stream_arn(emulator: &Emulator, table: &str) -> String {
    let described = call(emulator, "DescribeTable", json!({"TableName": table})).await.unwrap();
    described["Table"]["LatestStreamArn"].as_str().unwrap().to_owned()
}

/// All shards of a stream, over all pages.
pub(crate) async fn shards(emulator: &Emulator, arn: &str, page: usize) -> Vec<Value> {
    let mut shards = Vec::new();
    let mut request = json!({"StreamArn": arn, "Limit": page});
    loop {
        let answer = call(emulator, "DescribeStream", request.clone()).await.unwrap();
        let described = &answer["StreamDescription"];
        shards.extend(described["Shards"].as_array().unwrap().iter().cloned());
        match &described["LastEvaluatedShardId"] {
            Value::Null => return shards,
            last => request["ExclusiveStartShardId"] = last.clone(),
        }
    }
}

/// All records of one shard. An open one is read until a page is empty.
pub(crate) async fn records(emulator: &Emulator, arn: &str, shard: &Value, page: usize) -> Vec<Value> {
    let request = json!({"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"});
    let mut iterator = call(emulator, "GetShardIterator", request).await.unwrap()["ShardIterator"].clone();
    let open = shard["SequenceNumberRange"]["EndingSequenceNumber"].is_null();
    let mut all = Vec::new();
    while !iterator.is_null() {
        let answer = call(emulator, "GetRecords", json!({"ShardIterator": iterator, "Limit": page})).await.unwrap();
        let records = answer["Records"].as_array().unwrap();
        all.extend(records.iter().cloned());
        iterator = answer["NextShardIterator"].clone();
        assert!(!open || !iterator.is_null(), "an open shard has no end");
        if open && records.is_empty() {
            break;
        }
    }
    all
}

/// Every record of a stream by shard, parents before their children.
pub(crate) async fn everything(emulator: &Emulator, arn: &str, page: usize) -> Vec<(String, Vec<Value>)> {
    let mut waiting: BTreeMap<String, Value> = shards(emulator, arn, page.min(100))
        .await
        .into_iter()
        .map(|shard| (shard["ShardId"].as_str().unwrap().to_owned(), shard))
        .collect();
    let mut read = Vec::new();
    while !waiting.is_empty() {
        let (id, shard) = waiting
            .iter()
            .find(|(_, shard)| shard["ParentShardId"].as_str().is_none_or(|parent| !waiting.contains_key(parent)))
            .map(|(id, shard)| (id.clone(), shard.clone()))
            .expect("parents form no circle");
        waiting.remove(&id);
        read.push((id, records(emulator, arn, &shard, page).await));
    }
    read
}
