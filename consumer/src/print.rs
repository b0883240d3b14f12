//! Lines on standard output, for the subcommands that answer a person.

use std::io::Write;

use anyhow::Context;

/// Prints a line. A closed pipe is an error like any other: the answer is not read.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{text}").context("cannot write the answer")
}
