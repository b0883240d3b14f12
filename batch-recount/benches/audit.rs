//! An audit against a bare segmented scan of the same table by the SDK, in turns, over the emulator in this process, its
//! waits for a stream that has caught up included; and what the audit adds to the process's memory, for two sizes of
//! table. `cargo bench -p tally-batch-recount`, with
//! `AUDIT_ROWS=100000,2000000` for other sizes.

use std::collections::HashMap;
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::{AttributeValue, PutRequest, WriteRequest};
use clap::Parser;
use futures_util::future::{Either, select};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_adapters::dynamodb::{self, Connection, Settings};
use tally_adapters::memory::Memory;
use tally_batch_recount::{App, Args, Config, Ports};
use tally_core::ids::ShardCount;
use tally_core::ports::{ChangeStream, DeploymentConfig as _, StreamRegistry as _};
use tally_core::time::UnixMillis;
use tally_emulator::Emulator;
use tally_service::{Clock, Host, How, Running};
use tokio::time::Instant;

const SEGMENTS: i32 = 16;
const USERS: u64 = 1_000;
const PAIRS: usize = 5;

fn main() -> Result<()> {
    let sizes = std::env::var("AUDIT_ROWS").unwrap_or_else(|_| "20000,100000".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for rows in sizes.split(',') {
        runtime.block_on(measure(rows.trim().parse().context("AUDIT_ROWS is a list of numbers")?))?;
    }
    Ok(())
}

async fn measure(rows: u64) -> Result<()> {
    let clock = Host::new("bench").clock();
    let began = clock.now();
    let emulator = Emulator::new(tally_emulator::Config::default());
    let connection = Connection::in_process(&Settings::local(""), emulator.http_client(), began);
    dynamodb::ensure_tables(&connection).await?;
    let client = client(&emulator);
    fill(&client, rows).await?;
    let ports = ports(&connection, began).await?;
    let before = resident()?;
    let ratios = match select(pin!(Box::pin(turns(&client, &ports, rows))), pin!(idle(&ports, clock))).await {
        Either::Left((ratios, _)) => ratios?,
        Either::Right((ended, _)) => return Err(ended),
    };
    let (median, grown) = (ratios[PAIRS / 2], resident()?.saturating_sub(before));
    let all: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    let all = all.join(" ");
    writeln!(std::io::stdout(), "{rows} rows: audit at {median:.2} of a bare scan ({all}), {grown} KiB more resident")?;
    Ok(())
}

/// How fast audits are, as parts of the bare scan before each, in order.
async fn turns(client: &Client, ports: &Ports, rows: u64) -> Result<Vec<f64>> {
    let mut ratios = Vec::new();
    for _ in 0..PAIRS {
        let (bare, audited) = (scan(client, rows).await?, audit(ports, rows).await?);
        writeln!(std::io::stdout(), "{rows} rows: scan {bare:.2?}, audit {audited:.2?}")?;
        ratios.push(bare.as_secs_f64() / audited.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios)
}

/// A streamer that has caught up: its checkpoints keep pace with the clock.
async fn idle(ports: &Ports, clock: Clock) -> anyhow::Error {
    loop {
        if let Err(error) = refresh(ports, clock).await {
            return error;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn refresh(ports: &Ports, clock: Clock) -> Result<()> {
    let label = ports.stream.info().await?.label;
    for shard in ports.stream.shards(&label).await? {
        ports.checkpoints.refresh(&label, &shard.id, clock.now()).await?;
    }
    Ok(())
}

/// The tables, and beside them a stream with nothing in it.
async fn ports(connection: &Connection, began: UnixMillis) -> Result<Ports> {
    let memory = Memory::new(began);
    let (stream, checkpoints) = (memory.streams(), memory.checkpoints());
    let label = stream.info().await?.label;
    for shard in stream.shards(&label).await? {
        checkpoints.number(&label, &shard.id, None, began).await?;
    }
    checkpoints.config(Some(ShardCount::DEFAULT)).await?;
    let recounts = Arc::new(memory.recounts());
    Ok(Ports { stream: Arc::new(stream), checkpoints: Arc::new(checkpoints), recounts, ..Ports::over(connection) })
}

async fn audit(ports: &Ports, rows: u64) -> Result<Duration> {
    let args = Args::try_parse_from(["tally-batch-recount", "--dry-run"])?;
    let began = Instant::now();
    let running = Running::start(App::with_ports(Config::try_from(args)?, ports.clone()), Host::new("audit"));
    let end = running.ended().await;
    ensure!(matches!(end.how, How::Finished(exit) if exit.is_clean()), "{end} of {rows} rows");
    Ok(began.elapsed())
}

async fn scan(client: &Client, rows: u64) -> Result<Duration> {
    let began = Instant::now();
    let scanned: u64 = stream::iter(0..SEGMENTS)
        .map(|segment| async move {
            let pages = client.scan().table_name("likes").projection_expression("pk,user_id").consistent_read(true);
            let mut pages = pages.segment(segment).total_segments(SEGMENTS).into_paginator().send();
            let mut items = 0;
            while let Some(page) = pages.try_next().await? {
                items += page.items().len() as u64;
            }
            Ok::<_, anyhow::Error>(items)
        })
        .buffer_unordered(16)
        .try_fold(0, |sum, items| std::future::ready(Ok(sum + items)))
        .await?;
    ensure!(scanned == rows, "{scanned} of {rows} rows");
    Ok(began.elapsed())
}

/// Posts of a thousand users each, and counters that agree.
async fn fill(client: &Client, rows: u64) -> Result<()> {
    let shards = ShardCount::DEFAULT;
    for post in 0..rows / USERS {
        let mut counted: HashMap<u16, u64> = HashMap::new();
        let mut likes = Vec::new();
        for user in (0..USERS).map(|user| format!("user-{user}")) {
            let shard = shards.shard_of(&user).index();
            *counted.entry(shard).or_default() += 1;
            let pk = format!("post-{post}#{shard}");
            let item = [
                ("pk", text(pk)),
                ("user_id", text(user)),
                ("post_id", text(format!("post-{post}"))),
                ("liked_at", number(0)),
            ];
            likes.push(put(item)?);
        }
        for batch in likes.chunks(25) {
            client.batch_write_item().request_items("likes", batch.to_vec()).send().await?;
        }
        let mut counter = client.put_item().table_name("like_counts").item("post_id", text(format!("post-{post}")));
        counter = counter.item("likes", number(USERS)).item("version", number(1)).item("updated_at", number(0));
        for (shard, rows) in counted {
            counter = counter.item(format!("s{shard}"), number(rows));
        }
        counter.send().await?;
    }
    Ok(())
}

fn put<const N: usize>(item: [(&str, AttributeValue); N]) -> Result<WriteRequest> {
    let item = item.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(WriteRequest::builder().put_request(PutRequest::builder().set_item(Some(item)).build()?).build())
}

fn text(text: String) -> AttributeValue {
    AttributeValue::S(text)
}

fn number(n: u64) -> AttributeValue {
    AttributeValue::N(n.to_string())
}

fn client(emulator: &Emulator) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url("http://in-process.invalid")
        .credentials_provider(Credentials::new("local", "local", None, None, "local"))
        .http_client(emulator.http_client());
    Client::from_conf(config.build())
}

/// This process's resident memory, in KiB; 0 where the system does not say.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.map_or(Ok(0), |line| Ok(line.trim().trim_end_matches(" kB").parse()?))
}
