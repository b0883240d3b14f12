//! Runs the consumer, the process that reads events such as likes from Kafka and writes them as rows of the table
//! `likes`. `app.rs` puts it together.

use std::process::ExitCode;

fn main() -> ExitCode {
    tally_adapters::run::<tally_consumer::App>()
}
