//! Processes of this build beside those of an older one, over one deployment and under load: each is replaced by the other build's,
//! one after the other, forward and back.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, ensure};

use super::Story;
use crate::attack::engines::Roles;
use crate::attack::fleet::Slot;
use crate::attack::service::Service;
use crate::attack::stage::{Setting, Stage};

/// Replaces each process twice, from this build to the one in `old` and back; the report.
///
/// # Errors
/// A process does not start, or something differs in the end.
pub async fn mixed(program: &Path, old: &Path, broker: Option<SocketAddr>, seed: u64) -> anyhow::Result<String> {
    for service in Service::ALL {
        ensure!(old.join(service.binary()).is_file(), "{} has no {}", old.display(), service.binary());
    }
    // A fence of several lanes is more than a build of before them reads.
    let setting = Setting { roles: Roles::Ignored, told: &[("TALLY_LANES", "1")], ..Setting::of(2) };
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
    Ok(())
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
