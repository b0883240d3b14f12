//! The checkpoints are lost while the counts keep their floors: nothing starts, and `tally rebuild counts` writes both anew. The
//! deployment has definitions, sums, and a set under two homes.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tally_adapters::dynamodb::Numbers;
use tally_core::definitions::Definitions;
use tally_core::homes::{CounterMap, DecidedBy, Homes};
use tally_core::ids::{CounterId, PostId, ShardCount};
use tally_core::ports::{CounterMaps as _, DeploymentConfig as _};

use super::{Story, asked, by_hand};
use crate::attack::process::Signal;
use crate::attack::service::Service;
use crate::attack::stage::{Setting, Stage};
use crate::attack::wait::until;
use crate::attack::{ledger, recounts};

/// How long a process may take to see that it must not start.
const REFUSED: Duration = Duration::from_secs(120);
/// How long streamers may take to be done with stream shards that were closed.
const FLOORED: Duration = Duration::from_secs(120);

/// Loses the checkpoints; the report.
///
/// # Errors
/// Something starts over what is lost, or something differs in the end.
pub async fn lose_checkpoints(program: &Path, broker: Option<SocketAddr>, seed: u64) -> anyhow::Result<String> {
    let stage = Stage::set(program, broker, seed, Setting::of(2)).await?;
    let mut story = Story::default();
    let file = std::env::temp_dir().join(format!("tally-lifecycle-{}-{seed}.toml", std::process::id()));
    let lived = relive(&stage, &mut story, &file).await;
    let _ = std::fs::remove_file(&file);
    lived.with_context(|| stage.fleet.tails(&story.0.join("\n")))?;
    let judgement = stage.judge().await?;
    Ok(story.ended(&format!("lose-checkpoints: seed {seed}"), &judgement))
}

async fn relive(stage: &Stage, story: &mut Story, file: &Path) -> anyhow::Result<()> {
    let operator = stage.fleet.launcher.operator();
    spread(stage).await?;
    let floor = floors(stage).await?;
    stage.caught_up(Service::Consumer).await?;
    stage.caught_up(Service::Streamer).await?;
    stage.changed(100).await?;
    let kept = operator.must(&["counters", "export"]).await?;
    std::fs::write(file, &kept.out).context("cannot keep the configuration")?;
    story.tell(format!("likes of p-1 are under two homes, counters know stream shards up to {floor}"));

    for slot in stage.fleet.slots() {
        slot.process().signal(Signal::Kill)?;
        slot.process().exit(REFUSED).await?;
    }
    let forgotten = forget_numbers(stage).await?;
    refuses(stage, Service::Streamer, "a counter knows stream shard").await?;
    story
        .tell(format!("every process killed; without {forgotten} items about stream shards a streamer does not start"));
    let lost = lose(stage).await?;
    story.tell(format!("and {lost} more of checkpoints gone"));
    for service in [Service::Consumer, Service::Streamer, Service::Api] {
        refuses(stage, service, "`config`").await?;
    }
    story.tell("consumer, streamer and api start over none of it, and say `tally rebuild counts`");

    // As an operator would who knows no better.
    let ports = stage.engines.ports();
    ports.checkpoints.config(Some(ShardCount::DEFAULT)).await?;
    ensure!(ports.checkpoints.define(&Definitions::likes_alone(), &ledger::definitions()).await?, "defined by another");
    refuses(stage, Service::Streamer, "a counter knows stream shard").await?;
    lose(stage).await?;
    story.tell("nor does a streamer over a configuration that was put back by hand");

    for is_on in [false, true] {
        stage.engines.switch_stream(is_on).await?;
    }
    let path = file.to_str().context("an odd path")?;
    let rebuild = ["rebuild", "counts", "--config", path, "--settle", "1s"];
    let dry = operator.must(&rebuild).await?;
    ensure!(dry.out.contains("nothing was changed"), "{dry:?}");
    let done = operator.change(&rebuild).await?;
    story.tell(done.out.lines().last().unwrap_or_default().to_owned());

    for slot in stage.fleet.slots() {
        stage.fleet.refill(slot)?;
    }
    stage.fleet.ready().await?;
    stage.caught_up(Service::Consumer).await?;
    stage.caught_up(Service::Streamer).await?;
    ensure!(stage.engines.open_gaps().await? > 0, "no loss is open, and counts would be called exact");
    recounts::repair(&stage.fleet.launcher).await?;
    stage.changed(200).await?;
    stage.all_well()
}

