//! What the local stack prints on standard output: lines that stay, and one live line with its state that is rewritten
//! each second. In a file or a pipe the live line is written like any other, every few seconds.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_service::Stop;
use tokio::time::Instant;

use crate::local::Local;
use crate::page::{Limit, PartState, Snapshot, Staleness};

/// Between two live lines where they are not rewritten.
const QUIET: Duration = Duration::from_secs(5);
/// Between two where they are.
const EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Screen(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Where the live line can be rewritten.
    terminal: bool,
    /// The cursor stands behind a live line.
    live: bool,
    written: Option<Instant>,
    step: &'static str,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let terminal = std::io::stdout().is_terminal();
        Self(Mutex::new(State { terminal, live: false, written: None, step: "" }))
    }

    /// Writes lines that stay.
    pub(crate) fn say(&self, text: &str) {
        let mut state = self.0.lock();
        let clear = if std::mem::take(&mut state.live) { "\r\x1b[2K" } else { "" };
        print(&format!("{clear}{}\n", text.trim_end()));
    }

    fn clear(&self) {
        if std::mem::take(&mut self.0.lock().live) {
            print("\r\x1b[2K");
        }
    }

    /// Says what is being waited for, in place of the live line; in a file or a pipe once.
    pub(crate) fn step(&self, text: &'static str) {
        let mut state = self.0.lock();
        if std::mem::replace(&mut state.step, text) != text {
            state.written = None;
            drop(state);
            self.live(text);
        }
    }

    pub(crate) fn live(&self, text: &str) {
        let mut state = self.0.lock();
        if state.terminal {
            state.live = true;
            print(&format!("\r\x1b[2K{text}"));
        } else if state.written.is_none_or(|at| at.elapsed() >= QUIET) {
            state.written = Some(Instant::now());
            print(&format!("{text}\n"));
        }
    }
}

/// Writes the live line until it is stopped.
pub(crate) async fn live_line(local: Arc<Local>, stop: Stop) -> anyhow::Result<()> {
    while stop.unless_requested(tokio::time::sleep(EVERY)).await.is_ok() {
        local.screen.live(&line(&local.board.lock()));
    }
    local.screen.clear();
    Ok(())
}

fn line(seen: &Snapshot) -> String {
    let staleness = match seen.staleness {
        Some(Staleness { p50_ms, p99_ms }) => format!("staleness p50 {p50_ms:.0} ms p99 {p99_ms:.0} ms"),
        None => "staleness -".to_owned(),
    };
    let down: Vec<&str> =
        seen.parts.iter().filter(|part| part.state != PartState::Up).map(|part| part.name.as_str()).collect();
    let down = if down.is_empty() { String::new() } else { format!("   not up: {}", down.join(", ")) };
    let limit = match seen.load.limit {
        Some(Limit::Gate) => " (held back by the load's gate)",
        Some(Limit::Generator) => " (the load makes no more)",
        None => "",
    };
    format!(
        "{:>6.0} events/s{limit}   {} events   {} rows   {staleness}   drift {}{down}",
        seen.load.events_per_second, seen.load.events, seen.rows, seen.drift.found
    )
}

/// Errors are ignored: where the pipe is closed, there is no reader.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
