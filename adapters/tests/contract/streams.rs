//! Tests the change stream of the table `likes` on every DynamoDB engine: its shards, their records and their children
//! (the shards that continue them).

use std::collections::BTreeMap;

use tally_core::changes::{Effect, Nonce};
use tally_core::definitions::Direction;
use tally_core::ids::{StreamLabel, StreamShardId};
use tally_core::ports::{ChangeStream as _, Position, StreamFault};
use tally_core::tally::{RawRecord, Record, RecordKind, read};

use crate::engine::{Env, hides_statements, is_elsewhere};
use crate::likes::{post, user, write};

pub(crate) async fn contract(env: &Env) {
    let info = env.stream.info().await.unwrap();
    assert!(info.created >= info.table_created);
    assert_eq!(env.stream.info().await, Ok(info.clone()), "the same however often it is asked for");
    every_change_is_one_record_and_a_write_without_a_change_none(env, &info.label).await;
    reading_resumes_after_a_position(env, &info.label).await;
    a_missing_shard_is_reported_as_gone(env, &info.label).await;
    children_are_found_if_the_engine_supports_the_filter(env, &info.label).await;
}

/// Everything in one shard after `position`, until there is nothing more.
async fn drain(env: &Env, label: &StreamLabel, shard: &StreamShardId, position: Position) -> Vec<RawRecord> {
    const EMPTY_PAGES: u32 = 3;
    let mut at = Some(env.stream.iterator(label, shard, position).await.unwrap());
    let (mut records, mut empty) = (Vec::new(), 0);
    while let Some(iterator) = at.filter(|_| empty < EMPTY_PAGES) {
        let page = env.stream.records(&iterator, 2).await.unwrap();
        assert!(page.records.len() <= 2);
        empty = if page.records.is_empty() { empty + 1 } else { 0 };
        records.extend(page.records);
        at = page.next;
    }
    records
}

async fn every_shard(env: &Env, label: &StreamLabel) -> Vec<(StreamShardId, Vec<RawRecord>)> {
    let mut drained = Vec::new();
    for shard in env.stream.shards(label).await.unwrap() {
        let records = drain(env, label, &shard.id, Position::Oldest).await;
        drained.push((shard.id, records));
    }
    drained
}

async fn every_change_is_one_record_and_a_write_without_a_change_none(env: &Env, label: &StreamLabel) {
    let row = [(post("streamed"), user("u"))];
    let events =
        [(Direction::Remove, 1), (Direction::Add, 2), (Direction::Add, 2), (Direction::Add, 3), (Direction::Remove, 4)];
    for (direction, offset) in events {
        write(env, direction, &row, offset).await;
    }
    let marked: tally_core::ids::RowKey = "streamed-marker#0".parse().unwrap();
    for nonce in [7, 8] {
        env.rows.mark(&[(marked.clone(), Nonce(nonce))]).await.unwrap();
    }

    let mut by_key: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for (_, records) in every_shard(env, label).await {
        for raw in records {
            by_key.entry(raw.pk.clone().unwrap()).or_default().push(read(&raw).unwrap());
        }
    }
    for records in by_key.values() {
        assert!(records.is_sorted_by_key(|record| record.sequence));
    }
    let (row, marker): (Vec<_>, Vec<_>) = by_key.into_iter().partition(|(key, _)| key.starts_with("streamed#"));
    let deltas: Vec<i64> = row.iter().flat_map(|(_, records)| records).map(Record::delta).collect();
    let left: &[i64] = if hides_statements() { &[] } else { &[0, 1, 0, -1] };
    assert_eq!(deltas, left, "a write that is not newer leaves no record");
    let markers: Vec<_> = marker.iter().flat_map(|(_, records)| records).map(|record| &record.kind).collect();
    let [RecordKind::Row(_, first), RecordKind::Row(_, second)] = markers[..] else { panic!("{markers:?}") };
    assert_eq!([first, second], [&Effect::Marked(Nonce(7)), &Effect::Marked(Nonce(8))]);
}

async fn reading_resumes_after_a_position(env: &Env, label: &StreamLabel) {
    let mut seen = 0;
    for (shard, records) in every_shard(env, label).await {
        for (n, record) in records.iter().enumerate() {
            let position = Position::After(record.sequence.parse().unwrap());
            assert_eq!(drain(env, label, &shard, position).await, records[n + 1..]);
            seen += 1;
        }
    }
    assert_eq!(seen, if hides_statements() { 2 } else { 6 });
}

async fn a_missing_shard_is_reported_as_gone(env: &Env, label: &StreamLabel) {
    let shard = "shardId-00000000000000000000-deadbeef".into();
    assert_eq!(env.stream.iterator(label, &shard, Position::Oldest).await, Err(StreamFault::Gone));
}

async fn children_are_found_if_the_engine_supports_the_filter(env: &Env, label: &StreamLabel) {
    let shards = env.stream.shards(label).await.unwrap();
    let open = shards.iter().find(|shard| !shard.ended).unwrap();
    let children = env.stream.children(label, &open.id).await.unwrap();
    // Some emulators cannot filter shards by their parent.
    assert!(children.is_some() || is_elsewhere(), "the engine can be asked");
    assert_eq!(children.unwrap_or_default(), [], "an open shard has none yet");
}
