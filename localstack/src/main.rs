//! Starts the local stack, which runs the whole pipeline in one process on this machine.

use std::process::ExitCode;

use tally_service::Invalid;

fn main() -> ExitCode {
    tally_service::run::<tally_localstack::App>(Invalid::none)
}
