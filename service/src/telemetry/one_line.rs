//! A writer that keeps each event on one line, so that text in a field cannot forge another event.

use std::io::{self, Write};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// Writes each event with every character escaped that could end a line or control a terminal. The formatter hands over
/// each event whole.
pub(super) struct OneLine<W>(pub(super) W);

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for OneLine<W> {
    type Writer = Line<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        Line(self.0.make_writer())
    }

    fn make_writer_for(&'w self, meta: &Metadata<'_>) -> Self::Writer {
        Line(self.0.make_writer_for(meta))
    }
}

pub(super) struct Line<W>(W);

impl<W: Write> Write for Line<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let text = text.strip_suffix('\n').unwrap_or(&text);
        let escaped = |c| if breaks_a_line(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
        let mut line = if text.contains(breaks_a_line) { text.chars().map(escaped).collect() } else { text.to_owned() };
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns whether `c` is a control character of either set, or Unicode's line or paragraph separator. All are below
/// U+10000.
pub(super) fn breaks_a_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}
