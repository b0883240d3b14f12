//! `lifecycle`: a campaign as long as it is asked for, and its report.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use tally_service::parse_duration;
use tokio::signal::unix::{SignalKind, signal};

use super::{lose_checkpoints, mixed, rebuild, restore};

/// Put a deployment of real processes through what it has to survive
#[derive(Args, Clone, Debug)]
pub struct Lifecycle {
    #[command(subcommand)]
    what: What,

    /// What everything drawn follows from
    #[arg(long, default_value_t = 1, global = true)]
    seed: u64,

    /// A Kafka of one broker on this machine, IP:PORT, that has `likes` and `likes.dlq`, both empty; one in this process
    /// unless said otherwise
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
    /// The checkpoints are lost with the configuration, and the counts are rebuilt
    LoseCheckpoints,
    /// The counts are lost, and rebuilt from the rows of so many posts
    Rebuild {
        #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
        posts: u32,
    },
    /// Processes of this build beside those of an older one, forward and back
    Mixed {
        /// Where the older binaries are
        #[arg(long, value_name = "DIR")]
        old: PathBuf,

        /// Say likes and unlikes only: the older build is one of before several counters
        #[arg(long)]
        likes_alone: bool,
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
                    What::Rebuild { posts } => rebuild(&program, posts).await,
                    What::Mixed { old, likes_alone } => mixed(&program, &old, broker, seed, likes_alone).await,
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
