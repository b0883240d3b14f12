//! What the streamer keeps of an open window: everybody touched since its opening marker, and whether they like now.

use std::time::Duration;

use super::{Marker, Phase, RunId};
use crate::Map;
use crate::ids::{RowKey, UserId};
use crate::tally::{Record, RecordKind};

/// When a capture is given up; the run is then repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Users touched, over all windows open at once: what they may take of memory.
    pub users: usize,
    /// Time since the opening marker was read.
    pub age: Duration,
}

/// One open window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    run: RunId,
    touched: Map<UserId, bool>,
    opened: Duration,
}

/// The open windows of one stream shard's reader. It must be shown every record it reads, in order, also those that
/// some counter already has: another worker being ahead changes nothing about what was touched.
#[derive(Clone, Debug)]
pub struct Captures {
    limits: CaptureLimits,
    open: Map<RowKey, Capture>,
    /// Users touched, over all of them.
    users: usize,
}

/// A complete window: who was touched between the markers, and whether each likes at the closing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The row key recounted.
    pub key: RowKey,
    /// The run.
    pub run: RunId,
    /// Everybody touched.
    pub touched: Map<UserId, bool>,
}

impl Captures {
    /// No open windows.
    pub fn new(limits: CaptureLimits) -> Self {
        Self { limits, open: Map::default(), users: 0 }
    }

    /// Takes note of the next record read; a closing marker whose window was seen from its opening one yields a report.
    pub fn observe(&mut self, record: &Record, now: Duration) -> Option<Report> {
        match &record.kind {
            RecordKind::Row { key, user, after, .. } => {
                self.touch(key, user, *after, now);
                None
            }
            RecordKind::Marker { key, marker: Marker { run, phase: Phase::Low } } => {
                self.open(key, *run, now);
                None
            }
            RecordKind::Marker { key, marker: Marker { run, phase: Phase::High } } => {
                let capture = self.close(key)?;
                let counts = capture.run == *run && !self.is_over(&capture, now);
                counts.then(|| Report { key: key.clone(), run: *run, touched: capture.touched })
            }
            RecordKind::Reserved | RecordKind::Foreign(_) => None,
        }
    }

    /// Reading did not go on right after the last record read: a trim, a restart, another position. Every open window
    /// may have missed something.
    pub fn discontinuity(&mut self) {
        self.open.clear();
        self.users = 0;
    }

    /// Gives up windows that have been open too long.
    pub fn expire(&mut self, now: Duration) {
        let age = self.limits.age;
        self.open.retain(|_, capture| now.saturating_sub(capture.opened) < age);
        self.users = self.open.values().map(|capture| capture.touched.len()).sum();
    }

