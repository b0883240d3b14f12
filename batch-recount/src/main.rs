//! Runs a recount, the process that compares counters with the rows they count, while both change, and repairs the
//! counters that differ. `app.rs` puts it together.

use std::process::ExitCode;

use tally_batch_recount::App;

fn main() -> ExitCode {
    tally_adapters::run::<App>()
}
