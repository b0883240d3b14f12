//! Formats events as JSON objects, each written once and directly into its line. There is one for every request, and a
//! serializer that parses its own spans again costs more than the request does. Characters that could end a line are
//! escaped.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::breaks_a_line;

/// The size in bytes of most events.
const LINE: usize = 512;

/// The members of every event. A field with one of these names gets an underscore.
const OURS: [&str; 4] = ["timestamp", "level", "target", "spans"];

/// An event as one object: its time, level, fields, target and spans from the root.
pub(super) struct Object;

impl<S> FormatEvent<S, Members> for Object
where
    S: Subscriber + for<'s> LookupSpan<'s>,
{
    fn format_event(&self, context: &FmtContext<'_, S, Members>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        // Each piece written to the writer is a dynamic call; in a string it is mostly a copy.
        let mut line = String::with_capacity(LINE);
        line.push_str(r#"{"timestamp":""#);
        SystemTime.format_time(&mut Writer::new(&mut line))?;
        line.push_str(r#"","level":""#);
        line.push_str(metadata.level().as_str());
        line.push('"');
        members(&mut line, event)?;
        line.push_str(r#","target":"#);
        string(&mut line, metadata.target())?;
        if let Some(spans) = context.event_scope() {
            line.push_str(r#","spans":["#);
            for (index, span) in spans.from_root().enumerate() {
                line.push_str(if index == 0 { "{" } else { ",{" });
                if let Some(members) =
                    span.extensions().get::<FormattedFields<Members>>().filter(|members| !members.is_empty())
                {
                    line.push_str(members.trim_start_matches(','));
                    line.push(',');
                }
                // The name comes after the fields: if a field has the same name, readers keep the last one.
                line.push_str(r#""name":"#);
                string(&mut line, span.name())?;
                line.push('}');
            }
            line.push(']');
        }
        line.push_str("}\n");
        to.write_str(&line)
    }
}

/// Fields as further members of an object, each after a comma.
pub(super) struct Members;

impl<'w> FormatFields<'w> for Members {
    fn format_fields<R: RecordFields>(&self, mut to: Writer<'w>, fields: R) -> fmt::Result {
        members(&mut to, &fields)
    }

    fn add_fields(&self, current: &'w mut FormattedFields<Self>, fields: &tracing::span::Record<'_>) -> fmt::Result {
        self.format_fields(current.as_writer(), fields)
    }
}

fn members(to: &mut impl Write, fields: &impl RecordFields) -> fmt::Result {
    let mut visitor = Visitor { to, result: Ok(()) };
    fields.record(&mut visitor);
    visitor.result
}

struct Visitor<'t, W> {
    to: &'t mut W,
    result: fmt::Result,
}

impl<W: Write> Visitor<'_, W> {
    fn member(&mut self, field: &Field, value: impl FnOnce(&mut W) -> fmt::Result) {
        if self.result.is_ok() {
            self.result = name(self.to, field.name()).and_then(|()| value(self.to));
        }
    }
}

impl<W: Write> Visit for Visitor<'_, W> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinite numbers and no NaN.
        self.member(field, |to| if value.is_finite() { write!(to, "{value}") } else { to.write_str("null") });
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.member(field, |to| write!(to, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.member(field, |to| write!(to, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.member(field, |to| write!(to, "{value}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.member(field, |to| string(to, value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.member(field, |to| quoted(to, format_args!("{value:?}")));
    }
}

fn name(to: &mut impl Write, name: &str) -> fmt::Result {
    to.write_str(",\"")?;
    Escaped(to).write_str(name)?;
    to.write_str(if OURS.contains(&name) { "_\":" } else { "\":" })
}

fn string(to: &mut impl Write, text: &str) -> fmt::Result {
    to.write_char('"')?;
    Escaped(to).write_str(text)?;
    to.write_char('"')
}

fn quoted(to: &mut impl Write, text: fmt::Arguments<'_>) -> fmt::Result {
    to.write_char('"')?;
    Escaped(to).write_fmt(text)?;
    to.write_char('"')
}

/// Escapes the inside of a JSON string.
struct Escaped<'t, W>(&'t mut W);

impl<W: Write> Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
        // The loop does not stop early, so that the compiler can check many bytes at once.
        if text.bytes().fold(true, |all, byte| all & plain(byte)) {
            return self.0.write_str(text);
        }
        for c in text.chars() {
            match c {
                '"' | '\\' => write!(self.0, "\\{c}")?,
                c if breaks_a_line(c) => write!(self.0, "\\u{:04x}", u32::from(c))?,
                c => self.0.write_char(c)?,
            }
        }
        Ok(())
    }
}
