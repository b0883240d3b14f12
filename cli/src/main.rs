//! The program `tally`, the operators' command.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_cli::run()
}
