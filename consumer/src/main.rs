//! The process `tally-consumer`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_service::run::<tally_consumer::App>()
}
