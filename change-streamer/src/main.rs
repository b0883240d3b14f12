//! The process `tally-change-streamer`.

use std::process::ExitCode;

use tally_change_streamer::App;

fn main() -> ExitCode {
    tally_adapters::run::<App>()
}
