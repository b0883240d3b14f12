//! Prints the answers of the verbs (subcommands) of `tally`, as a table for people or as JSON for programs. Each verb
//! returns an [`Answer`], and writes times, ranges and counts with the functions at the end.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};
use tally_core::time::UnixMillis;

use crate::health::FOUND_SOMETHING;

/// How answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people
    Table,
    /// For programs
    Json,
}

/// What a verb returns.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The answer for programs.
    json: Value,
    /// The answer for people.
    text: String,
    /// The exit code of the command.
    code: u8,
}

impl Answer {
    /// Creates the answer of a verb that found nothing wrong.
    pub(crate) fn new(json: impl Serialize, text: impl std::fmt::Display) -> Self {
        let json = serde_json::to_value(json).expect("texts and numbers always serialise");
        Self { json, text: text.to_string(), code: 0 }
    }

    /// Has the command exit with 1 if `is_wrong`.
    pub(crate) fn wrong_if(self, is_wrong: bool) -> Self {
        if is_wrong { self.exiting_with(FOUND_SOMETHING) } else { self }
    }

    pub(crate) fn exiting_with(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Writes the answer to standard output. Returns the exit code of the command.
    ///
    /// # Errors
    /// Standard output cannot be written. It is no error if its reader has ended, such as `head`.
    pub(crate) fn print(&self, form: Form) -> anyhow::Result<u8> {
        let text = match form {
            Form::Table => self.text.lines().map(plain).collect::<Vec<_>>().join("\n"),
            Form::Json => escaped(&self.json),
        };
        match writeln!(std::io::stdout().lock(), "{}", text.trim_end()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write the answer"),
            _ => Ok(self.code),
        }
    }
}

/// Returns JSON whose texts have no characters that move a terminal's cursor or reverse its text. Outside of texts it has
/// none but the ends of lines.
fn escaped(json: &Value) -> String {
    let mut escaped = String::new();
    for c in format!("{json:#}").chars() {
        if c != '\n' && misleads(c) {
            _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Returns a sum in JSON: as a text if it does not fit 64 bits.
pub(crate) fn sum(sum: i128) -> Value {
    i64::try_from(sum).map_or_else(|_| sum.to_string().into(), Value::from)
}

/// Adds a member to a JSON object, if there is a value.
pub(crate) fn add(json: &mut Value, name: &str, value: Option<impl Serialize>) {
    if let Some(value) = value {
        json[name] = json!(value);
    }
}

/// A table whose columns are as wide as their widest cells.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

/// The greatest width of a column. A longer cell pushes the rest of its line to the right.
const WIDEST: usize = 48;

impl Table {
    pub(crate) fn headed<const N: usize>(headings: [&str; N]) -> Self {
        Self { rows: vec![headings.map(str::to_uppercase).into()] }
    }

    /// Adds a row. A cell with characters that could move the cursor or reverse text is escaped as in Rust.
    pub(crate) fn row<const N: usize>(&mut self, cells: [&dyn std::fmt::Display; N]) {
        self.rows.push(cells.map(|cell| plain(&cell.to_string())).into());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0).min(WIDEST)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                write!(line, "{cell:width$}  ")?;
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Escapes a text if it has control characters or marks of direction. Ids have no control characters, but a dead letter
/// or a foreign item may.
pub(crate) fn plain(text: &str) -> String {
    if text.chars().any(misleads) { text.escape_debug().to_string() } else { text.to_owned() }
}

/// Returns whether a terminal may show the text around `c` as another one: `c` is a control character or a mark of
/// direction.
fn misleads(c: char) -> bool {
    let is_direction = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    c.is_control() || is_direction
}

/// Returns `1 letter` or `2 letters`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Lists numbers, which come in ascending order. Those that follow each other are one range: `0-3, 7`.
pub(crate) fn ranges(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Returns the value as text, or a dash where it is absent.
pub(crate) fn or_dash(value: Option<impl std::fmt::Display>) -> String {
    or(value, "-")
}

/// Returns the value as text, or `otherwise` where it is absent.
pub(crate) fn or(value: Option<impl std::fmt::Display>, otherwise: &str) -> String {
    value.map_or(otherwise.to_owned(), |value| value.to_string())
}

/// Says how long ago `at` was, or that this is not known.
pub(crate) fn past(now: UnixMillis, at: Option<UnixMillis>) -> String {
    at.map_or("a time that is not known".to_owned(), |at| format!("{} ago", ago(now.since(at))))
}

/// Returns a span in seconds, minutes, hours or days: the largest unit of which it has at least two.
pub(crate) fn ago(span: std::time::Duration) -> String {
    match span.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them_and_nothing_moves_the_cursor() {
        let mut table = Table::headed(["post", "count"]);
        table.row([&"p", &12]);
        table.row([&"a\u{1b}[2J", &3]);
        assert_eq!(table.to_string(), "POST        COUNT\np           12\na\\u{1b}[2J  3\n");
    }

    #[test]
    fn what_could_make_a_terminal_show_another_text_is_escaped_in_tables_and_in_json() {
        let marks = "\u{7f}\u{9b}\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}";
        let said = "\\u{7f}\\u{9b}\\u{61c}\\u{200e}\\u{200f}\\u{202a}\\u{202e}\\u{2066}\\u{2069}";
        assert_eq!(plain(marks), said);
        for mark in marks.chars() {
            assert!(plain(&format!("a{mark}")).is_ascii(), "{}", mark.escape_debug());
        }
        let json = serde_json::json!({ "é\u{1b}": [marks, "\n", 1] });
        let text = escaped(&json);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json);
        assert!(text.contains("é") && text.contains(r"\u009b\u061c") && text.lines().count() == 7, "{text}");
        assert!(text.chars().all(|c| c == '\n' || !misleads(c)), "{text:?}");
    }

    #[test]
    fn a_span_is_said_in_the_largest_unit_that_fits() {
        let said = |seconds| ago(Duration::from_secs(seconds));
        assert_eq!([said(0), said(119), said(120)], ["0 s", "119 s", "2 min"]);
        assert_eq!([said(7_200), said(172_799), said(172_800)], ["2 h", "47 h", "2 d"]);
    }
}