    /// How many windows are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no window is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn open(&mut self, key: &RowKey, run: RunId, now: Duration) {
        if self.open.get(key).is_none_or(|capture| capture.run != run) {
            self.close(key);
            self.open.insert(key.clone(), Capture { run, touched: Map::default(), opened: now });
        }
    }

    fn touch(&mut self, key: &RowKey, user: &UserId, likes: bool, now: Duration) {
        let Some(capture) = self.open.get_mut(key) else { return };
        self.users += usize::from(capture.touched.insert(user.clone(), likes).is_none());
        if self.users > self.limits.users || now.saturating_sub(capture.opened) >= self.limits.age {
            self.close(key);
        }
    }

    fn close(&mut self, key: &RowKey) -> Option<Capture> {
        let capture = self.open.remove(key)?;
        self.users -= capture.touched.len();
        Some(capture)
    }

    fn is_over(&self, capture: &Capture, now: Duration) -> bool {
        now.saturating_sub(capture.opened) >= self.limits.age
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Sequence;
    use crate::time::UnixMillis;

    const LIMITS: CaptureLimits = CaptureLimits { users: 2, age: Duration::from_secs(60) };
    const NOW: Duration = Duration::ZERO;

    fn row(user: &str, after: bool) -> Record {
        let user = UserId::new(user).unwrap();
        record(RecordKind::Row { key: key(), user, before: !after, after })
    }

    fn marker(marker: Marker) -> Record {
        record(RecordKind::Marker { key: key(), marker })
    }

    fn record(kind: RecordKind) -> Record {
        Record { sequence: Sequence::from(1), written: UnixMillis(0), kind }
    }

    fn key() -> RowKey {
        "p#0".parse().unwrap()
    }

    fn last_report(records: &[Record]) -> Option<Vec<(String, bool)>> {
        let mut captures = Captures::new(LIMITS);
        let report = records.iter().fold(None, |_, record| captures.observe(record, NOW))?;
        let mut touched: Vec<_> = report.touched.iter().map(|(user, likes)| (user.to_string(), *likes)).collect();
        touched.sort();
        Some(touched)
    }

    const R: u128 = 7;

    fn low(run: u128) -> Record {
        marker(Marker::low(run.into()))
    }

    fn high(run: u128) -> Record {
        marker(Marker::high(run.into()))
    }

    #[test]
    fn a_report_has_everybody_touched_inside_the_window_and_their_last_state() {
        let touched = last_report(&[row("x", true), low(R), row("a", true), row("b", true), row("a", false), high(R)]);
        assert_eq!(touched, Some(vec![("a".into(), false), ("b".into(), true)]));
    }

    #[test]
    fn a_window_whose_opening_was_not_seen_gives_no_report() {
        assert_eq!(last_report(&[row("a", true), high(R)]), None);
        assert_eq!(last_report(&[low(1), row("a", true), high(R)]), None);
    }

    #[test]
    fn a_second_copy_of_the_opening_marker_does_not_empty_the_capture() {
        assert_eq!(last_report(&[low(R), row("a", true), low(R), high(R)]), Some(vec![("a".into(), true)]));
    }

    #[test]
    fn another_runs_opening_marker_ends_the_first_window() {
        assert_eq!(last_report(&[low(1), row("a", true), low(R), high(R)]), Some(vec![]));
        assert_eq!(last_report(&[low(1), low(R), high(1)]), None);
    }

    #[test]
    fn a_discontinuity_drops_every_capture() {
        let mut captures = Captures::new(LIMITS);
        captures.observe(&low(R), NOW);
        captures.discontinuity();
        assert_eq!(captures.observe(&high(R), NOW), None);
    }

    #[test]
    fn a_window_too_wide_or_too_old_is_given_up() {
        assert_eq!(last_report(&[low(R), row("a", true), row("b", true), row("c", true), high(R)]), None);
        let mut captures = Captures::new(LIMITS);
        captures.observe(&low(R), NOW);
        captures.expire(LIMITS.age);
        assert!(captures.is_empty());
    }

    #[test]
    fn a_window_too_old_is_not_reported_even_if_nobody_looked_before_its_end() {
        let mut captures = Captures::new(LIMITS);
        captures.observe(&low(R), NOW);
        assert_eq!(captures.observe(&high(R), LIMITS.age), None);
    }

    #[test]
    fn windows_open_at_once_share_the_room_there_is() {
        let at = |key: &str, user: &str| {
            let (key, user) = (key.parse().unwrap(), UserId::new(user).unwrap());
            record(RecordKind::Row { key, user, before: false, after: true })
        };
        let low = |key: &str| record(RecordKind::Marker { key: key.parse().unwrap(), marker: Marker::low(R.into()) });
        let mut captures = Captures::new(LIMITS);
        for record in [low("p#0"), low("q#0"), at("p#0", "a"), at("p#0", "a"), at("q#0", "a")] {
            captures.observe(&record, NOW);
        }
        assert_eq!(captures.len(), 2);
        captures.observe(&at("q#0", "b"), NOW);
        assert_eq!(captures.len(), 1, "whoever asks for more than there is, gives up");
        captures.observe(&at("p#0", "b"), NOW);
        assert_eq!(captures.len(), 1, "and leaves its room to the others");
    }
}
