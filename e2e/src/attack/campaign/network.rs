//! Each dependency behind each kind of bad network in turn: every fault has to be felt, and to pass.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::Instant;

use super::super::engines::Dependency;
use super::super::proxy::{Mode, Proxy};
use super::super::service::Service;
use super::super::stage::Stage;
use super::{Deeds, Extent};
use crate::simulation::chance::Draws;

/// How often a cut is made at another place.
const MOVED: Duration = Duration::from_millis(500);

/// The longest that a connection lasts when connections are cut: a few requests of each protocol.
const CUT: u64 = 20_000;

const KINDS: [&str; 4] = ["reset", "blackhole", "slow", "cut"];

pub(super) async fn run(stage: &Stage, extent: Extent) -> anyhow::Result<Deeds> {
    let mut deeds = Deeds::default();
    for _ in 0..extent.rounds {
        for (dependency, proxy) in &stage.engines.proxies {
            for kind in KINDS {
                weather(stage, proxy, kind, *dependency, extent.span).await?;
                stage.all_well()?;
                let (rows, counts) =
                    tokio::try_join!(stage.caught_up(Service::Consumer), stage.caught_up(Service::Streamer))?;
                deeds.recovered(format!("{} {kind}", dependency.name()), rows.max(counts));
            }
        }
    }
    Ok(deeds)
}

/// Bad weather for a while.
async fn weather(
    stage: &Stage,
    proxy: &Proxy,
    kind: &str,
    dependency: Dependency,
    span: Duration,
) -> anyhow::Result<()> {
    let (before, until) = (proxy.bites(), Instant::now() + span);
    let mut mode = Mode::Pass;
    while Instant::now() < until {
        mode = drawn(stage, kind);
        proxy.set(mode);
        let pause = if matches!(mode, Mode::Cut { .. }) { MOVED } else { span };
        stage.clock.sleep(pause.min(until.duration_since(Instant::now()))).await;
    }
    // Idle connections feel nothing: there may have to be a request first.
    let felt = async || proxy.bites().since(before).felt(mode);
    tally_testkit::until("the weather to be felt", Duration::from_secs(20), felt).await?;
    proxy.calm();
    let bites = proxy.bites().since(before);
    ensure!(bites.felt(mode), "{} never felt {kind}: {bites:?}", dependency.name());
    Ok(())
}

fn drawn(stage: &Stage, kind: &str) -> Mode {
    match kind {
        "reset" => Mode::Reset,
        "blackhole" => Mode::Blackhole,
        "slow" => {
            Mode::Slow { delay: stage.chance.millis(5, 50), bytes_per_second: stage.chance.between(20_000, 60_000) }
        }
        _ => Mode::Cut { after: stage.chance.below(CUT) },
    }
}
