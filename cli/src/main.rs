#![doc = include_str!("../README.md")]

mod probe;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::probe::{Found, Target};

/// Looks after a deployment of Tally
#[derive(Debug, Parser)]
#[command(name = "tally", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Asks a service whether it is well
    ///
    /// Exits with 0 if the answer is 200, with 1 if it is another one, with 69 if there is none.
    Probe {
        /// What to ask, without TLS: http://127.0.0.1:9090/livez
        url: Target,

        /// How long connection and answer may take together
        #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
        within: u64,
    },
}

/// There was an answer, and it is not the one that was hoped for.
const FOUND_SOMETHING: u8 = 1;
/// There was no answer (`EX_UNAVAILABLE` of sysexits.h).
const UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    let Command::Probe { url, within } = Args::parse().command;
    let (said, code) = match url.ask(Duration::from_secs(within)) {
        Ok(Found { status: 200, .. }) => return ExitCode::SUCCESS,
        Ok(Found { status, body }) => (format!("{url} answers {status}: {body}"), FOUND_SOMETHING),
        Err(error) => (format!("{url} does not answer: {error}"), UNAVAILABLE),
    };
    // A reader that has gone is no reason for another exit code.
    let _ = writeln!(io::stderr(), "tally: {}", said.trim_end());
    code.into()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn help_is_the_reference() {
        let mut command = Args::command().term_width(100);
        command.build();
        let probe = command.find_subcommand_mut("probe").expect("there is such a command").render_long_help();
        insta::assert_snapshot!(format!("{}\n\n{probe}", command.render_long_help()));
    }
}
