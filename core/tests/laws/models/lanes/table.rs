//! The table of a partition with lanes in small: a fence of each lane, and one row a user.

use tally_core::fence::{Commit, Fence, Fences, Offset, Refused, Terms, TopicId};
use tally_core::ids::{Lane, LaneCount};

use super::{Lanes, Rule};

/// As many lanes as a model has at most.
pub(super) const MOST: usize = 4;

/// Four users. Of two lanes the first and third are in lane 0, of four each is in a lane of its own.
pub(super) const USERS: [&str; MOST] = ["u-2", "u-1", "a", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"];

/// The lane of a user, by core.
pub(super) fn lane_of(user: usize, lanes: usize) -> usize {
    let lanes = LaneCount::new(lanes as u64).expect("a number of lanes");
    lanes.lane_of_member(USERS[user]).index()
}

pub(super) fn topic() -> TopicId {
    TopicId("likes".into())
}

/// One lane's fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Known {
    pub(super) offset: u64,
    pub(super) cfg: u64,
}

/// What is sent to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Request {
    /// A lane's transaction: users whose rows change, and those whose rows are there afterwards.
    Commit { lane: usize, from: Known, to: u64, users: u8, liked: u8 },
    /// All fences, known to be so, are replaced by those of so many lanes at one offset.
    Replace { seen: [Option<Known>; MOST], lanes: usize, at: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Table {
    pub(super) fences: [Option<Known>; MOST],
    pub(super) rows: u8,
    /// How many changes of lanes have happened.
    pub(super) changes: usize,
}

impl Table {
    pub(super) fn of(lanes: usize) -> Self {
        let mut fences = [None; MOST];
        fences[..lanes].fill(Some(Known { offset: 0, cfg: 0 }));
        Self { fences, rows: 0, changes: 0 }
    }

    pub(super) fn lanes(&self) -> usize {
        self.fences.iter().flatten().count()
    }

    /// A request reaches the table.
    pub(super) fn land(&mut self, request: Request, rules: &Lanes) -> Commit {
        let refused = Commit::Cancelled(vec![Refused::Condition]);
        match request {
            Request::Commit { lane, from, to, users, liked } => {
                let Some(stored) = self.fences[lane] else { return refused };
                let cfg_fits = stored.cfg == from.cfg || !rules.obeys(Rule::CfgInCondition);
                if stored.offset != from.offset || !cfg_fits {
                    return refused;
                }
                self.rows = (self.rows & !users) | liked;
                self.fences[lane] = Some(Known { offset: to, ..stored });
            }
            Request::Replace { seen, lanes, at } => {
                if self.fences != seen {
                    return refused;
                }
                let cfg = seen[0].map_or(0, |known| known.cfg) + 1;
                for (lane, fence) in self.fences.iter_mut().enumerate() {
                    let kept = fence.filter(|_| !rules.obeys(Rule::CfgRises)).map(|known| known.cfg);
                    let raised = Known { offset: at, cfg: kept.unwrap_or(cfg) };
                    *fence = (lane < lanes).then_some(raised);
                }
                self.changes += 1;
            }
        }
        Commit::Done
    }
}

/// Fences as the machine is told of them.
pub(super) fn fences(known: &[Known]) -> Vec<Fence> {
    let lanes = LaneCount::new(known.len() as u64).expect("a number of lanes");
    let terms = Terms { lanes, ..Terms::default() };
    let fence =
        |(lane, known): (Lane, &Known)| Fence { lane, terms, ..Fence::new(Offset(known.offset), known.cfg, topic()) };
    lanes.all().zip(known).map(fence).collect()
}

/// Fences of the machine in small.
pub(super) fn known(fences: &Fences) -> [Option<Known>; MOST] {
    let mut known = [None; MOST];
    for fence in fences.iter() {
        known[fence.lane.index()] = Some(Known { offset: fence.offset.0, cfg: fence.cfg });
    }
    known
}
