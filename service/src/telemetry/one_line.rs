//! A writer that keeps each event on one line, so that text in a field cannot forge another event.

use std::borrow::Cow;
use std::fmt::Write as _;
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
        let mut line = escaped(text.strip_suffix('\n').unwrap_or(&text)).into_owned();
        line.push('\n');
        self.0.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(breaks_a_line) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if breaks_a_line(c) {
            // Writing to a string cannot fail.
            let _ = write!(line, "\\u{:04x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    Cow::Owned(line)
}

/// Returns whether `c` is a control character of either set, or Unicode's line or paragraph separator. All are below
/// U+10000.
pub(super) fn breaks_a_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}