/// Has the likes of a post under a second home, as createCounter does.
async fn spread(stage: &Stage) -> anyhow::Result<()> {
    let counter = CounterId::likes(PostId::new("p-1").context("an id")?);
    let (few, many) = (ShardCount::DEFAULT, ShardCount::new(4 * u64::from(ShardCount::DEFAULT.get()))?);
    let homes: Homes = [few, many].into_iter().collect();
    let map = CounterMap::new(homes, many, Some(many), DecidedBy::NumberOfShards, stage.clock.now())?;
    let maps = &stage.engines.ports().maps;
    maps.announce().await?;
    ensure!(maps.put_map(&counter, None, &map).await?, "the map was put by another");
    maps.announce().await?;
    stage.changed(200).await
}

/// Has stream shards closed and followed by others, until counters say so in floors.
async fn floors(stage: &Stage) -> anyhow::Result<u64> {
    let emulator = &stage.engines.emulator;
    let connection = stage.engines.connection();
    let mut floor = 0;
    for round in 0..3_u64 {
        stage.caught_up(Service::Streamer).await?;
        emulator.roll_shards("likes", None)?;
        stage.changed(50).await?;
        let grown = async || {
            let numbers = Numbers::read(&connection, true).await;
            floor = numbers.ok().and_then(|numbers| numbers.greatest).map_or(0, |greatest| greatest.0);
            floor > 4 * (round + 1)
        };
        until("counters to know the stream's new shards", FLOORED, grown).await?;
    }
    Ok(floor)
}

/// Deletes every item about stream shards, as if the checkpoints had been restored alone; how many there were.
async fn forget_numbers(stage: &Stage) -> anyhow::Result<usize> {
    let scan = json!({"TableName": "checkpoints", "ConsistentRead": true});
    let found = asked(&stage.engines, "Scan", scan).await?;
    let items = found["Items"].as_array().context("a scan without items")?;
    let others = ["kafka/", "config", "gaps"];
    let ids = items.iter().filter_map(|item| item["id"]["S"].as_str());
    let ids: Vec<&str> = ids.filter(|id| others.iter().all(|other| !id.starts_with(other))).collect();
    for id in &ids {
        by_hand(&stage.engines, "DeleteItem", json!({"TableName": "checkpoints", "Key": {"id": {"S": id}}})).await?;
    }
    Ok(ids.len())
}

/// Deletes every item of the checkpoints; how many there were.
async fn lose(stage: &Stage) -> anyhow::Result<usize> {
    let items = stage.engines.emulator.stats().tables["checkpoints"].items;
    by_hand(&stage.engines, "DeleteTable", json!({"TableName": "checkpoints"})).await?;
    let names: Value = json!([{"AttributeName": "id", "AttributeType": "S"}]);
    let keys: Value = json!([{"AttributeName": "id", "KeyType": "HASH"}]);
    let table = json!({
        "TableName": "checkpoints", "BillingMode": "PAY_PER_REQUEST", "AttributeDefinitions": names, "KeySchema": keys,
    });
    by_hand(&stage.engines, "CreateTable", table).await?;
    Ok(items)
}

/// A process does not start, and names what is wrong and what mends it, in one line.
async fn refuses(stage: &Stage, service: Service, why: &str) -> anyhow::Result<()> {
    let process = stage.fleet.launcher.start(service, &[])?;
    let code = process.exit(REFUSED).await?;
    let tail = process.tail();
    let says = tail.lines().any(|line| line.contains(why) && line.contains("tally rebuild counts"));
    ensure!(code.is_some_and(|code| code != 0) && says, "the {service} ended with {code:?}\n{tail}");
    Ok(())
}
