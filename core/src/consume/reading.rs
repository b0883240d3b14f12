//! Between two loads: records are read, handed to the lanes they belong to, and gathered until batches are due.

use std::sync::Arc;
use std::time::Duration;

use super::Setup;
use super::chain::{Chain, Stage};
use super::change::Change;
use super::effect::{Cause, Effect, Halt, Misrouted, Note};
use super::heats::Heats;
use super::learning::Learning;
use super::letters::Letters;
use super::load::Ready;
use super::pace::Pace;
use super::places::Maps;
use super::runs::Runs;
use crate::batch::{Taken, Trigger};
use crate::event::{Event, Rejection, Routing, decode};
use crate::fence::{Alarm, Fence, Fences, Offset};
use crate::ids::{Lane, LaneCount};
use crate::ports::Outcome;
use crate::ports::log::Records;
use crate::time::UnixMillis;

/// How long nothing is written before the fences are looked at: an operator may have moved them.
const QUIET: Duration = Duration::from_secs(60);

/// What is read and not behind the fences, and the lanes that write it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    pub(super) runs: Runs,
    /// One for each lane, in order.
    pub(super) chains: Vec<Chain>,
    /// Every record before this was handed to its lane.
    pub(super) handed: Offset,
    pub(super) learning: Learning,
    pub(super) maps: Maps,
    pub(super) pace: Pace,
    /// The lanes are being brought to one offset, and their fences replaced.
    pub(super) change: Option<Change>,
    /// What follows once no transaction is under way any more.
    pub(super) over: Option<Then>,
    /// How many partitions the topic has, as far as is known: a topic may grow.
    pub(super) partitions: u32,
    /// When Kafka was told last.
    pub(super) told: Duration,
    /// When the fences were last known to be where they are here.
    pub(super) confirmed: Duration,
    /// The fences are being looked at.
    looks: bool,
}

/// What the rest of the machine lends for one step of reading.
pub(super) struct Context<'a> {
    pub(super) setup: &'a Setup,
    pub(super) letters: &'a mut Letters,
    pub(super) heats: &'a mut Heats,
    pub(super) leaving: bool,
    /// The log no longer fits the fence, or cannot be read.
    pub(super) doubted: &'a mut bool,
    /// Reloads that led to nothing written.
    pub(super) fruitless: &'a mut Option<u32>,
    /// Records that the store has refused since it took one.
    pub(super) refused: &'a mut u32,
    pub(super) now: Duration,
    pub(super) effects: &'a mut Vec<Effect>,
}

impl Context<'_> {
    pub(super) fn note(&mut self, note: Note) {
        self.effects.push(Effect::Note(note));
    }
}

/// What follows a step of reading.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Then {
    GoOn,
    /// The fence has to be read again.
    Reload(Cause, String),
    /// The fence has to be read again: if it is this one still, the alarm is true.
    Confirm(Fence, Alarm),
    /// The partition stands still.
    Halt(Halt),
    /// The partition is left.
    End,
}

/// What one pass over the records has seen.
#[derive(Default)]
struct Seen {
    stale: u64,
    misrouted: Option<Misrouted>,
    bad_regions: u64,
    oldest: Option<UnixMillis>,
}

impl Reading {
    pub(super) fn new(setup: &Setup, ready: Ready, pace: Option<Pace>, now: Duration) -> Self {
        let Ready { fences, definitions, announced, partitions } = ready;
        Self {
            runs: Runs::default(),
            chains: fences.iter().map(|fence| Chain::new(setup.limits, fence.clone())).collect(),
            handed: fences.least().offset,
            learning: Learning::new(definitions, &setup.partition.topic, fences.furthest()),
            maps: Maps::new(announced),
            pace: Pace::after(pace, setup.lanes, fences.lanes(), now),
            change: None,
            over: None,
            partitions,
            told: now,
            confirmed: now,
            looks: false,
        }
    }

    /// The least lane's fence.
    pub(super) fn least(&self) -> &Fence {
        let fences = self.chains.iter().map(|chain| &chain.fence);
        fences.min_by_key(|fence| fence.offset).expect("there is one lane at least")
    }

    /// The offset of the lane that is furthest ahead.
    pub(super) fn furthest(&self) -> Offset {
        self.chains.iter().map(|chain| chain.fence.offset).max().expect("there is one lane at least")
    }

    pub(super) fn lanes(&self) -> LaneCount {
        self.chains[0].fence.terms.lanes
    }

    pub(super) fn chain(&mut self, lane: Lane) -> Option<&mut Chain> {
        self.chains.get_mut(lane.index())
    }

    /// Whether the next records are wanted. A partition of one lane reads nothing while it writes; several read on, until one is
    /// too far ahead of another.
    pub(super) fn reads(&self) -> bool {
        let room = if self.lanes() == LaneCount::ONE { self.chains[0].is_gathering() } else { !self.runs.is_full() };
        room && self.is_undisturbed() && self.change.is_none()
    }

