//! Runs the change-streamer, the process that copies the change stream of the table `likes` into the topic `changes`,
//! and keeps the counters and Redis from there. `app.rs` puts it together.

use std::process::ExitCode;

use tally_change_streamer::App;

fn main() -> ExitCode {
    tally_adapters::run::<App>()
}
