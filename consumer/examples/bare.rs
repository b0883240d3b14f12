//! A program that does only the least of the work of a consumer or a recount. `e2e/bench cores` measures how much of a
//! core it takes, to compare the real services with it:
//!
//! - `bare likes BROKERS TOPIC GROUP COUNT` writes so many likes as rows: Kafka's client, a decoder, batches of the
//!   SDK. It keeps no order of requests, tries nothing again, and knows neither unlikes nor bad records.
//! - `bare scan COUNT` reads the table `likes` in 16 segments, adds up the rows of each key, and expects so many rows.

use std::collections::HashMap;
use std::env::args;

use anyhow::{Context as _, ensure};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{AttributeValue, BatchStatementRequest};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::{ClientConfig, Message as _};
use serde::Deserialize;

const INSERT: &str = r#"INSERT INTO "likes" VALUE {'pk':?,'user_id':?,'post_id':?,'v':?,'liked_at':?}"#;
/// The most statements of a batch.
const BATCH: usize = 25;
/// How many requests are under way.
const REQUESTS: usize = 64;
const SEGMENTS: i32 = 16;

#[derive(Deserialize)]
struct Event {
    post_id: String,
    user_id: String,
    ts: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::new(&aws_config::load_from_env().await);
    match arg(1)?.as_str() {
        "likes" => likes(&client, arg(5)?.parse()?).await,
        "scan" => scan(&client, arg(2)?.parse()?).await,
        other => anyhow::bail!("there is no {other}, but likes and scan"),
    }
}

async fn likes(client: &Client, count: usize) -> anyhow::Result<()> {
    let consumer: StreamConsumer = ClientConfig::new()
        .set("bootstrap.servers", arg(2)?)
        .set("group.id", arg(4)?)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        .create()?;
    consumer.subscribe(&[&arg(3)?])?;
    let statements = consumer.stream().take(count).map(|record| {
        let record = record?;
        let event: Event = serde_json::from_slice(record.payload().context("an empty record")?)?;
        statement(event, record.offset())
    });
    let batches = statements.try_chunks(BATCH).map_err(|error| error.1);
    batches.try_for_each_concurrent(REQUESTS, |batch| write(client, batch)).await
}

fn statement(event: Event, offset: i64) -> anyhow::Result<BatchStatementRequest> {
    let shard = crc32fast::hash(event.user_id.as_bytes()) % 64;
    let statement = BatchStatementRequest::builder().statement(INSERT).set_parameters(Some(vec![
        AttributeValue::S(format!("{}#{shard}", event.post_id)),
        AttributeValue::S(event.user_id),
        AttributeValue::S(event.post_id),
        AttributeValue::N(offset.to_string()),
        AttributeValue::N(event.ts.to_string()),
    ]));
    Ok(statement.build()?)
}

async fn write(client: &Client, batch: Vec<BatchStatementRequest>) -> anyhow::Result<()> {
    let written = client.batch_execute_statement().set_statements(Some(batch)).send().await?;
    let refused = written.responses().iter().find_map(|answer| answer.error());
    ensure!(refused.is_none(), "a statement was refused: {refused:?}");
    Ok(())
}

async fn scan(client: &Client, count: u64) -> anyhow::Result<()> {
    let segments = stream::iter(0..SEGMENTS).map(|segment| async move {
        let mut keys = HashMap::<String, u64>::new();
        let pages = client.scan().table_name("likes").segment(segment).total_segments(SEGMENTS).consistent_read(true);
        let mut pages = pages.into_paginator().send();
        while let Some(page) = pages.next().await {
            for mut row in page?.items.unwrap_or_default() {
                let Some(AttributeValue::S(key)) = row.remove("pk") else { anyhow::bail!("a row without a key") };
                *keys.entry(key).or_default() += u64::from(row.contains_key("post_id"));
            }
        }
        Ok(keys.into_values().sum::<u64>())
    });
    let rows = segments.buffer_unordered(SEGMENTS as usize).try_fold(0, async |sum, rows| Ok(sum + rows)).await?;
    ensure!(rows == count, "{rows} rows were found, and {count} expected");
    Ok(())
}

fn arg(n: usize) -> anyhow::Result<String> {
    args().nth(n).context("usage: bare likes BROKERS TOPIC GROUP COUNT | bare scan COUNT")
}
