//! The process `tally-trends`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_service::run::<tally_trends::App>()
}
