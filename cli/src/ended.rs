//! How `tally`, the operators' command, ends with an error: the line that it prints, and the exit code that says who
//! can mend it.

use tally_core::fault::Fault;
use tally_core::format::UnknownFormat;
use tally_service::Invalid;
use thiserror::Error;

use crate::health::{CONFIGURATION, FOUND_SOMETHING, UNAVAILABLE};
use crate::said::plain;

/// The command line is wrong. Clap exits with this code, too.
const USAGE: u8 = 2;

/// An error in the command line that clap does not find. The message says what to change.
#[derive(Debug, Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Returns the exit code for `error`, by the first of its causes that has one.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if cause.is::<Usage>() {
            return USAGE;
        }
        if cause.is::<Invalid>() || cause.is::<UnknownFormat>() {
            return CONFIGURATION;
        }
        match cause.downcast_ref::<Fault>() {
            Some(Fault::Fatal(_)) => return CONFIGURATION,
            Some(Fault::Transient(_) | Fault::Throttled(_)) => return UNAVAILABLE,
            Some(Fault::Poison(_)) | None => {}
        }
    }
    FOUND_SOMETHING
}

/// Returns the error and its causes in one line. Control characters, which a file's name may have, are escaped.
pub(crate) fn line(error: &anyhow::Error) -> String {
    plain(&format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_and_one_of_a_busy_store_says_to_try_again() {
        let said = line(&anyhow::anyhow!("at line 1\n  |\n1 | colour").context("cannot read \u{1b}"));
        assert_eq!(said, "cannot read \\u{1b}: at line 1 | 1 | colour");
        assert_eq!(code(&Fault::Throttled("busy".to_owned()).into()), UNAVAILABLE);
    }
}
