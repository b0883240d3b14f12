//! What happens to row keys that a comparison could not prove, as a machine without I/O: looks at them by themselves,
//! all together, then windows.
//!
//! A key that merely moved is settled by a look. Windows are for what differs, the most wrong first, and for what two
//! looks could not tell. A count that a window has corrected is looked at once more: it has to agree now.

use std::cmp::Reverse;
use std::time::Duration;

use super::look::{Look, Looked, RowsRead};
use super::{Doubt, Drift, Touched, Wrong};
use crate::counter::Counter;
use crate::ids::{CounterId, RowKey};
use crate::ports::Outcome;
use crate::time::{Now, UnixMillis};
use crate::watermark::Watermarks;
use crate::window::Repaired;

/// Looks at a row key before it is recounted by a window.
const LOOKS: u32 = 2;

/// A row key with more rows than this costs as much to look at as to recount.
const MANY: u64 = 10_000;

/// A row key that only a window can settle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The row key.
    pub key: RowKey,
    /// What is known to be wrong with it.
    pub wrong: Option<Wrong>,
    /// By how much the count is wrong, or seems to be.
    pub by: u64,
    /// It was corrected already, and no look has found it right since: another correction is an alarm.
    pub corrected: bool,
}

/// What a follow-up asks for, or tells.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FollowUpEffect {
    /// Begin a trail, or take one that was begun before, and say so: also where there is none to be had.
    BeginTrail,
    /// Read these counters, consistently, and answer with each of them in this order.
    ReadCounters(Vec<CounterId>),
    /// Read the rows of these row keys, in this order.
    CountRows(Vec<RowKey>),
    /// Say up to when every open stream shard is applied, once that may be after this time.
    AwaitApplied(UnixMillis),
    /// Say which members of each row key the trail has that a counter with these watermarks contains.
    ReadTrail(Vec<(RowKey, Watermarks)>),
    /// So many row keys are proved.
    Proved(u64),
    /// So many row keys that were corrected are right now.
    Confirmed(u64),
    /// A count differs, and a dry run leaves it so.
    Differs(Drift),
    /// Recount these by windows, and say of each what became of it.
    Repair(Vec<Candidate>),
    /// It is over; so many row keys are left unsettled.
    End(u64),
}

/// What a follow-up is told.
#[derive(Clone, Debug)]
pub enum FollowUpInput {
    /// Begin.
    Begin,
    /// The trail asked for has begun, or there is none.
    TrailBegun,
    /// The next counter asked for, or why it cannot be read.
    Counter(Outcome<Option<Counter>>),
    /// The rows of each row key asked for.
    Rows(Vec<RowsRead>),
    /// Up to when every open stream shard is applied.
    Applied(Option<UnixMillis>),
    /// What the trail says of each row key asked for; `None` where it cannot tell.
    Touched(Vec<Option<Touched>>),
    /// What became of one of the row keys to be recounted.
    Repaired(RowKey, Repaired),
}

/// One follow-up under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FollowUp {
    guard: Duration,
    dry_run: bool,
    stage: Stage,
    /// Looks at the row keys under way.
    looks: u32,
    /// Whether they were corrected before.
    confirming: bool,
    /// Row keys that windows are at.
    repairing: u64,
    /// Row keys that windows have corrected, to be looked at next.
    corrected: Vec<RowKey>,
    unsettled: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    New(Vec<(RowKey, Doubt)>),
    Look(Look),
    Looked,
}

impl FollowUp {
    /// A follow-up of `doubts`. `guard` is how far two records of a row key may be out of order.
    pub fn new(doubts: Vec<(RowKey, Doubt)>, guard: Duration, dry_run: bool) -> Self {
        let (stage, corrected) = (Stage::New(doubts), Vec::new());
        Self { guard, dry_run, stage, looks: 0, confirming: false, repairing: 0, corrected, unsettled: 0 }
    }

    /// Takes an input, and adds what follows to `effects`. `now.wall` is by the clock that is furthest ahead, ours or a
    /// change-streamer's.
    pub fn step(&mut self, now: Now, input: FollowUpInput, effects: &mut Vec<FollowUpEffect>) {
        if let FollowUpInput::Repaired(key, repaired) = input {
            return self.repaired(key, repaired, effects);
        }
        match (std::mem::replace(&mut self.stage, Stage::Looked), input) {
            (Stage::New(doubts), FollowUpInput::Begin) => self.begin(doubts, effects),
            (Stage::Look(mut look), input) => match look.step(now, input, effects) {
                Some(looked) => self.looked(looked, effects),
                None => self.stage = Stage::Look(look),
            },
            // Not waited for.
            (stage, _) => self.stage = stage,
        }
    }

