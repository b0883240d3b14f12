//! Starts the process that makes lists of what is trending from the topic `changes`. `app.rs` puts it together.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_adapters::run::<tally_trends::App>()
}
