//! The table and the log in small.

use std::sync::Arc;

use tally_core::batch::Change;
use tally_core::consume::Transaction;
use tally_core::definitions::{Definitions, Entry};
use tally_core::fence::{Advance, Commit, Fence, Log, Offset, Reached, Refused, Terms, TopicId};

use super::{Counters, Rule, Said};

/// The names of the rows that are there: `likes` and `retweets` have one member each.
pub(super) type Rows = [bool; 2];

/// A transaction under way, as its changes were when it was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) advance: Advance,
    rows: Rows,
    /// What the cell gains, and from which offset on.
    cell: Option<(i64, u64)>,
    /// Which cell that is: always the first, but for a mutant.
    place: usize,
}

impl Request {
    pub(super) fn of(transaction: &Transaction, rules: &Counters) -> Self {
        let mut request = Self { advance: transaction.advance.clone(), rows: [false; 2], cell: None, place: 0 };
        let folded = Transaction { reached: Vec::new(), ..transaction.clone() };
        let changes = if rules.obeys(Rule::FoldsBehindCell) { transaction.changes() } else { folded.changes() };
        for change in changes {
            match change {
                Change::Member { counter, .. } => request.rows[usize::from(counter.name.as_str() != "likes")] = true,
                Change::Cell { add: 0, .. } if !rules.obeys(Rule::ZeroIsWritten) => {}
                Change::Cell { add, from, .. } => request.cell = Some((add, from.0)),
            }
        }
        request
    }

    /// The same to the second cell, which only a mutant adds to.
    pub(super) fn in_the_other_cell(&self, rules: &Counters) -> Option<Self> {
        (self.cell.is_some() && !rules.obeys(Rule::OwnCell)).then(|| Self { place: 1, ..self.clone() })
    }

    /// One order for equal sets of requests.
    pub(super) fn order(&self) -> (u64, Offset, Offset, Option<(i64, u64)>, usize) {
        (self.advance.from.cfg, self.advance.from.offset, self.advance.to, self.cell, self.place)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Table {
    fence: Option<Arc<Fence>>,
    /// Members never leave here, so rows are what was before any fence.
    pub(super) rows: Rows,
    cells: [Option<(i64, Reached)>; 2],
    /// The greatest offset that the fence ever had.
    highest: u64,
    edited: bool,
}

impl Table {
    pub(super) fn fence(&self) -> Option<Fence> {
        self.fence.as_deref().cloned()
    }

    pub(super) fn offset(&self) -> Option<u64> {
        self.fence.as_ref().map(|fence| fence.offset.0)
    }

    pub(super) fn is_edited(&self) -> bool {
        self.edited
    }

    pub(super) fn reached(&self, place: usize) -> Option<Reached> {
        self.cells[place].map(|(_, reached)| reached)
    }

    pub(super) fn sum(&self) -> i64 {
        self.cells.iter().flatten().map(|(n, _)| n).sum()
    }

    pub(super) fn create(&mut self, fence: &Fence) {
        self.fence.get_or_insert_with(|| Arc::new(fence.clone()));
    }

    pub(super) fn replace(&mut self, seen: &Fence, by: &Fence) {
        if self.fence.as_deref() == Some(seen) {
            self.fence = Some(Arc::new(Fence { cfg: seen.cfg + 1, ..by.clone() }));
        }
    }

    /// An operator moves the fence to an offset before it. By hand nothing says how far it was.
    pub(super) fn move_back(&mut self, to: u64, stated: bool) {
        let fence = self.fence().expect("only a fence that is there has an offset before it");
        let terms = if stated { Terms { redo: Some(fence.offset), ..fence.terms } } else { fence.terms };
        self.fence = Some(Arc::new(Fence { offset: Offset(to), cfg: fence.cfg + 1, terms, ..fence }));
        self.edited |= !stated;
    }

    /// A mutant's request reaches the table under the fence that stands.
    pub(super) fn land_afresh(&mut self, request: &Request, rules: &Counters) {
        if let Some(fence) = self.fence() {
            let advance = Advance { from: fence, ..request.advance.clone() };
            self.land(&Request { advance, ..request.clone() }, rules);
        }
    }

    /// A transaction reaches the table.
    pub(super) fn land(&mut self, request: &Request, rules: &Counters) -> Commit {
        let advance = &request.advance;
        let stored = self.fence().map(|fence| {
            let cfg = if rules.obeys(Rule::CfgInCondition) { fence.cfg } else { advance.from.cfg };
            let terms = if rules.obeys(Rule::CfgInCondition) { fence.terms } else { advance.from.terms };
            Fence { cfg, terms, ..fence }
        });
        let count = request.rows.iter().filter(|row| **row).count();
        if rules.obeys(Rule::FenceCondition) && !advance.admitted_by(stored.as_ref()) {
            return Commit::Cancelled(vec![Refused::Condition; 1]);
        }
        let generation = advance.from.terms.generation;
        if let Some((_, from)) = request.cell
            && rules.obeys(Rule::CellCondition)
            && !Reached::admits(self.reached(request.place), generation, Offset(from))
        {
            let reasons = std::iter::repeat_n(Refused::Nothing, 1 + count);
            return Commit::Cancelled(reasons.chain([Refused::Condition]).collect());
        }
        for (row, put) in self.rows.iter_mut().zip(request.rows) {
            *row |= put;
        }
        if let Some((add, _)) = request.cell {
            let before = self.cells[request.place].map_or(0, |(n, _)| n);
            self.cells[request.place] = Some((before + add, Reached { to: advance.to, generation }));
        }
        self.fence = Some(Arc::new(advance.reached()));
        self.highest = self.highest.max(advance.to.0);
        Commit::Done
    }

    /// The rows that have to be there, those that may, and the sum: the fold of everything that was ever before the fence. An
    /// action that was said before it was defined may have a dead letter, and be applied all the same by another consumer.
    pub(super) fn expected(&self, log: &[Said], letters: u8) -> (Rows, Rows, i64) {
        let (mut least, mut most, mut sum) = ([false; 2], [false; 2], 0);
        for (offset, said) in log.iter().enumerate().take(usize::try_from(self.highest).expect("a log is short")) {
            match said {
                Said::Like => (least[0], most[0]) = (true, true),
                Said::Later => {
                    least[1] |= letters & (1 << offset) == 0;
                    most[1] = true;
                }
                Said::Never => {}
                Said::Vote(n) => sum += i64::from(*n),
            }
        }
        (least, most, sum)
    }
}

pub(super) fn log(said: usize) -> Log {
    Log { topic: TopicId("likes".into()), start: Offset(0), end: Offset(said as u64) }
}

/// Likes and votes; retweets as well once they are defined.
pub(super) fn definitions(all: bool) -> Definitions {
    let entry = |name: &str, kind: &str, add: &str| Entry {
        name: name.to_owned(),
        kind: kind.to_owned(),
        add: add.to_owned(),
        ..Entry::default()
    };
    let votes = Entry { remove: Some("down".to_owned()), ..entry("votes", "sum", "up") };
    let mut entries = vec![votes];
    entries.extend(all.then(|| entry("retweets", "set", "retweet")));
    Definitions::new(&entries).expect("they are well formed")
}
