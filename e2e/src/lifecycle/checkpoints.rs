//! The checkpoints are lost with the configuration: nothing starts, `tally adopt tables` writes a new one, and a recount makes
//! every count exact again. The deployment has definitions and sums.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tally_core::ids::ShardCount;

use super::{Story, by_hand};
use crate::attack::engines::ANEW;
use crate::attack::process::Signal;
use crate::attack::recounts;
use crate::attack::service::Service;
use crate::attack::stage::{Setting, Stage};

/// How long a process may take to see that it must not start.
const REFUSED: Duration = Duration::from_secs(120);

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
    stage.changed(200).await?;
    stage.caught_up(Service::Consumer).await?;
    stage.caught_up(Service::Streamer).await?;
    let kept = operator.must(&["counters", "export"]).await?;
    std::fs::write(file, &kept.out).context("cannot keep the counters")?;
    for slot in stage.fleet.slots() {
        slot.process().signal(Signal::Kill)?;
        slot.process().exit(REFUSED).await?;
    }
    let lost = lose(stage).await?;
    story.tell(format!("every process killed, and {lost} items of checkpoints gone"));
    for service in [Service::Consumer, Service::Streamer, Service::Api] {
        refuses(stage, service).await?;
    }
    story.tell("consumer, streamer and api start over none of it, and say `tally adopt tables`");

    // What is in the log of before has places that nobody knows any more.
    stage.fleet.launcher.tell("TALLY_CHANGES_TOPIC", ANEW);
    let (path, shards) = (file.to_str().context("an odd path")?, ShardCount::DEFAULT.to_string());
    let adopt = ["adopt", "tables", "--shards", &shards, "--counters", path, "--sums", "count", "--settle", "1s"];
    let dry = operator.must(&adopt).await?;
    ensure!(dry.out.contains("nothing was changed"), "{dry:?}");
    let done = operator.change(&adopt).await?;
    story.tell(done.out.lines().last().unwrap_or_default().to_owned());

    for slot in stage.fleet.slots() {
        stage.fleet.refill(slot)?;
    }
    stage.fleet.ready().await?;
    stage.caught_up(Service::Consumer).await?;
    stage.caught_up(Service::Streamer).await?;
    ensure!(stage.engines.open_losses().await? > 0, "no loss is open, and counts would be called exact");
    recounts::repair(&stage.fleet.launcher).await?;
    stage.changed(200).await?;
    stage.all_well()
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
async fn refuses(stage: &Stage, service: Service) -> anyhow::Result<()> {
    let process = stage.fleet.launcher.start(service, &[])?;
    let code = process.exit(REFUSED).await?;
    let tail = process.tail();
    let says = tail.lines().any(|line| line.contains("`config`") && line.contains("tally adopt tables"));
    ensure!(code.is_some_and(|code| code != 0) && says, "the {service} ended with {code:?}\n{tail}");
    Ok(())
}
