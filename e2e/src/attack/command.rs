//! `attack`: a campaign as long as it is asked for, and its report.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::campaign::{Campaign, Extent, Under, fight};

/// How long a recovery from bad weather may take on a machine that does nothing else.
const RECOVERY: Duration = Duration::from_secs(30);

/// Attack real processes of every service with signals and a bad network
#[derive(Args, Clone, Debug)]
pub struct Attack {
    /// Which campaign
    campaign: Campaign,
    /// How often each thing is done; few unless said otherwise
    #[arg(long)]
    rounds: Option<usize>,
    /// How many seconds each kind of bad weather lasts; few unless said otherwise
    #[arg(long)]
    seconds: Option<u64>,
    /// What everything drawn follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A Kafka of one broker on this machine, IP:PORT, that has `likes`, `likes.dlq`, `changes` and `changes.anew`, all empty; one in this
    /// process unless said otherwise
    #[arg(long)]
    broker: Option<SocketAddr>,
    /// With a Redis, which has to be installed; without this there is one where it is
    #[arg(long)]
    redis: bool,
    /// The share of events that add to a sum, in percent; half of them unless said otherwise
    #[arg(long, value_name = "SHARE", value_parser = clap::value_parser!(u64).range(0..=100))]
    sums: Option<u64>,
    /// How many posts the events are about; few unless said otherwise
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    posts: Option<u64>,
    /// Events a second; 200 unless said otherwise
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rate: Option<u64>,
}

impl Attack {
    /// Fights it and prints its report.
    ///
    /// # Errors
    /// A law was broken, or the attack did not bite.
    pub fn run(self) -> anyhow::Result<()> {
        let Self { campaign, rounds, seconds, seed, broker, redis, sums, posts, rate } = self;
        let under = Under::new(redis || matches!(campaign, Campaign::Failovers | Campaign::Drift), sums, posts, rate);
        let short = campaign.short();
        let extent = Extent {
            rounds: rounds.unwrap_or(short.rounds),
            span: seconds.map_or(short.span, Duration::from_secs),
            recovery: RECOVERY,
        };
        let program = std::env::current_exe().context("cannot tell which program this is")?;
        let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
        let campaigns = [(campaign, extent)];
        let report = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
            // Left half-way, a campaign takes its processes with it.
            tokio::select! {
                report = fight(&program, broker, seed, &campaigns, under) => report,
                _ = terminate.recv() => bail!("ended by a signal"),
                _ = tokio::signal::ctrl_c() => bail!("ended by a signal"),
            }
        })?;
        write!(std::io::stdout().lock(), "{report}").context("cannot print")
    }
}