    /// Whether batches become due and are written as usual.
    fn is_undisturbed(&self) -> bool {
        self.learning.is_idle() && !self.looks && self.over.is_none()
    }

    /// Whether there is nothing to do but to wait for records.
    fn is_quiet(&self) -> bool {
        self.reads() && self.chains.iter().all(|chain| chain.is_gathering() && chain.is_empty())
    }

    /// When what is gathered is due by age, lanes may be given up, or the fences are looked at because nothing is written. While the
    /// list of definitions or the fences are read, all of it waits for that.
    pub(super) fn due_at(&self, heats: &Heats) -> Option<Duration> {
        if !self.is_undisturbed() {
            return None;
        }
        if let Some(change) = &self.change {
            return change.given_up_at();
        }
        let look = self.is_quiet().then(|| self.confirmed.saturating_add(QUIET));
        let due = self.chains.iter().filter_map(Chain::due_at).min().or(look);
        [due, self.pace.due_at(), heats.due_at()].into_iter().flatten().min()
    }

    /// The time of [`due_at`](Self::due_at) has come.
    pub(super) fn woke(&mut self, context: &mut Context<'_>) -> Then {
        let then = self.gather(context);
        if then == Then::GoOn && self.is_quiet() && context.now >= self.confirmed.saturating_add(QUIET) {
            self.looks = true;
            context.effects.push(Effect::ReadFence);
        }
        then
    }

    /// The fences were looked at. A look that failed is made again later: what is written is held against the fence anyway.
    pub(super) fn looked_at(&mut self, stored: &Outcome<Option<Fences>>, context: &mut Context<'_>) -> Then {
        if !std::mem::take(&mut self.looks) {
            return Then::GoOn;
        }
        self.confirmed = context.now;
        match stored {
            Err(fault) if fault.is_retryable() => self.gather(context),
            Ok(Some(stored)) if stored.iter().eq(self.chains.iter().map(|chain| &chain.fence)) => self.gather(context),
            _ => Then::Reload(Cause::Condition, "the fence is no longer where it was".to_owned()),
        }
    }

    /// Whether records were read that are not written.
    pub(super) fn has_unsent(&self) -> bool {
        !self.runs.is_empty() || !self.chains.iter().all(|chain| chain.is_gathering() && chain.batch.is_empty())
    }

    pub(super) fn read(&mut self, records: Outcome<Arc<Records>>, context: &mut Context<'_>) -> Then {
        match records {
            Ok(records) => self.runs.push(records),
            Err(fault) if self.chains.iter().all(Chain::is_gathering) => {
                return Then::Reload(Cause::Position, format!("cannot read on: {fault}"));
            }
            // Once what is under way is written.
            Err(_) => *context.doubted = true,
        }
        self.gather(context)
    }

    /// Hands out what was read, and begins to write what is due.
    pub(super) fn gather(&mut self, context: &mut Context<'_>) -> Then {
        if self.over.is_some() {
            return self.over_once_answered();
        }
        if context.leaving {
            return self.finish(context);
        }
        if self.looks {
            return Then::GoOn;
        }
        if *context.doubted {
            return if self.chains.iter().all(Chain::is_gathering) { doubted() } else { Then::GoOn };
        }
        if self.change.is_some() {
            return self.drain(context);
        }
        if !self.learning.is_idle() {
            return self.learn(context);
        }
        if self.consider(context) {
            return self.drain(context);
        }
        if let Some((action, at)) = self.hand_out(context) {
            // A lane may have been further on before; between that and this record there is none.
            self.handed = self.handed.max(self.gathered().min(at));
            let last = self.runs.last_offset().map_or(at, |last| last.max(at));
            self.learning.ask(action, last.next());
            context.effects.push(Effect::ReadDefinitions);
            return Then::GoOn;
        }
        self.flush(context);
        context.heats.look(&self.maps, context.setup, self.partitions, context.now, context.effects);
        Then::GoOn
    }

    /// What is gathered is written, and fences with nothing to write follow; then the partition is left.
    fn finish(&mut self, context: &mut Context<'_>) -> Then {
        let idle = self.chains.iter().all(Chain::is_gathering);
        if *context.doubted && !self.chains.iter().all(|chain| chain.batch.is_empty()) {
            return if idle { doubted() } else { Then::GoOn };
        }
        let replacing = self.change.take_if(|change| change.is_sent()).is_some();
        self.change = None;
        for lane in self.lanes().all().filter(|_| !replacing) {
            let chain = &self.chains[lane.index()];
            let follows = self.chains.len() > 1 && chain.until(self.handed) > chain.fence.offset;
            if chain.is_gathering() && (follows || !chain.batch.is_empty()) {
                self.begin(lane, Trigger::Shutdown, context);
            }
        }
        if self.chains.iter().all(Chain::is_gathering) { Then::End } else { Then::GoOn }
    }

