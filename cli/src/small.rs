//! The small program in container images, built as `tally-probe` and called `tally` there. It has two verbs of the
//! operators' command alone: `probe`, the images' health check, and `canary`, which measures how long a like takes
//! until a read shows it.

mod canary;
mod health;
mod metrics;
mod probe;

use std::process::ExitCode;

use clap::Parser;

use crate::health::Health;

/// Asks services whether they are well, and measures a like from one end to the other
#[derive(Debug, Parser)]
#[command(name = "tally", version)]
struct Args {
    #[command(subcommand)]
    command: Health,
}

fn main() -> ExitCode {
    Args::parse().command.run()
}
