//! Starts the HTTP API, which answers counts to clients and accepts their likes. `app.rs` puts it together.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_adapters::run::<tally_count_api::App>()
}
