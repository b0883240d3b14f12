//! How far a recount has come: a bar with rate and time left on a terminal, JSON lines otherwise.

mod left;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tally_core::audit::Summary;
use tally_service::Clock;

use crate::findings::Table;
use left::{Estimate, FollowedUp, Scan};

/// The bar where it is not known how many rows there are, and where it is.
const COUNTING: &str = "{spinner} {elapsed_precise} {human_pos} rows, {per_sec}; {msg}";
const MEASURING: &str = "{elapsed_precise} {bar:30} {human_pos}/{human_len} rows, {per_sec}; {msg}";

/// Where progress is shown.
pub(crate) struct Progress {
    clock: Clock,
    began: Duration,
    bar: Option<ProgressBar>,
    quiet: bool,
    tables: Option<Tables>,
    segments: Mutex<Segments>,
    followed_up: Mutex<FollowedUp>,
}

/// What a run that reads whole tables may expect of them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tables {
    /// Rows and counters that an earlier audit has met; 0 where there was none.
    pub(crate) rows: u64,
    pub(crate) counters: u64,
    /// Items that this run had read before this process took part.
    pub(crate) read: u64,
}

#[derive(Debug, Default)]
struct Segments {
    all: BTreeSet<u32>,
    /// Those that are read to their end.
    read: BTreeSet<u32>,
    /// Those in which nothing is left to be settled, too.
    done: BTreeSet<u32>,
}