    /// Whether a look has read rows that it still needs.
    pub fn holds_rows(&self) -> bool {
        matches!(&self.stage, Stage::Look(look) if look.holds_rows())
    }

    fn begin(&mut self, doubts: Vec<(RowKey, Doubt)>, effects: &mut Vec<FollowUpEffect>) {
        let (mut certain, mut open) = (Vec::new(), Vec::new());
        for (key, doubt) in doubts {
            match doubt {
                Doubt::Unreadable => self.unsettled += 1,
                Doubt::Wrong(wrong) => certain.push(self.candidate(key, Ok(wrong))),
                Doubt::Changed { rows, by } if rows > MANY && !self.dry_run => {
                    certain.push(self.candidate(key, Err(by)));
                }
                Doubt::Changed { .. } => open.push(key),
            }
        }
        self.leave_to_windows(certain, effects);
        self.look(open, effects);
    }

    fn repaired(&mut self, key: RowKey, repaired: Repaired, effects: &mut Vec<FollowUpEffect>) {
        let Some(repairing) = self.repairing.checked_sub(1) else { return };
        self.repairing = repairing;
        match repaired {
            Repaired::Proved => {}
            Repaired::Corrected => self.corrected.push(key),
            Repaired::Left => self.unsettled += 1,
        }
        if self.stage == Stage::Looked {
            self.go_on(effects);
        }
    }

    /// Looks at `open` row keys, or goes on with what else there is.
    fn look(&mut self, open: Vec<RowKey>, effects: &mut Vec<FollowUpEffect>) {
        if open.is_empty() {
            self.stage = Stage::Looked;
            return self.go_on(effects);
        }
        self.looks += 1;
        self.stage = Stage::Look(Look::begin(open, self.guard, effects));
    }

    /// Looks at what was corrected meanwhile; the end, once there is none and no window is open.
    fn go_on(&mut self, effects: &mut Vec<FollowUpEffect>) {
        if !self.corrected.is_empty() {
            (self.looks, self.confirming) = (0, true);
            let corrected = std::mem::take(&mut self.corrected);
            self.look(corrected, effects);
        } else if self.repairing == 0 {
            effects.push(FollowUpEffect::End(self.unsettled));
        }
    }

    /// What a look has left in doubt: what differs goes to a window, the rest is looked at once more.
    fn looked(&mut self, Looked { proved, doubts }: Looked, effects: &mut Vec<FollowUpEffect>) {
        if proved > 0 {
            let (confirmed, proved) = (FollowUpEffect::Confirmed(proved), FollowUpEffect::Proved(proved));
            effects.push(if self.confirming { confirmed } else { proved });
        }
        let (mut candidates, mut open, again) = (Vec::new(), Vec::new(), self.looks < LOOKS);
        for (key, doubt) in doubts {
            match doubt {
                Doubt::Wrong(wrong) => candidates.push(self.candidate(key, Ok(wrong))),
                Doubt::Changed { .. } | Doubt::Unreadable if again => open.push(key),
                Doubt::Changed { by, .. } => candidates.push(self.candidate(key, Err(by))),
                Doubt::Unreadable => candidates.push(self.candidate(key, Err(0))),
            }
        }
        self.leave_to_windows(candidates, effects);
        self.look(open, effects);
    }

    fn candidate(&self, key: RowKey, wrong: Result<Wrong, u64>) -> Candidate {
        let by = wrong.map_or_else(|by| by, |wrong| wrong.by());
        Candidate { key, wrong: wrong.ok(), by, corrected: self.confirming }
    }

    /// Where what is most wrong comes first.
    fn leave_to_windows(&mut self, mut candidates: Vec<Candidate>, effects: &mut Vec<FollowUpEffect>) {
        let many = candidates.len() as u64;
        if self.dry_run {
            self.unsettled += many;
            let drift = |Candidate { key, wrong, .. }: Candidate| Some(FollowUpEffect::Differs(wrong?.drift(&key)));
            effects.extend(candidates.into_iter().filter_map(drift));
        } else if many > 0 {
            candidates.sort_by_key(|candidate| Reverse(candidate.by));
            self.repairing += many;
            effects.push(FollowUpEffect::Repair(candidates));
        }
    }
}

#[cfg(test)]
mod tests;
