//! The rare event `lose-checkpoints`: the table `checkpoints`, which also has the configuration, is lost under a
//! deployment of real processes. No process starts, the operators' command `tally adopt tables` writes a new
//! configuration, and a recount makes every count exact again.
//!
//! The deployment counts more than likes, also sums such as views. Producers are stopped meanwhile: amounts that are
//! already in the topic were counted before, and are skipped.

use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use serde_json::Value;
use tally_core::ids::ShardCount;
use tally_testkit::process::{Done, Signal};
use tally_testkit::until;

use crate::attack::engines::ANEW;
use crate::attack::fleet::{Launcher, Service};
use crate::attack::laws;
use crate::attack::stage::Stage;
use crate::lifecycle::lose;

/// How long a process may take to find out that it must not start.
const REFUSED: Duration = Duration::from_secs(120);

/// The new consumer group if Kafka is in this process. That Kafka lets only members commit offsets, even if the group has
/// none.
const GROUP: &str = "consumers-anew";

/// Loses the checkpoints, and also the file that defines the counters.
pub(super) async fn relive(stage: &mut Stage, is_own_kafka: bool) -> anyhow::Result<()> {
    let file = std::env::temp_dir().join(format!("tally-lifecycle-{}-{}.toml", std::process::id(), stage.seed));
    let operator = stage.fleet.launcher.clone();
    stage.changed(200).await?;
    let defined = operator.must(&["counters", "list", "-o", "json"]).await?;
    stage.fall_silent().await;
    stage.counted().await?;
    for slot in &stage.fleet.slots {
        slot.process().signal(Signal::KILL)?;
        slot.process().exit(REFUSED).await?;
    }
    let lost = stage.engines.emulator.stats().tables["checkpoints"].items;
    lose(stage, "checkpoints").await?;
    stage.report.tell(format!("every process killed, and {lost} items of checkpoints gone"));
    for service in [Service::Consumer, Service::Streamer, Service::Api] {
        refuses(stage, service).await?;
    }
    stage.report.tell("consumer, streamer and api refuse to start, and name `tally adopt tables`");

    // Positions in the old log are lost, so a new topic is used.
    stage.fleet.launcher.tell("TALLY_CHANGES_TOPIC", ANEW);
    let (path, shards) = (file.to_str().context("the path is not valid Unicode")?, ShardCount::DEFAULT.to_string());
    let adopt = ["adopt", "tables", "--shards", &shards, "--counters", path, "--sums", "skip", "--settle", "1s"];
    let mut adopt = [&adopt[..], &["--changes-topic", ANEW]].concat();
    if is_own_kafka {
        stage.fleet.launcher.tell("TALLY_GROUP", GROUP);
        adopt.extend(["--group", GROUP]);
    }
    std::fs::write(&file, listed(&defined.json())).context("cannot keep the counters")?;
    let adopting = async {
        let dry = operator.must(&adopt).await?;
        ensure!(dry.out.contains("nothing was changed"), "{dry:?}");
        adopted(&operator, &adopt).await
    };
    let done = adopting.await;
    let _ = std::fs::remove_file(&file);
    stage.report.tell(done?.out.lines().last().unwrap_or_default().to_owned());
    stage.go_on();

    stage.fleet.refill_all().await?;
    stage.counted().await?;
    ensure!(stage.engines.open_losses().await? > 0, "no loss is open, so wrong counts would be called exact");
    laws::repair(&stage.fleet.launcher).await?;
    stage.changed(200).await?;
    stage.all_well()
}

/// Adopts the tables once the group of the killed consumers has no members: Kafka does not accept new offsets before.
async fn adopted(operator: &Launcher, adopt: &[&str]) -> anyhow::Result<Done> {
    let mut last = Err(anyhow!("no attempt was made"));
    let done = until("the group to have no members", REFUSED, async || {
        last = operator.change(adopt).await;
        last.is_ok()
    });
    done.await.ok();
    last
}

/// The contents of a file that defines these counters in addition to likes.
fn listed(counters: &Value) -> String {
    let others = counters.as_array().into_iter().flatten().filter_map(Value::as_object);
    let others = others.filter(|entry| entry["name"] != "likes");
    others.fold(String::new(), |file, entry| {
        let lines =
            entry.iter().filter(|(_, value)| value.is_string()).map(|(name, value)| format!("{name} = {value}\n"));
        format!("{file}[[counters]]\n{}", lines.collect::<String>())
    })
}

/// A process must not start, and must say in one line what is wrong and how to fix it.
async fn refuses(stage: &Stage, service: Service) -> anyhow::Result<()> {
    let process = stage.fleet.launcher.start(service, &[])?;
    let code = process.exit(REFUSED).await?;
    let tail = process.tail();
    let says = tail.lines().any(|line| line.contains("`config`") && line.contains("tally adopt tables"));
    ensure!(code.is_some_and(|code| code != 0) && says, "the {service} ended with {code:?}\n{tail}");
    Ok(())
}
