//! The process `tally-trends`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_adapters::run::<tally_trends::App>()
}
