//! The one command: the whole pipeline on this machine.

use std::process::ExitCode;

use tally_service::Invalid;

fn main() -> ExitCode {
    tally_service::run::<tally_localstack::App>(Invalid::none)
}
