//! The process `tally-count-api`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_service::run::<tally_count_api::App>()
}
