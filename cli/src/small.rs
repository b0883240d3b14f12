//! The program `tally-probe`, which images have under the name `tally`: only `probe`, their health check, and `canary`.

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
