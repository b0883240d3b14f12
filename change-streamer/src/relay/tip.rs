//! Until when a reader may say that it has read everything: an empty page is no proof, for empty pages before records
//! are normal, but a reader that has reached the newest record once stays close to it while it keeps up.

use std::time::Duration;

use tally_core::time::UnixMillis;

/// Empty pages in a row, read from a place that may be far behind, that are taken for the end of what there is.
const RUN: u32 = 4;

/// Records older than this when they are read say that more wait behind them. The service states times to the second.
const RECENT: Duration = Duration::from_secs(5);

/// What a page shows of how far behind its reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// No record, which proves nothing.
    Nothing,
    /// Records, the newest of them written at this time.
    Few {
        /// When.
        newest: UnixMillis,
    },
    /// As many as one page of many has.
    Many,
}

/// How close one reader is to the newest record of its shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tip {
    /// A reader that was silent for longer may be far behind again.
    contact: Duration,
    empties: u32,
    reached: bool,
    asked: Option<UnixMillis>,
}

impl Tip {
    /// Nothing is known yet of a reader that waits no longer than `idle` between two pages.
    pub(crate) fn new(idle: Duration) -> Self {
        let contact = (idle * 6).max(Duration::from_secs(60));
        Self { contact, empties: 0, reached: false, asked: None }
    }

    /// Takes note of a page that was asked for at `asked`. Answers the time before which everything written has now
    /// been read, where the page shows one: the time *before* the call, since what came during it may be missing.
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

    /// Whether the reader is close to the newest record.
    pub(crate) fn is_reached(&self) -> bool {
        self.reached
    }

    /// Reading goes on at another place.
    pub(crate) fn moved(&mut self) {
        (self.empties, self.reached, self.asked) = (0, false, None);
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

    fn claims_of(tip: &mut Tip, pages: &[(Shown, u64)]) -> Vec<Option<u64>> {
        pages.iter().map(|(shown, at)| tip.page(*shown, UnixMillis(at * 1000)).map(|at| at.0 / 1000)).collect()
    }

    fn claims(pages: &[(Shown, u64)]) -> Vec<Option<u64>> {
        claims_of(&mut Tip::new(Duration::from_secs(1)), pages)
    }

    #[test]
    fn an_empty_page_proves_nothing_until_several_came_in_a_row() {
        let read = claims(&[(NONE, 1), (NONE, 2), (NONE, 3), (few(4), 4), (NONE, 5), (NONE, 6), (NONE, 7), (NONE, 8)]);
        assert_eq!(read, [None, None, None, None, None, None, None, Some(8)]);
    }

    #[test]
    fn a_reader_that_was_at_the_tip_and_keeps_up_is_there_again_with_the_first_empty_page() {
        let read = claims(&[(NONE, 1), (NONE, 2), (NONE, 3), (NONE, 4), (few(4), 5), (NONE, 6)]);
        assert_eq!(read, [None, None, None, Some(4), None, Some(6)]);
    }

    #[test]
    fn a_reader_that_has_fallen_behind_claims_nothing_at_an_empty_page_amid_what_it_has_yet_to_read() {
        for behind in [Shown::Many, few(50)] {
            let read = claims(&[(NONE, 1), (NONE, 2), (NONE, 3), (NONE, 4), (behind, 60), (NONE, 61), (behind, 62)]);
            assert_eq!(read, [None, None, None, Some(4), None, None, None], "{behind:?}");
        }
    }

    #[test]
    fn a_reader_that_was_silent_or_moved_has_to_find_the_tip_anew() {
        let at_tip = [(NONE, 1), (NONE, 2), (NONE, 3), (NONE, 4)];
        let then = |page| claims(&[&at_tip[..], &[page]].concat()).pop().unwrap();
        assert_eq!(then((NONE, 64)), Some(64));
        assert_eq!(then((NONE, 65)), None);
        let mut tip = Tip::new(Duration::from_secs(1));
        claims_of(&mut tip, &at_tip);
        tip.moved();
        assert_eq!(tip.page(NONE, UnixMillis(5000)), None);
    }

    #[test]
    fn a_reader_that_is_to_wait_for_long_keeps_contact_all_the_same() {
        let mut tip = Tip::new(Duration::from_secs(20));
        let read = claims_of(&mut tip, &[(NONE, 100), (NONE, 200), (NONE, 300), (NONE, 400), (NONE, 500)]);
        assert_eq!(read, [None, None, None, Some(400), Some(500)]);
    }
}
