//! The process `tally-consumer`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_adapters::run::<tally_consumer::App>()
}
