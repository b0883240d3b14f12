//! Until when a reader may say that it has read everything: an empty page is no proof, for empty pages before records
//! are normal, but a reader that has reached the newest record once stays close to it while it keeps reading.

use std::time::Duration;

use tally_core::time::UnixMillis;

/// Empty pages in a row, read from a place that may be far behind, that are taken for the end of what there is.
const RUN: u32 = 4;

/// A reader that was silent for longer may be far behind again.
const CONTACT: Duration = Duration::from_secs(60);

/// How close one reader is to the newest record of its shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tip {
    empties: u32,
    reached: bool,
    asked: Option<UnixMillis>,
}

impl Tip {
    /// Takes note of a page that was asked for at `asked`. Answers the time before which everything written has now
    /// been read, where the page shows one: the time *before* the call, since what came during it may be missing.
    pub(crate) fn page(&mut self, is_empty: bool, asked: UnixMillis) -> Option<UnixMillis> {
        let lost_contact = self.asked.replace(asked).is_none_or(|before| asked.since(before) > CONTACT);
        if lost_contact {
            (self.empties, self.reached) = (0, false);
        }
        self.empties = if is_empty { self.empties + 1 } else { 0 };
        self.reached |= self.empties >= RUN;
        (is_empty && self.reached).then_some(asked)
    }

    /// Reading goes on at another place.
    pub(crate) fn moved(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(pages: &[(bool, u64)]) -> Vec<Option<u64>> {
        let mut tip = Tip::default();
        pages.iter().map(|(empty, at)| tip.page(*empty, UnixMillis(at * 1000)).map(|at| at.0 / 1000)).collect()
    }

    #[test]
    fn an_empty_page_proves_nothing_until_several_came_in_a_row() {
        let read = claims(&[(true, 1), (true, 2), (true, 3), (false, 4), (true, 5), (true, 6), (true, 7), (true, 8)]);
        assert_eq!(read, [None, None, None, None, None, None, None, Some(8)]);
    }

    #[test]
    fn a_reader_that_was_at_the_tip_is_there_again_with_the_first_empty_page() {
        let read = claims(&[(true, 1), (true, 2), (true, 3), (true, 4), (false, 5), (true, 6)]);
        assert_eq!(read, [None, None, None, Some(4), None, Some(6)]);
    }

    #[test]
    fn a_reader_that_was_silent_or_moved_has_to_find_the_tip_anew() {
        assert_eq!(claims(&[(true, 1), (true, 2), (true, 3), (true, 4), (true, 65)]).last(), Some(&None));
        let mut tip = Tip { reached: true, asked: Some(UnixMillis(0)), empties: 9 };
        tip.moved();
        assert_eq!(tip.page(true, UnixMillis(1)), None);
    }
}
