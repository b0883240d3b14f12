//! Processes of this build beside those of an older one, over one deployment and under load: each is replaced by the other build's,
//! one after the other, forward and back.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::Story;
use crate::attack::engines::Roles;
use crate::attack::fleet::Slot;
use crate::attack::service::Service;
use crate::attack::stage::{Setting, Stage};
use crate::attack::wait::until;

/// How long a consumer may take to change lanes, or to be given a partition.
const PATIENCE: Duration = Duration::from_secs(300);

/// Replaces each process twice, from this build to the one in `old` and back; the report.
///
/// # Errors
/// A process does not start, or something differs in the end.
pub async fn mixed(
    program: &Path,
    old: &Path,
    broker: Option<SocketAddr>,
    seed: u64,
    likes_alone: bool,
) -> anyhow::Result<String> {
    for service in Service::ALL {
        ensure!(old.join(service.binary()).is_file(), "{} has no {}", old.display(), service.binary());
    }
    // A fence of several lanes is more than a build of before them reads.
    let told = &[("TALLY_LANES", "1")];
    let setting = Setting { roles: Roles::Ignored, likes_alone, told, ..Setting::of(2) };
    let stage = Stage::set(program, broker, seed, setting).await?;
    let mut story = Story::default();
    let lived = relive(&stage, &mut story, old).await;
    lived.with_context(|| stage.fleet.tails(&story.0.join("\n")))?;
    let judgement = stage.judge().await?;
    Ok(story.ended(&format!("mixed: seed {seed}"), &judgement))
}

async fn relive(stage: &Stage, story: &mut Story, old: &Path) -> anyhow::Result<()> {
    for (to, program) in
        [("the older build", Some(old)), ("this build", None), ("the older build", Some(old)), ("this build", None)]
    {
        // Readers of what others write first: streamer, API, consumer.
        for service in [Service::Streamer, Service::Api, Service::Consumer] {
            for slot in stage.fleet.of(service) {
                replace(stage, slot, program).await.with_context(|| format!("a {service} of {to}"))?;
            }
        }
        stage.changed(100).await?;
        story.tell(format!("every process is of {to}, one after the other, and has caught up"));
    }
    refused_over_lanes(stage, story, old).await
}

/// A consumer of before lanes stands still where a partition has several: it would count wrongly.
async fn refused_over_lanes(stage: &Stage, story: &mut Story, old: &Path) -> anyhow::Result<()> {
    let (launcher, lanes) = (&stage.fleet.launcher, 2);
    launcher.tell("TALLY_LANES", "2");
    for slot in stage.fleet.of(Service::Consumer) {
        replace(stage, slot, None).await?;
    }
    until("every partition to have two lanes", PATIENCE, async || stage.engines.have_lanes(lanes).await).await?;
    let older = launcher.start_of(&old.join(Service::Consumer.binary()), Service::Consumer, &[])?;
    // One that is given such partitions alone is never ready.
    let halted = async || older.tail().contains("the fence counts in lanes/");
    until("an older consumer to stand still", PATIENCE, halted).await.with_context(|| older.tail())?;
    older.stop().await?;
    story.tell("an older consumer stands still, by name, where a partition has two lanes");
    stage.caught_up(Service::Consumer).await?;
    launcher.tell("TALLY_LANES", "1");
    for slot in stage.fleet.of(Service::Consumer) {
        replace(stage, slot, None).await?;
    }
    until("every partition to have one lane", PATIENCE, async || stage.engines.have_lanes(1).await).await?;
    stage.all_well()
}

async fn replace(stage: &Stage, slot: &Slot, program: Option<&Path>) -> anyhow::Result<()> {
    slot.process().stop().await?;
    let fresh = match program {
        None => stage.fleet.refill(slot)?,
        Some(old) => stage.fleet.refill_of(slot, &old.join(slot.service.binary()))?,
    };
    fresh.ready().await?;
    stage.changed(50).await?;
    stage.caught_up(slot.service).await?;
    stage.all_well()
}
