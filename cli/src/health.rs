//! The verbs `tally probe`, which asks a service whether it is well, and `tally canary`, which measures how long a like
//! takes until a read shows it; and the exit codes of `tally`. Both verbs need nothing but HTTP without TLS. The
//! operators' command has them, and so has `tally-probe`, the small program in container images.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;

use crate::canary::Canary;
use crate::probe::{Found, Target};

#[derive(Debug, Subcommand)]
pub(crate) enum Health {
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
    /// Likes a post of its own again and again, and measures how long it takes until a read shows it
    ///
    /// It likes and unlikes one post in turn, so that nothing is left behind. Exits with 0 if every round of --rounds
    /// was seen, with 1 if one was not, with 78 if the address of --listen cannot be used.
    Canary(Canary),
}

/// The command found something wrong.
pub(crate) const FOUND_SOMETHING: u8 = 1;
/// There was no answer (`EX_UNAVAILABLE` of sysexits.h).
pub(crate) const UNAVAILABLE: u8 = 69;
/// Configuration or permissions are wrong (`EX_CONFIG` of sysexits.h).
pub(crate) const CONFIGURATION: u8 = 78;

impl Health {
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Probe { url, within } => probed(&url, Duration::from_secs(within)),
            Self::Canary(canary) => sung(&canary),
        }
    }
}

fn probed(url: &Target, within: Duration) -> ExitCode {
    let (said, code) = match url.ask(within) {
        Ok(Found { status: 200, .. }) => return ExitCode::SUCCESS,
        Ok(Found { status, body, .. }) => (format!("{url} answers {status}: {body}"), FOUND_SOMETHING),
        Err(error) => (format!("{url} does not answer: {error}"), UNAVAILABLE),
    };
    say(&said);
    code.into()
}

fn sung(canary: &Canary) -> ExitCode {
    match canary.run(say) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => FOUND_SOMETHING.into(),
        Err(error) => {
            say(&format!("--listen: {error}"));
            CONFIGURATION.into()
        }
    }
}

/// Writes a line to standard error. A failure to do so is ignored, since it must not change the exit code.
pub(crate) fn say(said: &str) {
    let _ = writeln!(io::stderr(), "tally: {}", said.trim_end());
}
