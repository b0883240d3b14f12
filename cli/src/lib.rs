// The operators' command `tally`: shows a deployment's state, and changes it where it is told to.
// The README is the documentation.

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

/// Runs the program `tally` with the arguments of this process. Returns its exit code.
pub fn run() -> std::process::ExitCode {
    args::run()
}
