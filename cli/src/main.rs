//! The program `tally`, with which operators look at a deployment of Tally, check it and repair it. Its subcommands are
//! modules of this crate's library, in `verbs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_cli::run()
}
