//! The one command: the whole pipeline on this machine.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_service::run::<tally_localstack::App>()
}
