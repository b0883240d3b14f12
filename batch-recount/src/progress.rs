//! How far a recount has come: a bar with rate and time left on a terminal, JSON lines otherwise.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tally_core::audit::Summary;
use tally_service::Clock;

use crate::findings::Table;

/// The bar where it is not known how many rows there are, and where it is.
const COUNTING: &str = "{spinner} {elapsed_precise} {human_pos} rows, {per_sec}; {msg}";
const MEASURING: &str = "{elapsed_precise} {bar:30} {human_pos}/{human_len} rows, {per_sec}, {eta} left; {msg}";

/// Where progress is shown.
pub(crate) struct Progress {
    clock: Clock,
    began: Duration,
    bar: Option<ProgressBar>,
    quiet: bool,
    /// Rows an earlier audit has counted: what this one may expect.
    expected: u64,
    segments: Mutex<Segments>,
}

#[derive(Debug, Default)]
struct Segments {
    all: BTreeSet<u32>,
    done: BTreeSet<u32>,
}

impl Progress {
    /// On the terminal, if there is one. `expected` is how many rows there may be, 0 where it is not known.
    pub(crate) fn new(expected: u64, clock: Clock) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(expected));
        Self { bar, quiet: false, expected, ..Self::silent(clock) }
    }

    /// Shows nothing: for the recounts of a watching process.
    pub(crate) fn silent(clock: Clock) -> Self {
        let began = clock.reading().at;
        Self { clock, began, bar: None, quiet: true, expected: 0, segments: Mutex::default() }
    }

    pub(crate) fn expect(&self, segment: u32) {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).all.insert(segment);
    }

    pub(crate) fn done(&self, segment: u32) {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner).done.insert(segment);
    }

    pub(crate) fn rows(&self, rows: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(rows);
        }
    }

    /// Says how far things are.
    pub(crate) fn report(&self, summary: &Summary) {
        let segments = self.segments.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, all) = (segments.done.len(), segments.all.len());
        if let Some(bar) = &self.bar {
            let found = summary.found();
            bar.set_message(format!("{done}/{all} segments, {found} differ, {} corrected", summary.corrected));
            return;
        }
        if !self.quiet {
            let line = self.line(summary, done, all);
            // A closed pipe is no failure of the recount.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }

    /// Shows no more, and prints what it came to.
    pub(crate) fn finish(&self, run: impl std::fmt::Display, summary: &Summary) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            let _ = write!(std::io::stdout(), "recount {run}\n{}", Table(summary));
        } else if !self.quiet {
            let _ = writeln!(std::io::stdout(), "{}", json!({"run": run.to_string(), "summary": summary}));
        }
    }

    fn line(&self, summary: &Summary, done: usize, all: usize) -> serde_json::Value {
        let elapsed = self.clock.reading().at.saturating_sub(self.began).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "rows stay far below 2^52")]
        let (rate, left) = {
            let rate = summary.rows as f64 / elapsed.max(0.001);
            (rate, self.expected.saturating_sub(summary.rows) as f64 / rate.max(1.0))
        };
        json!({"progress": {
            "elapsed_seconds": elapsed.round(),
            "rows": summary.rows,
            "rows_per_second": rate.round(),
            "seconds_left": (self.expected > 0).then(|| left.round()),
            "segments_done": done,
            "segments": all,
            "found": summary.found(),
            "corrected": summary.corrected,
        }})
    }
}

fn bar(expected: u64) -> ProgressBar {
    let (bar, template) =
        if expected == 0 { (ProgressBar::new_spinner(), COUNTING) } else { (ProgressBar::new(expected), MEASURING) };
    // A template that does not parse leaves the default one.
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use tally_core::time::UnixMillis;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_says_rate_and_time_left() {
        let clock = Clock::starting_at(UnixMillis(0));
        let progress = Progress { expected: 1_000, ..Progress::silent(clock) };
        clock.sleep(Duration::from_secs(4)).await;
        let summary = Summary { rows: 200, ..Summary::default() };
        let line = progress.line(&summary, 1, 5);
        assert_eq!(
            (&line["progress"]["rows_per_second"], &line["progress"]["seconds_left"]),
            (&json!(50.0), &json!(16.0))
        );
        let unknown = Progress::silent(clock).line(&summary, 1, 5);
        assert_eq!(unknown["progress"]["seconds_left"], json!(null));
    }

    #[test]
    fn the_bars_templates_are_valid() {
        assert_eq!(bar(0).length(), None);
        assert_eq!(bar(10).length(), Some(10));
        for template in [COUNTING, MEASURING] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
