//! The operators' command as a program.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_cli::run()
}
