//! The list of attacks on a running pipeline of real processes (`tally-e2e attack kills`, `network`, ..), and the code
//! that runs one or several of them under load, has the result judged, and prints the report.

mod drift;
mod losses;
mod network;
mod processes;
mod regions;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use tally_service::telemetry::{self, LogFormat};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::attack::engines::Roles;
use crate::attack::stage::{Ground, Stage, Under};
use crate::simulation::name_of;

/// The longest outage with the in-process Kafka. Clients give up and ask again. When a black hole then delivers the requests of
/// minutes at once, a second request of one member to join a group fails an assertion in that Kafka and ends this process.
const EMBEDDED: Duration = Duration::from_secs(60);

/// A kind of attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Campaign {
    /// Processes are killed repeatedly
    Kills,
    /// Consumers and streamers are stopped for so long that others take over, and then resume
    Zombies,
    /// Each process is stopped gracefully and replaced, one after the other
    Rolling,
    /// Each dependency has each kind of network fault
    Network,
    /// Each dependency is unavailable for long
    Outages,
    /// All processes are stopped gracefully while a dependency is silent
    Departures,
    /// The primary of Redis is killed under load, and a replica without its last commands takes over
    Failovers,
    /// Counts are changed by hand under load, and `tally recount` corrects them
    Drift,
    /// Parts of the stream are lost while the API is queried, stopped, and has a slow store
    Losses,
    /// Two Regions: processes and the mirror between them are killed, the mirror stands still and repeats, one Region is away
    Regions,
}

impl Campaign {
    /// The extent that fits into the checks of a change.
    pub fn short(self) -> Extent {
        let (rounds, seconds) = match self {
            Self::Kills | Self::Rolling | Self::Drift => (1, 0),
            Self::Zombies | Self::Losses | Self::Failovers => (2, 0),
            Self::Regions => (5, 0),
            Self::Network => (1, 1),
            Self::Outages => (1, 3),
            Self::Departures => (1, 5),
        };
        // The short form runs among other tests on busy machines, so it only requires 120 s; the long form requires 30 s.
        Extent { rounds, span: Duration::from_secs(seconds), recovery: Duration::from_secs(120) }
    }

    /// The number of consumers, and of streamers. If many sleep, there are enough that one is awake while several sleep.
    fn members(self, extent: Extent) -> usize {
        if self == Self::Zombies && extent.rounds > 4 { 3 } else { 2 }
    }

    async fn run(self, stage: &Stage, extent: Extent) -> anyhow::Result<()> {
        match self {
            Self::Kills => Box::pin(processes::kills(stage, extent)).await,
            Self::Zombies => processes::zombies(stage, extent).await,
            Self::Rolling => processes::rolling(stage, extent).await,
            Self::Network => network::network(stage, extent).await,
            Self::Outages => network::outages(stage, extent).await,
            Self::Departures => network::departures(stage, extent).await,
            Self::Failovers => losses::failovers(stage, extent).await,
            Self::Drift => Box::pin(drift::run(stage, extent)).await,
            Self::Losses => losses::losses(stage, extent).await,
            Self::Regions => bail!("`regions` has two Regions, so it is fought alone"),
        }
    }
}

/// The extent of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How often each action is repeated.
    pub rounds: usize,
    /// How long each network fault lasts.
    pub span: Duration,
    /// How long a recovery may take.
    pub recovery: Duration,
}

/// Runs a campaign over a pipeline whose processes run `program`, and returns the report. All random choices follow from the
/// seed; the timing of the processes does not.
///
/// # Errors
/// A law was broken, a process died that was not killed, or a fault had no effect.
pub async fn fight(
    program: &Path,
    ground: Ground,
    campaigns: &[(Campaign, Extent)],
    under: Under,
) -> anyhow::Result<String> {
    if let [(Campaign::Regions, extent)] = campaigns {
        return Box::pin(regions::fight(program, ground, *extent, under)).await;
    }
    let began = Instant::now();
    let longest = campaigns.iter().map(|(_, extent)| extent.span).max().unwrap_or_default();
    ensure!(
        ground.broker.is_some() || longest <= EMBEDDED,
        "the in-process Kafka bears no outage of {longest:?}, only of {EMBEDDED:?}: give --broker, \
         `localstack/engines up --only kafka` starts one"
    );
    let members = campaigns.iter().map(|(campaign, extent)| campaign.members(*extent)).max().unwrap_or(2);
    let stage = Stage::set(program, ground, (members, Roles::Kept), under).await?;
    let mut names = Vec::new();
    for (campaign, extent) in campaigns {
        campaign.run(&stage, *extent).await.with_context(|| stage.fleet.tails(&name_of(campaign)))?;
        names.push(name_of(campaign));
        stage.engines.calm();
    }
    let report = stage.judge().await?;
    Ok(format!("{}: seed {}, {:.0} s\n{report}", names.join(", "), ground.seed, began.elapsed().as_secs_f64()))
}

/// How long a recovery may take on a machine that does nothing else.
const RECOVERY: Duration = Duration::from_secs(30);

/// Attack real processes of every service with signals and a bad network
#[derive(Args, Clone, Debug)]
pub struct Attack {
    /// Which campaign
    campaign: Campaign,
    /// How often each action is repeated; by default a few times
    #[arg(long)]
    rounds: Option<usize>,
    /// How many seconds each network fault lasts; by default a few
    #[arg(long)]
    seconds: Option<u64>,
    #[command(flatten)]
    ground: Ground,
    #[command(flatten)]
    under: Under,
}

impl Attack {
    /// Runs the campaign and prints its report.
    ///
    /// # Errors
    /// A law was broken, or a fault had no effect.
    pub fn run(self) -> anyhow::Result<()> {
        let Self { campaign, rounds, seconds, ground, mut under } = self;
        under.redis |= matches!(campaign, Campaign::Failovers | Campaign::Drift);
        let short = campaign.short();
        let extent = Extent {
            rounds: rounds.unwrap_or(short.rounds),
            span: seconds.map_or(short.span, Duration::from_secs),
            recovery: RECOVERY,
        };
        reported(async |program| fight(program, ground, &[(campaign, extent)], under).await)
    }
}

/// Runs a campaign over processes of this program, logs its steps, and prints its report.
pub(crate) fn reported(campaign: impl AsyncFnOnce(&Path) -> anyhow::Result<String>) -> anyhow::Result<()> {
    telemetry::install(
        LogFormat::Pretty,
        &"off,tally_e2e=info,tally_service=error".parse().map_err(anyhow::Error::msg)?,
    );
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
    let report = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
        // Dropping the campaign ends its processes.
        tokio::select! {
            report = Box::pin(campaign(&program)) => report,
            _ = terminate.recv() => bail!("stopped by a signal"),
            _ = tokio::signal::ctrl_c() => bail!("stopped by a signal"),
        }
    })?;
    write!(std::io::stdout().lock(), "{report}").context("cannot print")
}
