#![doc = include_str!("../README.md")]

mod args;
mod canary;
mod change;
mod desk;
mod ended;
mod given;
mod health;
mod metrics;
mod probe;
mod said;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

use crate::args::Args;

/// What the program `tally` does.
pub fn run() -> ExitCode {
    verbs::run(Args::parse())
}
