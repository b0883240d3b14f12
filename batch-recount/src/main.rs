//! The process `tally-batch-recount`.

use std::process::ExitCode;

use tally_batch_recount::App;

fn main() -> ExitCode {
    tally_adapters::run::<App>()
}
