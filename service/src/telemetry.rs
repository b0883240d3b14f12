//! Installs the process's log: structured events, each exactly one line on standard error, whatever bytes its fields
//! contain.

mod gathered;
mod json;

use std::fmt;
use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::str::FromStr;
use std::sync::{Arc, Once, OnceLock};
use std::thread;

use clap::ValueEnum;
use parking_lot::RwLock;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt as _};

use crate::task::panic_message;
use gathered::Gathered;

/// The default filter of noisy targets. The SDK logs a warning with a dump of its request for each provider that has no
/// credentials, and Tally's own error names the problem.
const QUIET: &str = "aws_config=error";

static STDERR: OnceLock<Gathered<io::Stderr>> = OnceLock::new();
static LEVEL: OnceLock<Level> = OnceLock::new();

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line
    Json,
    /// Text for people, still one line an event
    Pretty,
}

/// Which events are written: a level, and levels for single targets, such as `info,tally_consumer=debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(String);

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse::<Targets>().map_err(|error| error.to_string())?;
        if text.contains(char::is_control) {
            return Err("it has control characters".to_owned());
        }
        // For `Targets` a word alone is a target: a misspelled level would silence everything else.
        let mut words = text.split(',').filter(|part| !part.contains('=') || part.ends_with('='));
        match words.find(|word| word.parse::<LevelFilter>().is_err()) {
            Some(word) => Err(format!(
                "`{word}` is no level: off, error, warn, info, debug or trace; of a target write `{word}=debug`"
            )),
            None => Ok(Self(text.to_owned())),
        }
    }
}

/// The current filter. Clones share it. Each call site asks once and again after each change, so a filter that can
/// change costs no more per event than a fixed one.
#[derive(Clone)]
pub struct Level(Arc<RwLock<(Filter, Targets)>>);

impl Level {
    fn new(filter: &Filter) -> Self {
        Self(Arc::new(RwLock::new((filter.clone(), targets(filter)))))
    }

    pub fn filter(&self) -> Filter {
        self.0.read().0.clone()
    }

    pub fn set(&self, filter: Filter) {
        let targets = targets(&filter);
        *self.0.write() = (filter, targets);
        tracing::callsite::rebuild_interest_cache();
    }
}

fn targets(filter: &Filter) -> Targets {
    format!("{QUIET},{}", filter.0).parse().expect("both parts are filters")
}

impl<S: Subscriber> Layer<S> for Level {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Layer::<S>::register_callsite(&self.0.read().1, metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>, context: Context<'_, S>) -> bool {
        Layer::<S>::enabled(&self.0.read().1, metadata, context)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Layer::<S>::max_level_hint(&self.0.read().1)
    }
}

/// Writes this process's events, including its panics, to standard error. Only the first call has an effect; a later
/// one, by another service in the same process, changes nothing. Returns the level, which can be changed.
pub fn install(format: LogFormat, filter: &Filter) -> Level {
    static PANIC_HOOK: Once = Once::new();
    let stderr = STDERR.get_or_init(|| Gathered::new(io::stderr()));
    let level = LEVEL.get_or_init(|| Level::new(filter));
    let subscriber = subscriber(format, level.clone(), stderr.clone());
    // An error means that a subscriber is installed already, which is fine.
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        // Without this thread, lines would wait until the buffer is full.
        let _ = thread::Builder::new().name("log".to_owned()).spawn(|| stderr.attend());
    }
    PANIC_HOOK.call_once(|| std::panic::set_hook(Box::new(log_panic)));
    level.clone()
}

/// Writes the buffered lines at the end of the process.
pub fn write_out() {
    if let Some(stderr) = STDERR.get() {
        stderr.write_out();
    }
}

fn subscriber<W>(format: LogFormat, level: Level, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    // An error while writing an event would be printed on standard error, and end the process if that fails.
    let builder =
        tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false).log_internal_errors(false);
    match format {
        LogFormat::Json => {
            let builder = builder.fmt_fields(json::Members).event_format(json::Object);
            Box::new(builder.with_writer(writer).finish().with(level))
        }
        LogFormat::Pretty => Box::new(builder.with_writer(OneLine(writer)).finish().with(level)),
    }
}

/// Writes each event with every character escaped that could end a line or control a terminal, so that text in a field
/// cannot forge another event. The formatter hands over each event whole.
struct OneLine<W>(W);

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for OneLine<W> {
    type Writer = Line<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        Line(self.0.make_writer())
    }

    fn make_writer_for(&'w self, meta: &Metadata<'_>) -> Self::Writer {
        Line(self.0.make_writer_for(meta))
    }
}

struct Line<W>(W);

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
fn breaks_a_line(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    tracing::error!(
        location,
        thread = thread.name().unwrap_or("unnamed"),
        "panicked: {}",
        panic_message(panic.payload())
    );
}

#[cfg(test)]
pub(crate) mod tests;
