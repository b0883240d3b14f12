//! `lifecycle`: a campaign as long as it is asked for, and its report.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use tally_service::parse_duration;
use tokio::signal::unix::{SignalKind, signal};

use super::{lose_checkpoints, lose_counts, restore};

/// Put a deployment of real processes through what it has to survive
#[derive(Args, Clone, Debug)]
pub struct Lifecycle {
    #[command(subcommand)]
    what: What,

    /// What everything drawn follows from
    #[arg(long, default_value_t = 1, global = true)]
    seed: u64,

    /// A Kafka of one broker on this machine, IP:PORT, that has `likes`, `likes.dlq`, `changes` and `changes.anew`, all empty; one in this
    /// process unless said otherwise
    #[arg(long, global = true)]
    broker: Option<SocketAddr>,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Tables are restored to a moment, as `tally restore plan` says, and Kafka is read again
    Restore {
        /// How long ago the moment is by then
        #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "SPAN")]
        lose: Duration,
    },
    /// The checkpoints are lost with the configuration, and a recount makes all counts exact again
    LoseCheckpoints,
    /// The table of counts is lost under running processes, and a recount makes all counts exact again
    LoseCounts {
        /// Posts that nobody likes any more, beside those that the load is about
        #[arg(long, default_value_t = 100_000, value_name = "COUNT")]
        posts: u64,
    },
}

impl Lifecycle {
    /// Does it and prints its report.
    ///
    /// # Errors
    /// Something differs, or was not as an operator is told that it is.
    pub fn run(self) -> anyhow::Result<()> {
        let Self { what, seed, broker } = self;
        let program = std::env::current_exe().context("cannot tell which program this is")?;
        let runtime = tokio::runtime::Runtime::new().context("cannot start a runtime")?;
        let report = runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
            let lived = async {
                match what {
                    What::Restore { lose } => restore(&program, broker, seed, lose).await,
                    What::LoseCheckpoints => lose_checkpoints(&program, broker, seed).await,
                    What::LoseCounts { posts } => lose_counts(&program, broker, seed, posts).await,
                }
            };
            // Left half-way, a campaign takes its processes with it.
            tokio::select! {
                report = Box::pin(lived) => report,
                _ = terminate.recv() => bail!("ended by a signal"),
                _ = tokio::signal::ctrl_c() => bail!("ended by a signal"),
            }
        })?;
        write!(std::io::stdout().lock(), "{report}").context("cannot print")
    }
}
