//! What the streamer keeps of an open window: every row touched since its opening marker, and what it weighs now.

use std::time::Duration;

use super::{Marker, Phase, WindowRun};
use crate::Map;
use crate::ids::{MemberKey, RowKey};
use crate::tally::{Record, RecordKind};
use crate::weight::Weight;

/// When a capture is given up; the run is then repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Members touched, over all windows open at once: what they may take of memory.
    pub members: usize,
    /// Time since the opening marker was read.
    pub age: Duration,
}

/// One open window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    run: WindowRun,
    touched: Map<MemberKey, Weight>,
    opened: Duration,
}

/// The open windows of one stream shard's reader. It must be shown every record it reads, in order, also those that
/// some counter already has: another worker being ahead changes nothing about what was touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captures {
    limits: CaptureLimits,
    open: Map<RowKey, Capture>,
    /// Members touched, over all of them.
    members: usize,
}

/// A complete window: which rows were touched between the markers, and what each weighs at the closing one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The row key recounted.
    pub key: RowKey,
    /// The window.
    pub run: WindowRun,
    /// Every member touched.
    pub touched: Map<MemberKey, Weight>,
}

impl Captures {
    /// No open windows.
    pub fn new(limits: CaptureLimits) -> Self {
        Self { limits, open: Map::default(), members: 0 }
    }

    /// Takes note of the next record read; a closing marker whose window was seen from its opening one yields a report.
    pub fn observe(&mut self, record: &Record, now: Duration) -> Option<Report> {
        match &record.kind {
            RecordKind::Row { key, member, after, .. } => {
                self.touch(key, member, *after, now);
                None
            }
            // What the row key weighs is not known, so nothing can be said of its window.
            RecordKind::Unreadable { key, .. } => {
                self.close(key);
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
        self.members = 0;
    }

    /// Gives up windows that have been open too long.
    pub fn expire(&mut self, now: Duration) {
        let age = self.limits.age;
        self.open.retain(|_, capture| now.saturating_sub(capture.opened) < age);
        self.members = self.open.values().map(|capture| capture.touched.len()).sum();
    }

    /// How many windows are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no window is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn open(&mut self, key: &RowKey, run: WindowRun, now: Duration) {
        if self.open.get(key).is_none_or(|capture| capture.run != run) {
            self.close(key);
            self.open.insert(key.clone(), Capture { run, touched: Map::default(), opened: now });
        }
    }

    fn touch(&mut self, key: &RowKey, member: &MemberKey, weight: Weight, now: Duration) {
        let Some(capture) = self.open.get_mut(key) else { return };
        self.members += usize::from(capture.touched.insert(member.clone(), weight).is_none());
        if self.members > self.limits.members || now.saturating_sub(capture.opened) >= self.limits.age {
            self.close(key);
        }
    }

    fn close(&mut self, key: &RowKey) -> Option<Capture> {
        let capture = self.open.remove(key)?;
        self.members -= capture.touched.len();
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

    const LIMITS: CaptureLimits = CaptureLimits { members: 2, age: Duration::from_secs(60) };
    const NOW: Duration = Duration::ZERO;

    fn row(user: &str, after: bool) -> Record {
        let (before, after) = (Weight::of_presence(!after), Weight::of_presence(after));
        record(RecordKind::Row {
            key: key(),
            member: MemberKey::new(user).unwrap(),
            before,
            after,
            span: None,
            regions: None,
        })
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

    fn last_report(records: &[Record]) -> Option<Vec<(String, i64)>> {
        let mut captures = Captures::new(LIMITS);
        let report = records.iter().fold(None, |_, record| captures.observe(record, NOW))?;
        let mut touched: Vec<_> =
            report.touched.iter().map(|(member, weight)| (member.to_string(), weight.get())).collect();
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
    fn a_report_has_every_row_touched_inside_the_window_and_its_last_weight() {
        let touched = last_report(&[row("x", true), low(R), row("a", true), row("b", true), row("a", false), high(R)]);
        assert_eq!(touched, Some(vec![("a".into(), 0), ("b".into(), 1)]));
    }

    #[test]
    fn a_window_whose_opening_was_not_seen_gives_no_report() {
        assert_eq!(last_report(&[row("a", true), high(R)]), None);
        assert_eq!(last_report(&[low(1), row("a", true), high(R)]), None);
    }

    #[test]
    fn a_second_copy_of_the_opening_marker_does_not_empty_the_capture() {
        assert_eq!(last_report(&[low(R), row("a", true), low(R), high(R)]), Some(vec![("a".into(), 1)]));
    }

    #[test]
    fn another_runs_opening_marker_ends_the_first_window() {
        assert_eq!(last_report(&[low(1), row("a", true), low(R), high(R)]), Some(vec![]));
        assert_eq!(last_report(&[low(1), low(R), high(1)]), None);
    }

    #[test]
    fn a_window_with_a_row_of_unreadable_weight_gives_no_report() {
        let unreadable = record(RecordKind::Unreadable { key: key(), member: MemberKey::new("a").unwrap() });
        assert_eq!(last_report(&[low(R), unreadable, row("b", true), high(R)]), None);
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
    fn a_window_too_old_is_not_reported_even_if_it_was_not_given_up_before_its_end() {
        let mut captures = Captures::new(LIMITS);
        captures.observe(&low(R), NOW);
        assert_eq!(captures.observe(&high(R), LIMITS.age), None);
    }

    #[test]
    fn windows_open_at_once_share_the_room_there_is() {
        let at = |key: &str, user: &str| {
            let (key, member) = (key.parse().unwrap(), MemberKey::new(user).unwrap());
            record(RecordKind::Row {
                key,
                member,
                before: Weight::ABSENT,
                after: Weight::ONE,
                span: None,
                regions: None,
            })
        };
        let low = |key: &str| record(RecordKind::Marker { key: key.parse().unwrap(), marker: Marker::low(R.into()) });
        let mut captures = Captures::new(LIMITS);
        for record in [low("p#0"), low("q#0"), at("p#0", "a"), at("p#0", "a"), at("q#0", "a")] {
            captures.observe(&record, NOW);
        }
        assert_eq!(captures.len(), 2);
        captures.observe(&at("q#0", "b"), NOW);
        assert_eq!(captures.len(), 1, "the window that asks for more room than there is, is given up");
        captures.observe(&at("p#0", "b"), NOW);
        assert_eq!(captures.len(), 1, "and its room is free for the others");
    }
}
