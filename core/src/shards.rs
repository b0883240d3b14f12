//! Which stream shards there are, which of them this worker reads, what is lost and what is finished: one machine a worker,
//! without I/O.
//!
//! A worker looks again and again, and every look has the same order:
//! 1. **List**, when it is time to: the stream's shards as the service has them.
//! 2. **Read** the registry, then the checkpoints with their leases, then the open gaps. The gaps come last, so that a
//!    checkpoint that moved past a loss is never seen without its gap.
//! 3. **Set right.** Shards without a number get one, ancestors first. A shard that two listings in a row leave out is
//!    asked for by name; if it is gone, that is a loss. A shard that is applied to its end is closed once its children
//!    have numbers, and one that is lost once the hold behind the loss is over. The floor is raised; checkpoints that
//!    nothing asks for any more are dropped.
//! 4. **Share.** Leases are renewed, taken and stolen, and readers started and stopped accordingly.
//!
//! Where step 3 numbers or closes a shard, the look begins anew before step 4. One request is under way at a time; only losses are recorded
//! beside it, for the readers and appliers that met them and wait.
//!
//! No lease is trusted: two workers may do everything here at the same time, twice, and late. What must not be done twice
//! is refused by the store: a number is given once, a checkpoint and the floor never move back, closed stays closed.
//!
//! The runner owns the clock, the clients, the readers and the timers. It hands in one [`Input`] at a time and carries
//! every [`Effect`] out; it answers each request once, and an answer that is not awaited is ignored.

mod contract;
mod leases;
mod listing;
mod look;
mod losses;
mod places;
mod setting_right;
mod sharing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub use contract::{Answer, Behind, Effect, Event, Input, Request, Rules, Wait, Waiter};
pub use leases::{Change, Offer, Plan, Sharing, plan};
pub use places::{Health, Place, Trouble};

use crate::ids::{StreamLabel, StreamShardId};
use crate::lineage::{Loss, Picture};
use crate::ports::StreamInfo;
use crate::time::{Now, UnixMillis};

use leases::KnownLeases;
use listing::Listing;
use look::Look;
use losses::Losses;

/// The stream shards of a table, as one worker knows them, and what it does about them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shards {
    rules: Rules,
    info: StreamInfo,
    listing: Listing,
    /// The look under way.
    look: Look,
    /// The request under way.
    asked: Option<Request>,
    /// What is to be done after it.
    todo: VecDeque<Request>,
    /// What was seen last, and shown.
    picture: Arc<Picture>,
    losses: Losses,
    leases: KnownLeases,
    /// Stream shards that are read here.
    reading: BTreeMap<StreamShardId, Reader>,
    /// Stream shards applied to their end here and not closed yet.
    ends: BTreeMap<StreamShardId, End>,
    /// Stream shards whose last reader found that they are gone.
    gone: BTreeSet<StreamShardId>,
    /// Stream shards that have no reader, and whether that was so for too long.
    unread: BTreeMap<StreamShardId, bool>,
    /// Whether the deployment has a ledger of changes, which this worker feeds.
    feeds: bool,
    /// Of the stream shards that are applied and not fed to their end, those that the listing left out.
    unfed: BTreeSet<StreamShardId>,
    /// The process stops.
    leaving: bool,
}

/// A reader and its applier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reader {
    label: StreamLabel,
    stopping: bool,
    /// It found no such stream shard.
    is_gone: bool,
}

/// A stream shard applied to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct End {
    at: UnixMillis,
    children: Search,
    /// Children have not been looked for long enough.
    patient: bool,
}

/// Where the search for a shard's children stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Search {
    /// They are to be asked for.
    Due,
    /// They are asked for.
    Asked,
    /// None were listed; they are asked for again after a moment.
    Paused,
    /// There are none.
    Over,
}

impl Shards {
    /// A worker that follows the stream that `info` describes, until the table has another.
    pub fn new(rules: Rules, info: StreamInfo) -> Self {
        Self {
            rules,
            info,
            listing: Listing::default(),
            look: Look::default(),
            asked: None,
            todo: VecDeque::new(),
            picture: Arc::default(),
            losses: Losses::default(),
            leases: KnownLeases::default(),
            reading: BTreeMap::new(),
            ends: BTreeMap::new(),
            gone: BTreeSet::new(),
            unread: BTreeMap::new(),
            feeds: false,
            unfed: BTreeSet::new(),
            leaving: false,
        }
    }

