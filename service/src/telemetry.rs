//! Log events: structured, each exactly one line on standard error, whatever bytes its fields contain.

mod gathered;
mod json;
mod level;
mod one_line;

use std::fmt;
use std::io;
use std::panic::PanicHookInfo;
use std::str::FromStr;
use std::sync::{Once, OnceLock};
use std::thread;

use clap::ValueEnum;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::task::panic_message;
use gathered::Gathered;
pub use level::Level;
use one_line::OneLine;

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
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        text.parse::<Targets>()?;
        Ok(Self(text.to_owned()))
    }
}

/// Writes this process's events, including its panics, to standard error. Only the first call has an effect; a later one, by
/// another service in the same process, changes nothing. The result can change which events are written.
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
