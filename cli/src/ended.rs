//! How the command ends with an error: the line that it prints, and the exit code that says who can mend it.

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
    use anyhow::{Context, anyhow};
    use tally_core::format::Format;

    use super::*;

    #[test]
    fn the_exit_code_says_whose_turn_it_is() {
        let fault = |fault: Fault| code(&Err::<(), _>(fault).context("cannot read the losses").unwrap_err());
        assert_eq!(fault(Fault::Transient("no answer".into())), 69);
        assert_eq!(fault(Fault::Throttled("slow down".into())), 69);
        assert_eq!(fault(Fault::Fatal("access denied".into())), 78);
        assert_eq!(fault(Fault::Poison("an item".into())), 1);
        assert_eq!(code(&UnknownFormat(Format::Number(7)).into()), 78);
        assert_eq!(code(&Invalid::setting("brokers", "missing").into()), 78);
        assert_eq!(code(&Usage("say --reason".into()).into()), 2);
        assert_eq!(code(&anyhow!("anything else")), 1);
    }

    #[test]
    fn an_error_is_one_line_whatever_it_says() {
        let error = anyhow!("two\n  lines").context("cannot look");
        assert_eq!(line(&error), "cannot look: two lines");
        assert_eq!(line(&anyhow!("cannot open \u{1b}[2Jlikes")), "cannot open \\u{1b}[2Jlikes");
    }
}