    /// Hands records to their lanes. Stops before one whose action no definition in force has, and in a partition of one lane
    /// once its batch is due.
    fn hand_out(&mut self, context: &mut Context<'_>) -> Option<(Box<str>, Offset)> {
        let Setup { key: scheme, shards, .. } = *context.setup;
        let (index, routing) = (context.setup.partition.index, Routing { scheme, shards, partitions: self.partitions });
        let lanes = self.lanes();
        let mut seen = Seen::default();
        let unknown = loop {
            let first = &self.chains[0];
            if lanes == LaneCount::ONE && (!first.is_gathering() || first.batch.due(context.now).is_some()) {
                break None;
            }
            let Some((run, record)) = self.runs.next() else { break None };
            let (offset, at) = (record.offset, record.at);
            let decoded = decode(record, self.learning.definitions());
            let lane = match &decoded {
                Err(Rejection::BadAction(Some(action)))
                    if offset >= first.batch.to() && !self.learning.is_settled(offset, action) =>
                {
                    break Some((action.clone(), offset));
                }
                Ok(event) => event.lane(lanes),
                Err(_) => Lane::FIRST,
            };
            let chain = &mut self.chains[lane.index()];
            if offset < chain.batch.to() {
                seen.stale += 1;
            } else {
                seen.oldest = Some(seen.oldest.map_or(at, |oldest| oldest.min(at)));
                seen.bad_regions += u64::from(decoded.as_ref().is_ok_and(Event::has_bad_region));
                if let Ok(event) = &decoded
                    && !routing.fits(event, index)
                    && !context.letters.has(chain.fence.cfg, offset)
                {
                    let events = seen.misrouted.map_or(0, |misrouted| misrouted.events) + 1;
                    seen.misrouted = Some(Misrouted { events, last: offset, partitions: routing.partitions });
                }
                if !chain.waiting.is_empty()
                    || !chain.has_room()
                    || chain.offer(run, record, decoded, context) != Taken::Taken
                {
                    chain.waiting.push_back(offset);
                }
            }
            self.handed = self.handed.max(offset.next());
            self.runs.handed();
        };
        let Seen { stale, misrouted, bad_regions, oldest } = seen;
        if stale > 0 || oldest.is_some() {
            context.note(Note::Taken { stale, misrouted, bad_regions, oldest });
        }
        unknown
    }

    /// Takes records before `below` that wait for `lane` into its batch, while there is room.
    pub(super) fn refill(&mut self, lane: Lane, below: Offset, context: &mut Context<'_>) {
        let chain = &mut self.chains[lane.index()];
        while let Some(offset) = chain.waiting.front().copied().filter(|offset| *offset < below)
            && chain.has_room()
        {
            let (run, record) = self.runs.at(offset).expect("a run is kept until every fence has passed it");
            let decoded = decode(record, self.learning.definitions());
            if chain.offer(run, record, decoded, context) == Taken::Full {
                return;
            }
            chain.waiting.pop_front();
        }
    }

    /// Begins to write the batches that are due.
    fn flush(&mut self, context: &mut Context<'_>) {
        for lane in self.lanes().all() {
            self.refill(lane, Offset(u64::MAX), context);
            let (handed, pressed, now) = (self.handed, self.runs.is_full(), context.now);
            let chain = &mut self.chains[lane.index()];
            let due = if chain.is_gathering() { chain.due(handed, pressed, now) } else { None };
            if let Some(trigger) = due {
                self.begin(lane, trigger, context);
            }
        }
    }

    /// The batch of `lane` is due.
    pub(super) fn begin(&mut self, lane: Lane, trigger: Trigger, context: &mut Context<'_>) {
        self.chains[lane.index()].begin(trigger, context.now);
        self.seal(lane, context);
    }

    /// `then` follows, once the transactions of other lanes are answered: one whose answer is not waited for may still happen, and
    /// would move its fence under what is read again.
    pub(super) fn ends(&mut self, lane: Lane, then: Then) -> Then {
        if then != Then::GoOn {
            self.chains[lane.index()].stage = Stage::Gathering;
            self.over = Some(then);
            return self.over_once_answered();
        }
        then
    }

    pub(super) fn over_once_answered(&mut self) -> Then {
        let answered = !self.chains.iter().any(Chain::awaits_answer);
        self.over.take_if(|_| answered).unwrap_or(Then::GoOn)
    }
}

fn doubted() -> Then {
    Then::Reload(Cause::Position, "the log no longer fits the fence, or cannot be read".to_owned())
}