impl Progress {
    /// On the terminal, if there is one. `tables` is what is known of the tables that the run reads, if it reads them whole.
    pub(crate) fn new(tables: Option<Tables>, clock: Clock) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| bar(tables.unwrap_or_default().rows));
        Self { bar, quiet: false, tables, ..Self::silent(clock) }
    }

    /// Shows nothing: for the recounts of a watching process.
    pub(crate) fn silent(clock: Clock) -> Self {
        let (segments, followed_up) = (Mutex::default(), Mutex::default());
        Self { clock, began: clock.reading().at, bar: None, quiet: true, tables: None, segments, followed_up }
    }

    pub(crate) fn expect(&self, segment: u32) {
        self.segments().all.insert(segment);
    }

    /// A segment is read to its end; what was found in it may have to be settled still.
    pub(crate) fn read(&self, segment: u32) {
        self.segments().read.insert(segment);
    }

    pub(crate) fn done(&self, segment: u32) {
        let mut segments = self.segments();
        segments.read.insert(segment);
        segments.done.insert(segment);
    }

    /// Row keys are in doubt.
    pub(crate) fn doubted(&self, keys: usize) {
        self.followed_up().doubted += keys as u64;
    }

    /// Doubts are settled without a window.
    pub(crate) fn looked(&self, keys: u64) {
        self.followed_up().looked += keys;
    }

    /// Row keys need windows, `doubted` or not.
    pub(crate) fn asked(&self, keys: usize) {
        let now = self.clock.reading().at;
        let mut followed_up = self.followed_up();
        followed_up.began.get_or_insert(now);
        followed_up.asked += keys as u64;
    }

    /// A row key that needed windows is settled, or left.
    pub(crate) fn settled(&self) {
        self.followed_up().settled += 1;
    }

    fn segments(&self) -> MutexGuard<'_, Segments> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn followed_up(&self) -> MutexGuard<'_, FollowedUp> {
        self.followed_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn rows(&self, rows: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(rows);
        }
    }

    /// Says how far things are: what this process has found, and every process that takes part together.
    pub(crate) fn report(&self, own: &Summary, whole: &Summary) {
        if let Some(bar) = &self.bar {
            bar.set_message(self.message(own, whole));
        } else if !self.quiet {
            let line = self.line(own, whole);
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

    fn message(&self, own: &Summary, whole: &Summary) -> String {
        let left = match self.seconds_left(whole) {
            Some(left) => format!("{left:.0} s left"),
            None => "time left unknown".to_owned(),
        };
        let (segments, found) = (self.segments(), own.found());
        let (done, all) = (segments.done.len(), segments.all.len());
        format!("{left}; {done}/{all} segments, {found} differ, {} corrected", own.corrected)
    }

    fn line(&self, own: &Summary, whole: &Summary) -> serde_json::Value {
        let elapsed = self.elapsed().as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "rows stay far below 2^52")]
        let rate = own.rows as f64 / elapsed.max(0.001);
        let left = self.seconds_left(whole);
        let segments = self.segments();
        json!({"progress": {
            "elapsed_seconds": elapsed.round(),
            "rows": own.rows,
            "rows_per_second": rate.round(),
            "seconds_left": left.map(f64::round),
            "segments_done": segments.done.len(),
            "segments": segments.all.len(),
            "row_keys_in_doubt": own.doubted,
            "row_keys_settled": own.settled,
            "found": own.found(),
            "corrected": own.corrected,
        }})
    }

    fn elapsed(&self) -> Duration {
        self.clock.reading().at.saturating_sub(self.began)
    }

    /// How long the run will take from now on; `None` while that cannot be told.
    fn seconds_left(&self, whole: &Summary) -> Option<f64> {
        let (followed_up, now) = (*self.followed_up(), self.clock.reading().at);
        let scan = self.tables.map(|tables| {
            let segments = self.segments();
            Scan {
                read: (whole.rows + whole.posts).saturating_sub(tables.read),
                expected: (tables.rows + tables.counters).saturating_sub(tables.read),
                segments_read: segments.read.len(),
                segments: segments.all.len(),
                took: self.elapsed(),
            }
        });
        let left = Estimate { scan, followed_up, now }.seconds_left();
        // How long a segment takes to close that is read and has nothing to be settled is not known.
        left.filter(|left| *left > left::LEAST || !self.only_closes())
    }

    /// Whether segments of whole tables are read to their end, every one of them, and not done.
    fn only_closes(&self) -> bool {
        let segments = self.segments();
        self.tables.is_some() && segments.read.len() >= segments.all.len() && segments.done.len() < segments.all.len()
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

    const TABLES: Tables = Tables { rows: 900, counters: 100, read: 0 };

    fn left(progress: &Progress, rows: u64) -> serde_json::Value {
        let summary = Summary { rows, ..Summary::default() };
        progress.line(&summary, &summary)["progress"]["seconds_left"].clone()
    }

    fn audit(tables: Tables, clock: Clock) -> Progress {
        let progress = Progress { tables: Some(tables), ..Progress::silent(clock) };
        (0..4).for_each(|segment| progress.expect(segment));
        progress
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_says_rate_and_time_left() {
        let clock = Clock::starting_at(UnixMillis(0));
        let progress = audit(TABLES, clock);
        clock.sleep(Duration::from_secs(4)).await;
        let summary = Summary { rows: 200, ..Summary::default() };
        let line = progress.line(&summary, &summary);
        assert_eq!(
            (&line["progress"]["rows_per_second"], &line["progress"]["seconds_left"]),
            (&json!(50.0), &json!(16.0))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_said_of_the_time_left_before_anything_is_read() {
        let clock = Clock::starting_at(UnixMillis(0));
        let progress = audit(Tables { rows: 65_893, ..TABLES }, clock);
        clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(left(&progress, 0), json!(null));
        assert_eq!(left(&audit(Tables::default(), clock), 200), json!(null), "no audit before this one");
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_of_some_posts_expects_no_rows_of_the_whole_table() {
        let clock = Clock::starting_at(UnixMillis(0));
        let progress = Progress::silent(clock);
        progress.asked(4);
        clock.sleep(Duration::from_secs(6)).await;
        assert_eq!(left(&progress, 12), json!(null), "no row key is settled yet");
        (0..3).for_each(|_| progress.settled());
        assert_eq!(left(&progress, 12), json!(2.0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_has_read_everything_still_counts_the_windows_to_come() {
        let clock = Clock::starting_at(UnixMillis(0));
        let progress = audit(TABLES, clock);
        progress.doubted(40);
        clock.sleep(Duration::from_secs(10)).await;
        (0..4).for_each(|segment| progress.read(segment));
        progress.looked(10);
        progress.asked(30);
        clock.sleep(Duration::from_secs(60)).await;
        (0..10).for_each(|_| progress.settled());
        assert_eq!(left(&progress, 900), json!(120.0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_continued_is_measured_by_what_is_read_since() {
        let clock = Clock::starting_at(UnixMillis(0));
        let progress = audit(Tables { read: 600, ..TABLES }, clock);
        clock.sleep(Duration::from_secs(10)).await;
        assert_eq!(left(&progress, 700), json!(30.0), "300 are left at 10 a second");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_said_of_the_time_left_while_segments_only_close() {
        let clock = Clock::starting_at(UnixMillis(0));
        let progress = audit(TABLES, clock);
        clock.sleep(Duration::from_secs(10)).await;
        (0..4).for_each(|segment| progress.read(segment));
        assert_eq!(left(&progress, 900), json!(null));
        (0..4).for_each(|segment| progress.done(segment));
        assert_eq!(left(&progress, 900), json!(1.0));
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
