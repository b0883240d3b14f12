//! A board keeps the posts or hashtags that lead a list of what is trending: the greatest of many changing sums,
//! without sorting all of them. It knows every sum up to a position in their order, `theta`. When too few are left, it
//! is refilled from all sums.

use std::cmp::Reverse;

use tally_core::Set;
use tally_core::ids::PostId;
use tally_service::within;

use crate::names::{GONE, Names, Slot};

/// The sizes of a board.
#[derive(clap::Args, Clone, Copy, Debug, PartialEq, Eq)]
#[command(about = None, long_about = None)]
pub struct BoardRules {
    /// Length of each partition's list, 100 to 1000. This is also the longest list that the API can answer
    #[arg(long, env = "TALLY_LIST", default_value_t = 128, value_parser = within::<usize>(100..=1_000), value_name = "COUNT", help_heading = "Lists")]
    pub list: usize,
    /// Smallest sum that is listed
    #[arg(long, env = "TALLY_MIN_COUNT", default_value_t = 1, value_parser = within::<i64>(1..), value_name = "COUNT", help_heading = "Lists")]
    pub min_count: i64,
    /// A board with more subjects than this is cut.
    #[arg(skip)]
    pub most: usize,
    /// The number of subjects that remain after a cut or a refill.
    #[arg(skip)]
    pub keep: usize,
    /// A board with fewer subjects than this is refilled, unless there are no more. A list is at most as long.
    #[arg(skip)]
    pub least: usize,
}

impl BoardRules {
    /// Returns the sizes of boards for lists of this length.
    pub(crate) fn of(list: usize, min_count: i64) -> Self {
        Self { list, min_count, most: 8 * list, keep: 4 * list, least: 2 * list }
    }
}

impl Default for BoardRules {
    fn default() -> Self {
        Self::of(128, 1)
    }
}

/// A subject and its sum, in the order of a list: by descending sum, then by the bytes of the id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ranked {
    count: Reverse<i64>,
    pub subject: PostId,
}

impl Ranked {
    /// Creates an item from a subject and its sum.
    pub fn new(subject: PostId, count: i64) -> Self {
        Self { count: Reverse(count), subject }
    }

    /// Returns the sum.
    pub fn count(&self) -> i64 {
        self.count.0
    }
}

/// The greatest sums of one counter, region and window. A sum that grows past `theta` is noticed at once; one that has
/// fallen behind it is noticed when a list is made.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    rules: BoardRules,
    /// Every subject at or before `theta` whose sum is worth listing, and some that no longer are.
    known: Set<Slot>,
    /// The position; `None` if every sum is known. It has an id, too, so that many equal sums do not make the board
    /// grow.
    theta: Option<(i64, Box<[u8]>)>,
}

/// The sums that a board ranks.
#[derive(Clone, Copy)]
pub(crate) struct Sums<'a, F> {
    pub(crate) names: &'a Names,
    pub(crate) of: F,
}

impl<F: Fn(Slot) -> i64> Sums<'_, F> {
    fn rank(&self, slot: Slot) -> (Reverse<i64>, &[u8]) {
        (Reverse((self.of)(slot)), self.names.text(slot))
    }
}

impl Board {
    pub(crate) fn new(rules: BoardRules) -> Self {
        Self { rules, known: Set::default(), theta: None }
    }

    /// Updates the sum of `slot`. Returns whether the board has grown so much that it has to be [cut](Self::cut).
    pub(crate) fn update(&mut self, slot: Slot, sum: i64, names: &Names) -> bool {
        if self.is_worth(slot, sum, names) {
            self.known.insert(slot);
        }
        self.known.len() > 2 * self.rules.most
    }

    fn is_worth(&self, slot: Slot, sum: i64, names: &Names) -> bool {
        sum >= self.rules.min_count
            && self
                .theta
                .as_ref()
                .is_none_or(|(theta, text)| sum > *theta || sum == *theta && names.text(slot) <= &**text)
    }

    /// Removes subjects that have fallen behind, and keeps only the first ones if there are too many.
    pub(crate) fn cut<F: Fn(Slot) -> i64>(&mut self, sums: &Sums<'_, F>) {
        let mut known = std::mem::take(&mut self.known);
        known.retain(|slot| self.is_worth(*slot, (sums.of)(*slot), sums.names));
        if known.len() > self.rules.most {
            let keep = self.rules.keep.max(1);
            let mut first = Vec::from_iter(known.drain());
            let (_, last, _) = first.select_nth_unstable_by(keep - 1, |a, b| sums.rank(*a).cmp(&sums.rank(*b)));
            let (Reverse(sum), text) = sums.rank(*last);
            self.theta = Some((sum, text.into()));
            known.extend(&first[..keep]);
        }
        self.known = known;
    }

    /// Returns the first subjects, and whether these are all. If too few are left to be sure of a list, it looks at all
    /// sums.
    pub(crate) fn list<F: Fn(Slot) -> i64>(&mut self, sums: &Sums<'_, F>) -> (Vec<Ranked>, bool) {
        self.cut(sums);
        if self.theta.is_some() && self.known.len() < self.rules.least {
            self.refill(sums);
        }
        let all = self.theta.is_none() && self.known.len() <= self.rules.list;
        let mut first = Vec::from_iter(self.known.iter().copied());
        if first.len() > self.rules.list {
            first.select_nth_unstable_by(self.rules.list, |a, b| sums.rank(*a).cmp(&sums.rank(*b)));
            first.truncate(self.rules.list);
        }
        let id = |slot| PostId::new(std::str::from_utf8(sums.names.text(slot)).ok()?).ok();
        let ranked = |slot| Ranked::new(id(slot).expect("it was an id when it came"), (sums.of)(slot));
        let mut items: Vec<Ranked> = first.into_iter().map(ranked).collect();
        items.sort_unstable();
        (items, all)
    }

    fn refill<F: Fn(Slot) -> i64>(&mut self, sums: &Sums<'_, F>) {
        *self = Self::new(self.rules);
        for slot in 0..Slot::try_from(sums.names.len()).expect("each has a number") {
            if self.update(slot, (sums.of)(slot), sums.names) {
                self.cut(sums);
            }
        }
        self.cut(sums);
    }

    pub(crate) fn renumber(&mut self, numbers: &[Slot]) {
        let known = self.known.iter().map(|slot| numbers[*slot as usize]);
        self.known = known.filter(|slot| *slot != GONE).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::hash;

    const RULES: BoardRules = BoardRules { most: 7, keep: 4, least: 3, list: 3, min_count: 1 };

    #[test]
    fn many_equal_sums_are_cut_at_a_position_and_force_no_scan() {
        let (mut board, mut names) = (Board::new(RULES), Names::default());
        for n in 0..1_000 {
            let text = format!("p{n:04}").into_bytes();
            let (slot, _) = names.slot(hash(&text), &text);
            let sums = Sums { names: &names, of: |_| 1 };
            if board.update(slot, 1, &names) {
                board.cut(&sums);
            }
            assert!(board.theta.is_none() || board.known.len() >= RULES.least);
        }
        let (list, all) = board.list(&Sums { names: &names, of: |_| 1 });
        let listed: Vec<_> = list.iter().map(|ranked| ranked.subject.to_string()).collect();
        assert_eq!((listed, all), (vec!["p0000".to_owned(), "p0001".to_owned(), "p0002".to_owned()], false));
        assert!(board.known.len() <= RULES.keep + 1, "those behind were passed over");
    }
}
