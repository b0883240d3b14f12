//! The attack on Tally.

use clap::{Parser, Subcommand};
use tally_e2e::simulation::command::{Schedule, Simulate};

/// Tries to break Tally
#[derive(Parser)]
#[command(name = "tally-e2e", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Simulate(Simulate),
    Schedule(Schedule),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Simulate(simulate) => simulate.run(),
        Command::Schedule(schedule) => schedule.run(),
    }
}
