//! How the command ends where it cannot answer: one line, and an exit code that says whose turn it is.

use tally_core::fault::Fault;
use tally_core::format::UnknownFormat;
use tally_service::Invalid;

use crate::health::{CONFIGURATION, FOUND_SOMETHING, UNAVAILABLE};
use crate::said::plain;

/// The command line fits no verb, beyond what its parser sees (`EX_USAGE` of clap).
const USAGE: u8 = 2;

/// What is missing on the command line for what was asked.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The exit code after `error`.
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

/// The error and its causes in one line, without control characters: a file's name may have some.
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
