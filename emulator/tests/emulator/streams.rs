//! Tests the emulator's streams as a consumer sees them: positions, the ends of shards, splits, rolls, trims, delays,
//! expired items, labels and pages.

use std::time::Duration;

use serde_json::{Value, json};
use tally_emulator::{Config, ControlError, Emulator};

use crate::raw::{call, items, kind, put as put_item, with_rows};
use crate::reader;

const HOUR: Duration = Duration::from_secs(3600);

/// An emulator with a table `rows` with the hash key `p`, and its stream.
async fn started(config: Config) -> (Emulator, String) {
    let emulator = with_rows(config, &[("p", "S")]).await;
    let arn = reader::stream_arn(&emulator, "rows").await;
    (emulator, arn)
}

fn one_shard() -> Config {
    Config { shards: 1, roll_after: None, ..Config::default() }
}

async fn put(emulator: &Emulator, key: &str, value: u32) {
    let item = json!({"p": {"S": key}, "v": {"N": value.to_string()}});
    put_item(emulator, item).await.unwrap();
}

async fn iterator(
    emulator: &Emulator,
    arn: &str,
    shard: &Value,
    kind: &str,
    sequence: Option<&Value>,
) -> Result<Value, Value> {
    let mut request = json!({"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": kind});
    if let Some(sequence) = sequence {
        request["SequenceNumber"] = sequence.clone();
    }
    Ok(call(emulator, "GetShardIterator", request).await?["ShardIterator"].clone())
}

async fn get(emulator: &Emulator, iterator: &Value) -> Result<Value, Value> {
    call(emulator, "GetRecords", json!({"ShardIterator": iterator})).await
}

fn values(answer: &Value) -> Vec<&str> {
    let records = answer["Records"].as_array().unwrap();
    records.iter().map(|record| record["dynamodb"]["NewImage"]["v"]["N"].as_str().unwrap()).collect()
}

fn sequence(answer: &Value, nth: usize) -> &Value {
    &answer["Records"][nth]["dynamodb"]["SequenceNumber"]
}

#[tokio::test(start_paused = true)]
async fn each_iterator_type_starts_at_its_position() {
    let (emulator, arn) = started(one_shard()).await;
    for value in 0..4 {
        put(&emulator, "a", value).await;
    }
    let shard = &reader::shards(&emulator, &arn, 100).await[0];
    let horizon = iterator(&emulator, &arn, shard, "TRIM_HORIZON", None).await.unwrap();
    let all = get(&emulator, &horizon).await.unwrap();
    assert_eq!(values(&all), ["0", "1", "2", "3"]);
    let third = sequence(&all, 2);
    assert!(third.as_str().unwrap().len() >= 21);
    let at = iterator(&emulator, &arn, shard, "AT_SEQUENCE_NUMBER", Some(third)).await.unwrap();
    assert_eq!(values(&get(&emulator, &at).await.unwrap()), ["2", "3"]);
    let after = iterator(&emulator, &arn, shard, "AFTER_SEQUENCE_NUMBER", Some(third)).await.unwrap();
    assert_eq!(values(&get(&emulator, &after).await.unwrap()), ["3"]);
    let latest = iterator(&emulator, &arn, shard, "LATEST", None).await.unwrap();
    put(&emulator, "a", 9).await;
    assert_eq!(values(&get(&emulator, &latest).await.unwrap()), ["9"]);
    let foreign = json!("999999999999999999999");
    let refused = iterator(&emulator, &arn, shard, "AT_SEQUENCE_NUMBER", Some(&foreign)).await.unwrap_err();
    assert_eq!(kind(&refused), "ValidationException");
    let refused = iterator(&emulator, &arn, shard, "LATEST", Some(third)).await.unwrap_err();
    assert_eq!(kind(&refused), "ValidationException");
}

