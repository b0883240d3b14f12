//! Shows people how far a recount is: a bar with rate and time left on a terminal, JSON lines otherwise, and no lines
//! for a caller that prints an answer of its own.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use serde_json::json;
use tally_core::audit::{RunRecord, Summary};
use tally_service::Clock;

/// The bar's templates: while the number of rows is unknown, and once it is known.
const COUNTING: &str = "{spinner} {elapsed_precise} {human_pos} rows and counters, {per_sec}; {msg}";
const MEASURING: &str = "{elapsed_precise} {bar:30} {human_pos}/{human_len} rows and counters, {per_sec}; {msg}";

/// The least time left that a run shows while it goes on, in seconds.
const LEAST: f64 = 1.0;

/// Shows the progress of one run.
pub(crate) struct Progress {
    clock: Clock,
    began: Duration,
    bar: Option<ProgressBar>,
    /// Whether anything is written to the standard output.
    prints: bool,
    /// For a run that reads whole tables: how many rows and counters it has to read, going by an earlier audit; 0 if
    /// there was none.
    tables: Option<u64>,
    /// When the first row key came into doubt.
    doubted: Mutex<Option<Duration>>,
}

impl Progress {
    /// Shows progress on the terminal, if there is one, and on the standard output if it `prints`. `tables` says how
    /// many items there are to read, for a run that reads whole tables.
    pub(crate) fn new(tables: Option<u64>, clock: Clock, prints: bool) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(tables.unwrap_or_default()));
        Self { clock, began: clock.reading().at, bar, prints, tables, doubted: Mutex::default() }
    }

    /// Shows how far the run is, by what this process has found.
    pub(crate) fn report(&self, own: &Summary) {
        if let Some(bar) = &self.bar {
            bar.set_position(own.rows + own.counters);
            bar.set_message(self.message(own));
        } else if self.prints {
            let line = self.line(own);
            // A closed pipe is no failure of the recount.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }

    /// Removes the bar, and prints the summary.
    pub(crate) fn finish(&self, record: &RunRecord) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if !self.prints {
            return;
        }
        if self.bar.is_some() {
            let _ = write!(std::io::stdout(), "recount {}\n{}", record.run, record.summary);
        } else {
            let _ = writeln!(std::io::stdout(), "{}", record.to_json());
        }
    }

    fn message(&self, own: &Summary) -> String {
        let left = match self.seconds_left(own) {
            Some(left) => format!("{left:.0} s left"),
            None => "time left unknown".to_owned(),
        };
        let Summary { doubted, settled, corrected, .. } = own;
        format!("{left}; {settled}/{doubted} row keys looked at, {} differ, {corrected} corrected", own.found())
    }

    fn line(&self, own: &Summary) -> serde_json::Value {
        let elapsed = self.clock.reading().at.saturating_sub(self.began).as_secs_f64();
        json!({"progress": {
            "elapsed_seconds": elapsed.round(),
            "rows": own.rows,
            "rows_per_second": (float(own.rows) / elapsed.max(0.001)).round(),
            "seconds_left": self.seconds_left(own).map(f64::round),
            "row_keys_in_doubt": own.doubted,
            "row_keys_settled": own.settled,
            "found": own.found(),
            "corrected": own.corrections(),
        }})
    }

    /// Returns how many seconds the run will still take; `None` while that is unknown.
    fn seconds_left(&self, own: &Summary) -> Option<f64> {
        let now = self.clock.reading().at;
        let reading = match self.tables {
            Some(0) => return None,
            Some(items) => {
                let read = own.rows + own.counters;
                at_the_pace_of(read, items.saturating_sub(read), now.saturating_sub(self.began))?
            }
            None if own.doubted == 0 => return None,
            None => 0.0,
        };
        let mut doubted = self.doubted.lock();
        if own.doubted > 0 {
            doubted.get_or_insert(now);
        }
        let since = doubted.map_or(Duration::ZERO, |began| now.saturating_sub(began));
        let looking = at_the_pace_of(own.settled, own.doubted.saturating_sub(own.settled), since)?;
        Some((reading + looking).max(LEAST))
    }
}

/// Returns how many seconds `left` will take at the pace of what is done; `None` if nothing is.
fn at_the_pace_of(done: u64, left: u64, took: Duration) -> Option<f64> {
    match (done, left) {
        (_, 0) => Some(0.0),
        (0, _) => None,
        (done, left) => Some(took.as_secs_f64() / float(done) * float(left)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "rows stay far below 2^52")]
fn float(n: u64) -> f64 {
    n as f64
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

    fn left(progress: &Progress, rows: u64, (settled, doubted): (u64, u64)) -> serde_json::Value {
        let summary = Summary { rows, doubted, settled, ..Summary::default() };
        progress.line(&summary)["progress"]["seconds_left"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_says_rate_and_time_left_once_that_can_be_told() {
        let clock = Clock::starting_at(UnixMillis(0));
        let (audit, posts) = (Progress::new(Some(1_000), clock, false), Progress::new(None, clock, false));
        assert_eq!(left(&audit, 0, (0, 0)), json!(null), "nothing is read yet");
        assert_eq!(left(&posts, 12, (0, 4)), json!(null), "no row key is settled yet");
        clock.sleep(Duration::from_secs(4)).await;
        let line = audit.line(&Summary { rows: 200, ..Summary::default() });
        assert_eq!(line["progress"]["rows_per_second"], json!(50.0));
        assert_eq!(left(&audit, 200, (0, 0)), json!(16.0));
        assert_eq!(left(&Progress::new(Some(0), clock, false), 200, (0, 0)), json!(null), "no audit before this one");
        clock.sleep(Duration::from_secs(2)).await;
        assert_eq!(left(&posts, 12, (3, 4)), json!(2.0), "some posts have no rows of the whole table");
        assert_eq!(left(&audit, 1_000, (0, 0)), json!(1.0));
        assert_eq!(left(&audit, 1_000, (0, 40)), json!(null), "looks are to come");
        clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(left(&audit, 1_000, (10, 40)), json!(180.0));
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