    /// The same, one that feeds the deployment's ledger of changes.
    #[must_use]
    pub fn feeding(self) -> Self {
        Self { feeds: true, ..self }
    }

    /// The stream that requests are about.
    pub fn label(&self) -> &StreamLabel {
        &self.info.label
    }

    /// Takes one input and appends what follows from it to `effects`.
    pub fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        match input {
            Input::Woke(wait) => self.woke(now, wait, effects),
            Input::Answered(Request::Record(behind, loss), Answer::Done) => {
                self.losses.recorded(behind, &loss, now, effects);
            }
            Input::Answered(request, answer) if self.asked.as_ref() == Some(&request) => {
                self.asked = None;
                self.answered(now, request, answer, effects);
            }
            Input::Answered(..) => {}
            Input::Lost(waiter, loss) => self.meet(Behind::Waiter(waiter), loss, effects),
            Input::Gone(shard) => {
                self.listing.wanted = true;
                self.reading.entry(shard).and_modify(|reader| reader.is_gone = true);
            }
            Input::Applied { shard, at } => self.applied(shard, at, effects),
            Input::Ended(shard) => {
                if self.reading.remove(&shard).is_some_and(|reader| reader.is_gone) {
                    self.gone.insert(shard);
                } else {
                    self.gone.remove(&shard);
                }
            }
            Input::Leave => {
                self.leaving = true;
                self.todo.clear();
            }
            Input::Release => {
                let held = std::mem::take(&mut self.leases.held);
                effects.extend(held.into_iter().map(|shard| Effect::Ask(Request::Release(shard))));
            }
        }
    }

    fn woke(&mut self, now: Now, wait: Wait, effects: &mut Vec<Effect>) {
        match wait {
            Wait::Look => self.look(effects),
            Wait::Listing => self.listing.is_old = true,
            Wait::Spacing => {
                self.listing.asked_lately = false;
                if self.ends.values().any(|end| end.children == Search::Due) {
                    self.look(effects);
                }
            }
            Wait::Children => {
                let paused = self.ends.values_mut().filter(|end| end.children == Search::Paused);
                paused.for_each(|end| end.children = Search::Due);
                self.look(effects);
            }
            Wait::NoChildren(shard) => {
                if let Some(end) = self.ends.get_mut(&shard) {
                    end.patient = false;
                }
            }
            Wait::Hold(behind) => {
                if self.losses.is_over(&behind, now, effects) {
                    self.look(effects);
                }
            }
            Wait::Stale(shard) => {
                self.leases.stood_still(shard);
                self.look(effects);
            }
            Wait::Unread(shard) => {
                if let Some(too_long) = self.unread.get_mut(&shard) {
                    *too_long = true;
                }
            }
        }
    }

    /// All of a shard is in the counters: its children are looked for, and then it is closed.
    fn applied(&mut self, shard: StreamShardId, at: UnixMillis, effects: &mut Vec<Effect>) {
        let is_ours = self.reading.get(&shard).is_some_and(|reader| reader.label == self.info.label);
        if is_ours && !self.leaving {
            effects.push(Effect::Wait(Wait::NoChildren(shard.clone()), listing::CHILDREN_PATIENCE));
            self.ends.insert(shard, End { at, children: Search::Due, patient: true });
            self.look(effects);
        }
    }

    /// A loss was met: from now on this process calls nothing exact, until it reads that no gap is open.
    fn meet(&mut self, behind: Behind, loss: Loss, effects: &mut Vec<Effect>) {
        self.losses.meet(behind.clone(), loss.clone());
        if !self.picture.open_gaps {
            Arc::make_mut(&mut self.picture).open_gaps = true;
            effects.push(Effect::Show(Arc::clone(&self.picture)));
        }
        effects.push(Effect::Ask(Request::Record(behind, loss)));
    }
}
