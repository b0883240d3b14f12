//! Pieces of the stream that are lost under a load of reads: trimmed before streamers have read them, or written while the
//! stream is switched off. In every other round the API stands still meanwhile and its store takes seconds, so that what
//! it knows of losses is old when it answers. An answer that says exact has to be so all the same.

use std::time::Duration;

use anyhow::{Context, ensure};
use tally_testkit::process::Signal;
use tally_testkit::until;
use tokio::time::Instant;

use super::super::proxy::Mode;
use super::super::recounts;
use super::super::service::Service;
use super::super::stage::Stage;
use super::{Deeds, Extent};
use crate::simulation::chance::Draws;

/// The shortest and the longest that the API stands still.
const SHORTEST: u64 = 1_000;
const LONGEST: u64 = 30_000;

/// How long a call of the API's store takes in such rounds.
const SLOW: Duration = Duration::from_millis(2_500);

/// Changes of rows that have to be lost, so that a count without them is another.
const LOST: u64 = 40;

/// Answers that say exact before the next loss.
const EXACT: u64 = 200;

/// How long a loss may take to be noticed: a new stream is looked for now and then.
const NOTICED: Duration = Duration::from_secs(120);

/// How long the API may take to say exact again once the loss is closed.
const HONEST: Duration = Duration::from_secs(120);

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<Deeds> {
    let mut deeds = Deeds::default();
    let (mut stopped, mut longest) = (0, Duration::ZERO);
    for round in 0..extent.rounds {
        let trimmed = matches!(round % 4, 0 | 3);
        let nap = (round % 2 == 1).then(|| stage.chance.millis(SHORTEST, LONGEST));
        let kind = if trimmed { "trim" } else { "stream off and on" };
        let taken = loss(stage, trimmed, nap).await.with_context(|| format!("round {round}, {kind}, nap {nap:?}"))?;
        deeds.recovered(format!("exact again after {kind}"), taken);
        stopped += usize::from(nap.is_some());
        longest = longest.max(nap.unwrap_or_default());
    }
    let (rounds, longest) = (extent.rounds, longest.as_secs_f64());
    deeds.notes.push(format!("losses of stream            {rounds:>6}"));
    deeds
        .notes
        .push(format!("  with the api stopped      {stopped:>6}, for {longest:.0} s at most, and its store slow"));
    Ok(deeds)
}

/// One loss, until a recount has repaired it and the API says exact again; how long that took.
async fn loss(stage: &Stage, trimmed: bool, nap: Option<Duration>) -> anyhow::Result<Duration> {
    let api = stage.fleet.api();
    if nap.is_some() {
        stage.engines.api_tables.set(Mode::late(SLOW));
    }
    let napping = async {
        let Some(nap) = nap else { return Ok(()) };
        // Before the loss is recorded, or after.
        stage.clock.sleep(stage.chance.millis(0, 12_000)).await;
        api.signal(Signal::STOP)?;
        stage.clock.sleep(nap).await;
        ensure!(api.is_stopped() != Some(false), "the api did not stand still");
        api.signal(Signal::CONT)
    };
    let losing = async {
        match trimmed {
            true => trim(stage).await?,
            false => switch(stage).await?,
        }
        let noticed = async || stage.engines.open_losses().await.is_ok_and(|losses| losses > 0);
        until("the loss to be recorded", NOTICED, noticed).await?;
        stage.caught_up(Service::Streamer).await
    };
    tokio::try_join!(losing, napping)?;
    stage.engines.api_tables.calm();
    let began = Instant::now();
    recounts::repair(&stage.fleet.launcher).await?;
    let losses = stage.engines.open_losses().await?;
    ensure!(losses == 0, "{losses} losses are open after a recount");
    let before = stage.honesty.count().exact;
    until("the api to say exact again", HONEST, async || stage.honesty.count().exact >= before + EXACT).await?;
    stage.all_well()?;
    Ok(began.elapsed())
}

/// Trims what was written while the streamers stood still.
async fn trim(stage: &Stage) -> anyhow::Result<()> {
    let streamers: Vec<_> = stage.fleet.of(Service::Streamer).map(|slot| slot.process()).collect();
    streamers.iter().try_for_each(|streamer| streamer.signal(Signal::STOP))?;
    stage.changed(LOST).await?;
    let trimmed = stage.engines.trim().await?;
    ensure!(trimmed > 0, "there was nothing to trim");
    streamers.iter().try_for_each(|streamer| streamer.signal(Signal::CONT))
}

/// Switches the stream off while rows change, and on again.
async fn switch(stage: &Stage) -> anyhow::Result<()> {
    stage.engines.switch_stream(false).await?;
    stage.changed(LOST).await?;
    stage.engines.switch_stream(true).await
}
