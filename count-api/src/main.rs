//! The process `tally-count-api`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_adapters::run::<tally_count_api::App>()
}
