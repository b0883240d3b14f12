//! Reads the files that operators name on the command line of `tally`, for example a list of posts.

use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context;

use crate::ended::Usage;

/// Reads a file; `-` is the standard input.
pub(crate) fn text_of(file: &Path) -> anyhow::Result<String> {
    let read = match file.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(file),
    };
    read.with_context(|| format!("cannot read {}", file.display()))
}

/// Reads a file of ids, one a line. Empty lines are skipped.
pub(crate) fn ids_of<T: FromStr<Err: Display>>(file: &Path) -> anyhow::Result<Vec<T>> {
    let text = text_of(file)?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let id = |(nth, line): (usize, &str)| {
        let bad = |why: T::Err| Usage(format!("{}, line {nth}: {why}", file.display())).into();
        line.trim().parse().map_err(bad)
    };
    lines.map(id).collect()
}
