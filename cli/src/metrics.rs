//! The metrics of `tally canary`, which likes a post again and again and measures how long it takes until a read shows
//! it; and the small HTTP server from which Prometheus reads them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::probe::now;

/// The name, labels, kind and meaning of each metric, in the form of the services' catalogues.
const CATALOGUE: [[&str; 4]; 3] = [
    ["tally_canary_seen_seconds", "", "histogram, seconds", "From a like being sent until a read has it."],
    [
        "tally_canary_staleness_seconds",
        "",
        "gauge, seconds",
        "The longest that a like was waited for in the last minute; of one that is waited for, so far.",
    ],
    [
        "tally_canary_failures_total",
        "step=read|write|seen",
        "counter, count",
        "Rounds that came to nothing, by the step that failed.",
    ],
];
const BUCKETS: [f64; 10] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];
const REMEMBERED: Duration = Duration::from_secs(60);
/// How long a scraper may take to ask and to read.
const PATIENCE: Duration = Duration::from_secs(2);

/// The steps of a round at which it may fail: the count could not be read, the like was not acknowledged, or no read has
/// shown it in time.
const STEPS: [&str; 3] = ["read", "write", "seen"];

#[derive(Clone, Debug, Default)]
pub(crate) struct Measured(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    buckets: [u64; BUCKETS.len()],
    count: u64,
    sum: f64,
    /// How many rounds failed at each step.
    failures: BTreeMap<&'static str, u64>,
    waiting: Option<Instant>,
    /// When each wait for a like ended, and how long it was.
    waits: VecDeque<(Instant, Duration)>,
}

impl Measured {
    /// Notes that a like is sent.
    pub(crate) fn begin(&self, at: Instant) {
        self.state().waiting = Some(at);
    }

    /// Notes that the wait for the like has ended: a read has shown it (`seen`), or the round has failed.
    pub(crate) fn end(&self, at: Instant, seen: bool) {
        let mut state = self.state();
        let Some(began) = state.waiting.take() else { return };
        let took = at.saturating_duration_since(began);
        state.waits.push_back((at, took));
        if seen {
            let took = took.as_secs_f64();
            state.count += 1;
            state.sum += took;
            for (bucket, bound) in state.buckets.iter_mut().zip(BUCKETS) {
                *bucket += u64::from(took <= bound);
            }
        }
    }

    pub(crate) fn failed(&self, step: &'static str) {
        *self.state().failures.entry(step).or_default() += 1;
    }

    /// Begins to serve the metrics at `address`, whatever a client asks for.
    ///
    /// # Errors
    /// Nothing can listen at the address.
    pub(crate) fn serve(&self, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address)?;
        let measured = self.clone();
        thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // A scraper that has gone away will come again.
                let _ = measured.answer(stream);
            }
        })?;
        Ok(())
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut asked = [0; 4096];
        let _ = stream.read(&mut asked)?;
        let body = self.render(now());
        let length = body.len();
        let head =
            format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes())
    }

    /// Returns the metrics in Prometheus' text format.
    fn render(&self, at: Instant) -> String {
        let mut state = self.state();
        while state.waits.front().is_some_and(|(ended, _)| at.saturating_duration_since(*ended) > REMEMBERED) {
            state.waits.pop_front();
        }
        let so_far = state.waiting.map(|began| at.saturating_duration_since(began));
        let longest = state.waits.iter().map(|(_, took)| *took).chain(so_far).max().unwrap_or_default();
        let [[seen, _, _, seen_help], [stale, _, _, stale_help], [failures, _, _, failures_help]] = CATALOGUE;
        let mut text = format!("# HELP {seen} {seen_help}\n# TYPE {seen} histogram\n");
        for (bound, count) in BUCKETS.iter().zip(state.buckets) {
            let _ = writeln!(text, "{seen}_bucket{{le=\"{bound}\"}} {count}");
        }
        let State { count, sum, .. } = *state;
        let _ = writeln!(text, "{seen}_bucket{{le=\"+Inf\"}} {count}\n{seen}_sum {sum}\n{seen}_count {count}");
        let _ = writeln!(text, "# HELP {stale} {stale_help}\n# TYPE {stale} gauge\n{stale} {}", longest.as_secs_f64());
        let _ = writeln!(text, "# HELP {failures} {failures_help}\n# TYPE {failures} counter");
        for step in STEPS {
            let count = state.failures.get(step).unwrap_or(&0);
            let _ = writeln!(text, "{failures}{{step=\"{step}\"}} {count}");
        }
        text
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_what_rules_rely_on() {
        let lines = CATALOGUE.map(|[name, labels, kind, help]| format!("{name}{{{labels}}} {kind}: {help}"));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn waits_are_counted_once_seen_and_the_longest_of_a_minute_is_shown_as_is_a_round_that_failed() {
        let (measured, start) = (Measured::default(), now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let shown = |seconds: u64, metric: &str| {
            let text = measured.render(at(seconds));
            text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' ')).unwrap().to_owned()
        };
        let staleness = |seconds: u64| shown(seconds, "tally_canary_staleness_seconds");
        measured.begin(at(0));
        assert_eq!(staleness(3), "3");
        measured.end(at(4), true);
        measured.begin(at(10));
        measured.end(at(11), true);
        assert_eq!(staleness(20), "4");
        assert_eq!(shown(20, "tally_canary_seen_seconds_bucket{le=\"2\"}"), "1");
        assert_eq!([staleness(65), staleness(99)], ["1", "0"]);
        measured.begin(at(100));
        measured.end(at(130), false);
        measured.failed("seen");
        assert_eq!((staleness(131), shown(131, "tally_canary_seen_seconds_count")), ("30".to_owned(), "2".to_owned()));
        let failures =
            ["seen", "read"].map(|step| shown(131, &format!("tally_canary_failures_total{{step=\"{step}\"}}")));
        assert_eq!(failures, ["1", "0"]);
    }
}
