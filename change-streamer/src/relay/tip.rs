//! Two judgements about one reader of a stream shard. [`Pace`] is how long it waits before the next read: not at all
//! under load, longer and longer while nothing comes. [`Tip`] is whether it is close to the newest record, so that an
//! empty page shows that it has read everything. An empty page alone proves nothing, since empty pages before records
//! are normal; but a reader that has once reached the newest record stays close to it while it keeps up.

use std::time::Duration;

use tally_core::time::UnixMillis;

/// How many empty pages in a row show that a reader has reached the newest record, from wherever it began.
const RUN: u32 = 4;

/// Records older than this when they are read show that more wait behind them. The service states times to the second.
const RECENT: Duration = Duration::from_secs(5);

/// What a page shows of how far behind its reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// No record, which proves nothing.
    Nothing,
    /// Records, the newest of them written at this time.
    Few {
        /// When the newest was written.
        newest: UnixMillis,
    },
    /// At least half of the records that a page may have.
    Many,
}

/// How close one reader is to the newest record of its shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tip {
    /// After a silence longer than this, a reader may be far behind again.
    contact: Duration,
    empties: u32,
    reached: bool,
    asked: Option<UnixMillis>,
}

impl Tip {
    /// Takes a reader that waits no longer than `idle` between two pages. Nothing else is known of it yet.
    pub(crate) fn new(idle: Duration) -> Self {
        let contact = (idle * 6).max(Duration::from_secs(60));
        Self { contact, empties: 0, reached: false, asked: None }
    }

    /// Takes note of a page that was asked for at `asked`. Returns `asked` if the page shows that everything written
    /// before then was read. What was written during the call may be missing.
    pub(crate) fn page(&mut self, shown: Shown, asked: UnixMillis) -> Option<UnixMillis> {
        let lost_contact = self.asked.replace(asked).is_none_or(|before| asked.since(before) > self.contact);
        let is_behind = match shown {
            Shown::Nothing => false,
            Shown::Few { newest } => asked.since(newest) > RECENT,
            Shown::Many => true,
        };
        if lost_contact || is_behind {
            (self.empties, self.reached) = (0, false);
        }
        self.empties = if shown == Shown::Nothing { self.empties + 1 } else { 0 };
        self.reached |= self.empties >= RUN;
        (shown == Shown::Nothing && self.reached).then_some(asked)
    }

    /// Returns whether the reader is close to the newest record.
    pub(crate) fn is_reached(&self) -> bool {
        self.reached
    }

    /// Forgets everything, since reading goes on at another place.
    pub(crate) fn moved(&mut self) {
        (self.empties, self.reached, self.asked) = (0, false, None);
    }
}

/// The least wait after a page with few records, for each stream shard that this process reads: its readers together
/// ask at most five hundred times a second, while little is written.
const EACH: Duration = Duration::from_millis(2);

/// The wait after a page with few records, and the first wait after an empty one.
const BUSY: Duration = Duration::from_millis(25);

/// How long one reader waits between reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The longest wait.
    idle: Duration,
    wait: Duration,
}

impl Pace {
    pub(crate) fn new(idle: Duration) -> Self {
        Self { idle, wait: Duration::ZERO }
    }

    /// Returns the wait before the next read.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// Takes note of a page of `records`, where `limit` were asked for. After a page that is at least half full the
    /// next read follows at once. `readers` is how many stream shards this process reads.
    pub(crate) fn page(&mut self, records: usize, limit: usize, readers: usize) {
        let readers = u32::try_from(readers).unwrap_or(u32::MAX);
        let busy = BUSY.max(EACH.saturating_mul(readers)).min(self.idle);
        self.wait = match records {
            0 => (self.wait * 2).clamp(busy, self.idle),
            few if few * 2 < limit => busy,
            _ => Duration::ZERO,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Shown = Shown::Nothing;

    /// A few records, the newest written at this second.
    fn few(second: u64) -> Shown {
        Shown::Few { newest: UnixMillis(second * 1000) }
    }

    /// The pages by which a reader reaches the newest record.
    const REACHED: [(Shown, u64); 4] = [(NONE, 1), (NONE, 2), (NONE, 3), (NONE, 4)];

    /// Returns what each of these pages, asked for at such a second, claims of a reader that waits for so many seconds.
    fn claims(idle: u64, pages: &[(Shown, u64)]) -> Vec<Option<u64>> {
        let mut tip = Tip::new(Duration::from_secs(idle));
        pages.iter().map(|(shown, at)| tip.page(*shown, UnixMillis(at * 1000)).map(|at| at.0 / 1000)).collect()
    }

    #[test]
    fn an_empty_page_proves_nothing_until_several_came_in_a_row() {
        let again = REACHED.map(|(_, at)| (NONE, at + 4));
        let read = claims(1, &[&REACHED[..3], &[(few(4), 4)], &again].concat());
        assert_eq!(read, [None, None, None, None, None, None, None, Some(8)]);
        let slow = REACHED.map(|(_, at)| (NONE, at * 100));
        assert_eq!(claims(20, &slow), [None, None, None, Some(400)], "a reader that is to wait for long keeps contact");
    }

    #[test]
    fn a_reader_at_the_tip_stays_there_until_it_is_behind_or_silent_or_moved() {
        let then = |pages: &[(Shown, u64)]| claims(1, &[&REACHED[..], pages].concat())[3..].to_vec();
        assert_eq!(then(&[(few(4), 5), (NONE, 6)]), [Some(4), None, Some(6)], "it keeps up");
        for behind in [Shown::Many, few(50)] {
            assert_eq!(then(&[(behind, 60), (NONE, 61), (behind, 62)]), [Some(4), None, None, None], "{behind:?}");
        }
        assert_eq!(then(&[(NONE, 64)]), [Some(4), Some(64)]);
        assert_eq!(then(&[(NONE, 65)]), [Some(4), None], "it was silent for more than a minute");
        let new = Tip::new(Duration::from_secs(1));
        let mut tip = Tip { empties: RUN, reached: true, asked: Some(UnixMillis(4000)), ..new };
        tip.moved();
        assert!(!tip.is_reached());
        assert_eq!(tip.page(NONE, UnixMillis(5000)), None);
    }

    #[test]
    fn reading_is_immediate_under_load_and_slows_down_to_the_idle_wait() {
        let waits = |idle, readers, pages: &[usize]| {
            let mut pace = Pace::new(Duration::from_millis(idle));
            let wait = |records: &usize| {
                pace.page(*records, 1000, readers);
                pace.wait().as_millis()
            };
            pages.iter().map(wait).collect::<Vec<_>>()
        };
        assert_eq!(Pace::new(Duration::from_millis(150)).wait(), Duration::ZERO, "the first read waits for nothing");
        assert_eq!(waits(150, 4, &[1000, 500, 3, 0, 0, 0, 0, 1, 1000]), [0, 0, 25, 50, 100, 150, 150, 25, 0]);
        assert_eq!(waits(5, 4, &[0, 1, 0]), [5; 3], "an idle wait below the busy one bounds both");
        // A process that reads many stream shards asks each of them less often, but reads at once what waits.
        assert_eq!([waits(150, 12, &[3]), waits(150, usize::MAX, &[3])], [[25], [150]]);
        assert_eq!(waits(150, 50, &[3, 0, 1000]), [100, 150, 0]);
    }
}
