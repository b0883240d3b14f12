//! How long a run will take from now on, by how fast it has gone so far.

use std::time::Duration;

/// No run that still says how far it is ends sooner.
pub(super) const LEAST: f64 = 1.0;

/// What is known when a run's end is estimated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate {
    /// How far the tables are read; `None` for a run that does not read them whole.
    pub(super) scan: Option<Scan>,
    pub(super) followed_up: FollowedUp,
    /// The time of the process.
    pub(super) now: Duration,
}

/// How far the tables are read, in items: rows and counters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan {
    pub(super) read: u64,
    /// How many there may be; 0 where that is not known.
    pub(super) expected: u64,
    /// Segments read to their end, of how many.
    pub(super) segments_read: usize,
    pub(super) segments: usize,
    pub(super) took: Duration,
}

/// What became of row keys that reading did not prove.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FollowedUp {
    pub(super) doubted: u64,
    /// Those of them that were settled without a window.
    pub(super) looked: u64,
    /// Row keys that need windows, and those of them that are settled.
    pub(super) asked: u64,
    pub(super) settled: u64,
    /// When the first window was asked for.
    pub(super) began: Option<Duration>,
}

impl Estimate {
    /// The seconds left; `None` while nothing is known of some work that is left.
    pub(super) fn seconds_left(&self) -> Option<f64> {
        // Windows are opened while more is read.
        Some(self.reading()?.max(self.windows()?).max(LEAST))
    }

    fn reading(&self) -> Option<f64> {
        let Some(scan) = &self.scan else {
            // Row keys by name: those that are not asked for yet are not known.
            return (self.followed_up.asked > 0).then_some(0.0);
        };
        at_the_pace_of(float(scan.read), scan.unread()?, scan.took)
    }

    fn windows(&self) -> Option<f64> {
        let FollowedUp { doubted, looked, asked, settled, began } = self.followed_up;
        let decided = looked + asked;
        let undecided = float(doubted.saturating_sub(decided));
        // What is not read yet will raise doubts, too, and as many of them will need windows.
        let unread = self.scan.map_or(Some(0.0), |scan| Some(scan.unread()? / float(scan.read).max(1.0)))?;
        let doubts = undecided + float(doubted.max(decided)) * unread;
        let coming = match decided {
            0 if undecided > 0.0 => return None,
            0 => 0.0,
            _ => doubts * float(asked) / float(decided),
        };
        let left = float(asked.saturating_sub(settled)) + coming;
        let took = began.map_or(Duration::ZERO, |began| self.now.saturating_sub(began));
        at_the_pace_of(float(settled), left, took)
    }
}

impl Scan {
    /// How many items are not read yet, as far as that can be told.
    fn unread(&self) -> Option<f64> {
        let Self { read, expected, segments_read, segments, .. } = *self;
        if segments > 0 && segments_read >= segments {
            return Some(0.0);
        }
        match expected.checked_sub(read) {
            Some(unread) if unread > 0 => Some(float(unread)),
            // More than were expected: segments are of about one size.
            _ if segments_read > 0 => {
                let share = float((segments - segments_read) as u64) / float(segments_read as u64);
                Some(float(read) * share)
            }
            _ => None,
        }
    }
}

/// How long `left` takes where `done` took so long.
fn at_the_pace_of(done: f64, left: f64, took: Duration) -> Option<f64> {
    if left <= 0.0 { Some(0.0) } else { (done > 0.0).then(|| left / done * took.as_secs_f64()) }
}

#[expect(clippy::cast_precision_loss, reason = "items stay far below 2^52")]
fn float(items: u64) -> f64 {
    items as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: fn(u64) -> Duration = Duration::from_secs;

    fn scan(read: u64, segments_read: usize) -> Option<Scan> {
        Some(Scan { read, expected: 1_000, segments_read, segments: 10, took: SECONDS(10) })
    }

    fn left(scan: Option<Scan>, followed_up: FollowedUp) -> Option<f64> {
        Estimate { scan, followed_up, now: SECONDS(10) }.seconds_left()
    }

    #[test]
    fn a_run_that_only_reads_goes_on_as_it_went() {
        assert_eq!(left(scan(250, 0), FollowedUp::default()), Some(30.0));
        assert_eq!(left(scan(0, 0), FollowedUp::default()), None, "nothing is read yet");
        assert_eq!(left(scan(990, 10), FollowedUp::default()), Some(LEAST), "fewer than were expected");
    }

    #[test]
    fn where_there_is_more_than_was_expected_segments_say_how_much() {
        assert_eq!(left(scan(1_500, 5), FollowedUp::default()), Some(10.0));
        assert_eq!(left(scan(1_500, 0), FollowedUp::default()), None);
    }

    #[test]
    fn windows_take_the_longer_of_both() {
        let followed_up = FollowedUp { doubted: 40, looked: 30, asked: 10, settled: 2, began: Some(SECONDS(2)) };
        assert_eq!(left(scan(1_000, 10), followed_up), Some(32.0), "8 more at 4 s each");
        let half = left(scan(500, 5), followed_up);
        assert_eq!(half, Some(72.0), "as many again will come of the other half");
    }

    #[test]
    fn doubts_that_were_not_looked_at_yet_need_windows_as_often_as_others_did() {
        let followed_up = FollowedUp { doubted: 40, looked: 10, asked: 10, settled: 5, began: Some(SECONDS(5)) };
        assert_eq!(left(scan(1_000, 10), followed_up), Some(15.0), "5 that were asked for, and 10 of the other 20");
        let none = FollowedUp { doubted: 40, ..FollowedUp::default() };
        assert_eq!(left(scan(1_000, 10), none), None);
    }
}