#[tokio::test(start_paused = true)]
async fn a_trimmed_position_is_an_error_and_not_skipped() {
    let (emulator, arn) = started(one_shard()).await;
    put(&emulator, "a", 0).await;
    put(&emulator, "a", 1).await;
    let shard = &reader::shards(&emulator, &arn, 100).await[0];
    let horizon = iterator(&emulator, &arn, shard, "TRIM_HORIZON", None).await.unwrap();
    let all = get(&emulator, &horizon).await.unwrap();
    let first = sequence(&all, 0);
    assert_eq!(emulator.trim("rows", None, first.as_str()), Ok(1));
    assert_eq!(kind(&get(&emulator, &horizon).await.unwrap_err()), "TrimmedDataAccessException");
    let refused = iterator(&emulator, &arn, shard, "AFTER_SEQUENCE_NUMBER", Some(first)).await.unwrap_err();
    assert_eq!(kind(&refused), "TrimmedDataAccessException");
    let horizon = iterator(&emulator, &arn, shard, "TRIM_HORIZON", None).await.unwrap();
    assert_eq!(values(&get(&emulator, &horizon).await.unwrap()), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn records_and_closed_shards_are_gone_after_the_retention() {
    let (emulator, arn) = started(one_shard()).await;
    put(&emulator, "a", 0).await;
    emulator.roll_shards("rows", None).unwrap();
    tokio::time::advance(23 * HOUR).await;
    put(&emulator, "a", 1).await;
    assert_eq!(reader::shards(&emulator, &arn, 100).await.len(), 2);
    emulator.advance_clock(2 * HOUR);
    let shards = reader::shards(&emulator, &arn, 100).await;
    assert_eq!(shards.len(), 1);
    assert!(!shards[0]["ParentShardId"].is_null(), "a child names its parent also when that is gone");
    let records = reader::records(&emulator, &arn, &shards[0], 1000).await;
    assert_eq!(records.len(), 1);
    emulator.advance_clock(24 * HOUR);
    assert_eq!(reader::records(&emulator, &arn, &shards[0], 1000).await.len(), 0);
    assert_eq!(emulator.stats().tables["rows"].stream.as_ref().unwrap().records, 0);
}

#[tokio::test(start_paused = true)]
async fn shards_roll_with_age_and_an_open_one_has_no_end() {
    let (emulator, arn) = started(Config { shards: 2, ..Config::default() }).await;
    tokio::time::advance(5 * HOUR).await;
    let shards = reader::shards(&emulator, &arn, 1).await;
    let ended = |shard: &&Value| !shard["SequenceNumberRange"]["EndingSequenceNumber"].is_null();
    assert_eq!((shards.len(), shards.iter().filter(ended).count()), (4, 2));
    for child in shards.iter().filter(|shard| !shard["ParentShardId"].is_null()) {
        let parent = shards.iter().find(|shard| shard["ShardId"] == child["ParentShardId"]).unwrap();
        let end: u128 = parent["SequenceNumberRange"]["EndingSequenceNumber"].as_str().unwrap().parse().unwrap();
        let start: u128 = child["SequenceNumberRange"]["StartingSequenceNumber"].as_str().unwrap().parse().unwrap();
        assert!(start > end);
        let request = json!({"StreamArn": arn, "ShardFilter": {"Type": "CHILD_SHARDS", "ShardId": parent["ShardId"]}});
        let children = call(&emulator, "DescribeStream", request).await.unwrap()["StreamDescription"]["Shards"].clone();
        assert_eq!(children, json!([child]));
    }
}

#[tokio::test(start_paused = true)]
async fn many_records_split_a_shard_or_roll_it_if_it_is_too_narrow() {
    // One item's hash ends up in a shard with a single hash.
    for (items, split_after) in [(400, 50), (1, 3)] {
        let config = Config { split_after: Some(split_after), max_open_shards: 200, ..one_shard() };
        let (emulator, arn) = started(config).await;
        for value in 0..400 {
            put(&emulator, &format!("k{}", value % items), value).await;
        }
        let read = reader::everything(&emulator, &arn, 1000).await;
        assert_eq!(read.iter().map(|(_, records)| records.len()).sum::<usize>(), 400);
        assert!(read.iter().all(|(_, records)| records.len() as u64 <= split_after), "a shard that is full is closed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_split_is_made_at_the_requested_key_or_not_at_all() {
    let (emulator, _) = started(Config { shards: 4, ..one_shard() }).await;
    put(&emulator, "busy", 1).await;
    let open = emulator.stats().tables["rows"].stream.as_ref().unwrap().open_shards.clone();
    let key = |name: &str| serde_json::from_value(json!({"p": {"S": name}})).unwrap();
    let mut refused = 0;
    for shard in &open {
        match emulator.split_shard("rows", Some(shard), Some(&key("elsewhere"))) {
            Ok(children) => assert_eq!(children.len(), 2),
            Err(error) => {
                assert_eq!(error, ControlError::Uncuttable(shard.clone()));
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 3, "one of four shards holds the key");
    assert_eq!(emulator.split_shard("rows", None, Some(&key("another"))).unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_record_is_hidden_for_its_delay_and_never_lost() {
    let (emulator, arn) = started(Config { stream_delay: Duration::from_secs(2), ..one_shard() }).await;
    for value in 0..20 {
        put(&emulator, "a", value).await;
    }
    emulator.roll_shards("rows", None).unwrap();
    let shards = reader::shards(&emulator, &arn, 100).await;
    let closed = shards.iter().find(|shard| !shard["SequenceNumberRange"]["EndingSequenceNumber"].is_null()).unwrap();
    let mut next = iterator(&emulator, &arn, closed, "TRIM_HORIZON", None).await.unwrap();
    let (mut read, mut polls, mut hidden) = (0, 0, 0);
    while !next.is_null() {
        let answer = get(&emulator, &next).await.unwrap();
        read += values(&answer).len();
        hidden += usize::from(values(&answer).is_empty());
        next = answer["NextShardIterator"].clone();
        polls += 1;
        assert!(polls < 300, "a closed shard ends");
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert_eq!(read, 20);
    assert!(hidden > 0, "some page was empty while records were hidden");
}

#[tokio::test(start_paused = true)]
async fn a_stream_disabled_and_enabled_again_has_a_new_label_and_the_old_one_can_still_be_read() {
    let (emulator, old) = started(one_shard()).await;
    put(&emulator, "a", 0).await;
    let off = json!({"TableName": "rows", "StreamSpecification": {"StreamEnabled": false}});
    let answer = call(&emulator, "UpdateTable", off.clone()).await.unwrap();
    assert!(answer["TableDescription"]["LatestStreamArn"].is_null());
    assert_eq!(kind(&call(&emulator, "UpdateTable", off).await.unwrap_err()), "ValidationException");
    put(&emulator, "a", 1).await;
    assert_eq!(emulator.split_shard("rows", None, None), Err(ControlError::NoStream("rows".into())));
    let on =
        json!({"TableName": "rows", "StreamSpecification": {"StreamEnabled": true, "StreamViewType": "KEYS_ONLY"}});
    call(&emulator, "UpdateTable", on.clone()).await.unwrap();
    assert_eq!(kind(&call(&emulator, "UpdateTable", on).await.unwrap_err()), "ValidationException");
    put(&emulator, "a", 2).await;
    let new = reader::stream_arn(&emulator, "rows").await;
    assert_ne!(new, old);
    let records = async |arn: &str| {
        let read = reader::everything(&emulator, arn, 10).await;
        read.into_iter().flat_map(|(_, records)| records).collect::<Vec<_>>()
    };
    assert_eq!(records(&old).await.len(), 1);
    let fresh = records(&new).await;
    assert_eq!(fresh.len(), 1);
    assert!(fresh[0]["dynamodb"]["NewImage"].is_null() && fresh[0]["dynamodb"]["OldImage"].is_null());
    assert_eq!(fresh[0]["dynamodb"]["Keys"], json!({"p": {"S": "a"}}));
    let listed = call(&emulator, "ListStreams", json!({"TableName": "rows"})).await.unwrap();
    assert_eq!(listed["Streams"].as_array().unwrap().len(), 2);
    emulator.advance_clock(25 * HOUR);
    let refused = call(&emulator, "DescribeStream", json!({"StreamArn": old})).await.unwrap_err();
    assert_eq!(kind(&refused), "ResourceNotFoundException");
}

async fn expire_by_ttl(emulator: &Emulator) {
    let enable = json!({"TableName": "rows", "TimeToLiveSpecification": {"Enabled": true, "AttributeName": "ttl"}});
    call(emulator, "UpdateTimeToLive", enable).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_items_with_an_expiry_are_expired_early_on_command() {
    let (emulator, _) = started(Config { read_lag: Duration::ZERO, ..one_shard() }).await;
    expire_by_ttl(&emulator).await;
    for item in [json!({"p": {"S": "a"}, "ttl": {"N": "9999999999"}}), json!({"p": {"S": "b"}})] {
        put_item(&emulator, item).await.unwrap();
    }
    assert_eq!((emulator.expire("rows"), emulator.expire("rows")), (Ok(1), Ok(0)));
    assert_eq!(items(&emulator, "rows").await, [json!({"p": {"S": "b"}})]);
    assert_eq!(emulator.stats().tables["rows"].expiring, 0);
    assert_eq!(emulator.expire("none"), Err(ControlError::NoTable("none".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn an_expired_item_is_removed_by_the_service() {
    let epoch = Some(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000));
    let (emulator, arn) = started(Config { epoch, read_lag: Duration::ZERO, ..one_shard() }).await;
    expire_by_ttl(&emulator).await;
    for (key, expires) in [("a", "1000010"), ("b", "1000020")] {
        let item = json!({"p": {"S": key}, "ttl": {"N": expires}});
        put_item(&emulator, item).await.unwrap();
    }
    let later = json!({"TableName": "rows", "Key": {"p": {"S": "b"}}, "UpdateExpression": "SET #t = :t",
        "ExpressionAttributeNames": {"#t": "ttl"}, "ExpressionAttributeValues": {":t": {"N": "1000030"}}});
    call(&emulator, "UpdateItem", later).await.unwrap();
    put_item(&emulator, json!({"p": {"S": "c"}})).await.unwrap();
    let expiring = || emulator.stats().tables["rows"].expiring;
    assert_eq!(expiring(), 2);
    tokio::time::advance(Duration::from_secs(25)).await;
    assert_eq!(items(&emulator, "rows").await.len(), 2, "what was given more time stays");
    assert_eq!(expiring(), 1);
    tokio::time::advance(Duration::from_secs(5)).await;
    let read = reader::everything(&emulator, &arn, 1000).await;
    let removed: Vec<_> = read[0].1.iter().filter(|record| record["eventName"] == "REMOVE").collect();
    assert_eq!(removed.len(), 2);
    for record in removed {
        assert_eq!(record["userIdentity"], json!({"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_records_ends_at_a_megabyte() {
    let (emulator, arn) = started(one_shard()).await;
    for value in 0..8 {
        let item =
            json!({"p": {"S": format!("k{value}")}, "v": {"N": value.to_string()}, "big": {"S": "x".repeat(300_000)}});
        put_item(&emulator, item).await.unwrap();
    }
    let shard = &reader::shards(&emulator, &arn, 100).await[0];
    let horizon = iterator(&emulator, &arn, shard, "TRIM_HORIZON", None).await.unwrap();
    assert_eq!(values(&get(&emulator, &horizon).await.unwrap()), ["0", "1", "2"]);
    assert_eq!(reader::records(&emulator, &arn, shard, 1000).await.len(), 8);
}
