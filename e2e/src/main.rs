//! The program `tally-e2e`: what tries to break Tally, one subcommand each. Campaigns start this same program again
//! under a service's name, or as the operators' command `tally`, and then it runs that.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tally_e2e::attack::{Attack, called};
use tally_e2e::lifecycle::Lifecycle;
use tally_e2e::scale::Scale;
use tally_e2e::simulation::Order;
use tally_e2e::simulation::command::Simulate;

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
    Schedule(Order),
    Attack(Attack),
    Scale(Scale),
    Lifecycle(Lifecycle),
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = called() {
        return Ok(code);
    }
    match Args::parse().command {
        Command::Simulate(simulate) => simulate.run()?,
        Command::Schedule(schedule) => schedule.run()?,
        Command::Attack(attack) => attack.run()?,
        Command::Scale(scale) => scale.run()?,
        Command::Lifecycle(lifecycle) => lifecycle.run()?,
    }
    Ok(ExitCode::SUCCESS)
}
