//! The table and the topic in small.

use std::sync::Arc;

use tally_core::batch::{Change, SealedBatch};
use tally_core::event::Action;
use tally_core::fence::{Advance, Commit, Fence, Offset, Refused, TopicId};

use super::{Consumers, Life, Rule, Said};

/// A record's place: in which life of the topic, and where in it.
pub(super) type Place = (Life, u64);

/// The user whose row the table does not take.
pub(super) const UNWELCOME: u8 = 9;

/// Who of two users has a row, a bit each.
type Rows = u8;

/// The fence in small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Known {
    pub(super) cfg: u64,
    pub(super) offset: u64,
}

impl Known {
    pub(super) fn fence(self) -> Fence {
        Fence::new(Offset(self.offset), self.cfg, topic())
    }

    fn of(fence: &Fence) -> Self {
        Self { cfg: fence.cfg, offset: fence.offset.0 }
    }
}

pub(super) fn topic() -> TopicId {
    TopicId("likes".into())
}

/// A transaction under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) advance: Advance,
    pub(super) batch: Arc<SealedBatch>,
}

impl Request {
    /// One order for equal sets of requests.
    pub(super) fn order(&self) -> (u64, Offset, Offset) {
        (self.advance.from.cfg, self.advance.from.offset, self.advance.to)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Table {
    pub(super) fence: Option<Known>,
    pub(super) rows: Rows,
    /// The rows the current life of the topic began with.
    before: Rows,
}

impl Table {
    pub(super) fn create(&mut self, fence: &Fence) {
        self.fence.get_or_insert(Known::of(fence));
    }

    /// An operator moves the fence to the start of the topic created again.
    pub(super) fn reset(&mut self, fence: Known) {
        self.fence = Some(Known { cfg: fence.cfg + 1, offset: 0 });
        self.before = self.rows;
    }

    /// A transaction reaches the table.
    pub(super) fn land(&mut self, request: &Request, rules: &Consumers) -> Commit {
        let changes = request.batch.changes();
        let user = |user: &str| user.parse::<u8>().expect("users are numbers here");
        let unwelcome =
            |change: &Change<'_>| matches!(change, Change::Member { user: id, .. } if user(id) == UNWELCOME);
        if changes.iter().any(unwelcome) {
            return Commit::Invalid("not welcome".to_owned());
        }
        if !self.admits(&request.advance, rules) {
            return Commit::Cancelled(vec![Refused::Condition, Refused::Nothing]);
        }
        for change in changes {
            if let Change::Member { user: id, present, .. } = change {
                apply(&mut self.rows, user(id), if present { Action::Like } else { Action::Unlike });
            }
        }
        self.fence = Some(Known::of(&request.advance.reached()));
        Commit::Done
    }

    fn admits(&self, advance: &Advance, rules: &Consumers) -> bool {
        let stored = match self.fence {
            Some(stored) if !rules.obeys(Rule::CfgInCondition) => Some(Known { cfg: advance.from.cfg, ..stored }),
            stored => stored,
        };
        !rules.obeys(Rule::Condition) || advance.admitted_by(stored.map(Known::fence).as_ref())
    }

    /// The rows as they have to be: the fold of everything before the fence.
    pub(super) fn folded(&self, log: &[Said]) -> Rows {
        let before = self.fence.map_or(0, |fence| fence.offset);
        let mut rows = self.before;
        for said in log.iter().take(usize::try_from(before).expect("a log is short")) {
            if let Said::Event(user, action) = said {
                apply(&mut rows, *user, *action);
            }
        }
        rows
    }
}

fn apply(rows: &mut Rows, user: u8, action: Action) {
    match action {
        Action::Like => *rows |= 1 << user,
        Action::Unlike => *rows &= !(1 << user),
    }
}

/// Every log of `length` records.
pub(super) fn logs(alphabet: &[Said], length: usize) -> Vec<Vec<Said>> {
    (0..length).fold(vec![Vec::new()], |logs, _| {
        logs.iter().flat_map(|log| alphabet.iter().map(|said| [log.as_slice(), &[*said]].concat())).collect()
    })
}
