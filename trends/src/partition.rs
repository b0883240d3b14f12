//! One partition of the ledger, from the log to the topic of boards: when a moment has come, what is made anew after a break,
//! and what is published. Without I/O.
//!
//! 1. **Look.** How far the ledger is written is learnt first, and where the log ends is asked after that. Once everything
//!    before that end was read, every second that lies far enough behind is complete.
//! 2. **Replay.** What the windows of the first moment need is read from the log, from some hours before it.
//! 3. **Publish.** The moments in order, one at a time: the boards that changed, and then a tick.
//!
//! Whatever is in doubt about the log, another topic, an end before what was read, a position that cannot be read, leads to a
//! replay; what the log lacks is a lapse of this partition. Sums of the log may be [kept](Partition::keeping) on a disk, and nothing else.

mod contract;
mod keeping;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tally_core::fence::{Log, Offset, TopicId};
use tally_core::ledger::{Message, Seconds};
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;

use keeping::Keeping;

pub use contract::{Alarm, Effect, Input, Note, Publication, Setup};

use crate::window::{first_moment, next_moment};
use crate::{Claim, Evidence, Fold, Place, Ranked, Standing, Tick, Window, Written, board_key, certify, mark};

/// How much longer than its windows a partition looks back: what clocks of machines differ by, and more.
const SLACK: Duration = Duration::from_secs(2 * 3600);

/// How often every board is written again, in seconds: for readers that have lost the boards of another writer.
const WHOLE: u64 = 300;

/// Ends that wait to be passed, at most.
const GOALS: usize = 30;

/// The machine of one partition.
#[derive(Debug)]
pub struct Partition {
    setup: Setup,
    stage: Stage,
    /// The latest that was learnt and with which no look has begun.
    standing: Option<Standing>,
    /// The one whose look is under way, and what was read when the end was asked for: the end is of after both.
    looking: Option<(Standing, Offset)>,
    /// The number of that look.
    looks: u64,
    fold: Fold,
    /// The topic that is read.
    topic: Option<TopicId>,
    /// The next record.
    position: Offset,
    /// What was learnt, each with an end of the log of after that.
    goals: VecDeque<(Standing, Offset)>,
    /// The last of them that was passed.
    passed: Option<Standing>,
    /// What this partition's log lacks.
    lacks: Vec<Seconds>,
    published: u64,
    is_publishing: bool,
    /// The boards as they were written last.
    sent: BTreeMap<(Place, usize), Sent>,
    /// When all of them were, last.
    whole: Option<u64>,
    /// So many of the keys that the fold has forgotten were told of.
    shed: u64,
    /// What is kept on a disk, where there is one.
    keeping: Option<Keeping>,
}

/// A board as it was written.
#[derive(Debug)]
struct Sent {
    moment: u64,
    items: Vec<Ranked>,
    complete: bool,
}

/// From when on the log is needed for lists of `moment`.
fn needed(windows: &[Window], moment: u64) -> UnixMillis {
    let longest = windows.iter().map(|window| window.span()).max().unwrap_or_default();
    UnixMillis(moment * 1000).minus(Duration::from_secs(longest).saturating_add(SLACK))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is known of the log.
    Begin,
    /// The position that this time needs is looked for, in a log that begins there.
    Finding { needed: UnixMillis, start: Offset },
    /// What a disk has of it is loaded.
    Loading,
    /// The log is opened at the position. What is before its first record is missing, from this time on.
    Opening { lacks: Option<UnixMillis> },
    /// It is read.
    Reading { lacks: Option<UnixMillis> },
    /// It is not read any more.
    Halted,
}

impl Partition {
    /// The machine of a partition that was just assigned.
    pub fn new(setup: Setup) -> Self {
        let fold = setup.fold(0);
        Self {
            setup,
            stage: Stage::Begin,
            standing: None,
            looking: None,
            looks: 0,
            fold,
            topic: None,
            position: Offset(0),
            goals: VecDeque::new(),
            passed: None,
            lacks: Vec::new(),
            published: 0,
            is_publishing: false,
            sent: BTreeMap::new(),
            whole: None,
            shed: 0,
            keeping: None,
        }
    }

    /// Takes one input; what follows from it is added to `effects`.
    pub fn step(&mut self, input: Input, effects: &mut Vec<Effect>) {
        if self.stage == Stage::Halted {
            return;
        }
        match input {
            Input::Standing(standing) => self.standing = Some(standing),
            Input::Log(look, log) if look == self.looks => self.looked(log, effects),
            Input::Log(..) => {}
            Input::Found(offset) => self.found(offset, effects),
            Input::Loaded(stretch) => self.loaded(stretch.as_deref(), effects),
            Input::Opened => {
                if let Stage::Opening { lacks } = self.stage {
                    self.stage = Stage::Reading { lacks };
                }
            }
            Input::Records(records) => self.read(&records, effects),
            Input::Broken => self.begin_anew(effects),
            Input::Published => self.is_publishing = false,
        }
        self.look(effects);
        self.publish(effects);
        let before = std::mem::replace(&mut self.shed, self.fold.shed_keys());
        if self.shed > before {
            effects.push(Effect::Tell(Note::Shed(self.shed - before)));
        }
    }

    /// From here on there may be so many [keys](Fold::keys): those that are too many are forgotten.
    pub fn allow(&mut self, keys: usize) {
        if keys != self.setup.keys {
            self.setup.keys = keys;
            self.fold.allow(keys);
        }
    }

    /// How many [keys](Fold::keys) there are.
    pub fn keys(&self) -> usize {
        self.fold.keys()
    }

    /// Whether records are wanted.
    pub fn reads(&self) -> bool {
        matches!(self.stage, Stage::Reading { .. })
    }

    /// The last moment that was published, or is about to be.
    pub fn published(&self) -> u64 {
        self.published
    }

    /// The next record to be read.
    pub fn position(&self) -> Offset {
        self.position
    }

    /// Asks where the log ends, with what was learnt before that.
    fn look(&mut self, effects: &mut Vec<Effect>) {
        let is_idle = self.looking.is_none() && self.goals.len() < GOALS;
        if !is_idle || !matches!(self.stage, Stage::Begin | Stage::Reading { .. }) {
            return;
        }
        let is_known = |standing: &mut Standing| standing.as_of.is_some();
        if let Some(standing) = self.standing.take_if(is_known) {
            self.looking = Some((standing, self.position));
            self.looks += 1;
            effects.push(Effect::Look(self.looks));
        }
    }

    fn looked(&mut self, log: Log, effects: &mut Vec<Effect>) {
        let Some((standing, position)) = self.looking.take() else { return };
        match self.stage {
            Stage::Begin => self.begin(standing, log, effects),
            Stage::Reading { .. } => {
                let is_same = self.topic.as_ref() == Some(&log.topic) && log.end >= position;
                if is_same {
                    self.goals.push_back((standing, log.end));
                    self.pass();
                } else {
                    // Whatever the other log had is not in this one.
                    let last = standing.as_of.map_or(u64::MAX, |as_of| as_of.0 / 1000);
                    self.lacks(Seconds { first: 0, last }, effects);
                    self.begin_anew(effects);
                }
            }
            Stage::Finding { .. } | Stage::Loading | Stage::Opening { .. } | Stage::Halted => {}
        }
    }

    /// Decides on the first moment, and looks for where its windows begin.
    fn begin(&mut self, standing: Standing, log: Log, effects: &mut Vec<Effect>) {
        let Some(moment) = standing.as_of.and_then(|as_of| first_moment(self.published, as_of)) else { return };
        self.fold = self.setup.fold(moment);
        let needed = needed(&self.setup.windows, moment);
        self.stage = Stage::Finding { needed, start: log.start };
        self.topic = Some(log.topic);
        self.goals.push_back((standing, log.end));
        effects.push(Effect::Find(needed));
    }

    fn found(&mut self, offset: Option<Offset>, effects: &mut Vec<Effect>) {
        let Stage::Finding { needed, start } = self.stage else { return };
        // Where nothing is as late as that, or the broker cannot look by time, all that there is is read.
        self.position = offset.unwrap_or(start).max(start);
        // Records before the first one that is there may be such that were needed.
        let lacks = (self.position == start && start > Offset(0)).then_some(needed);
        if lacks.is_none() && self.load(effects) {
            return;
        }
        self.stage = Stage::Opening { lacks };
        effects.push(Effect::Open(self.position));
        self.pass();
    }

    fn read(&mut self, records: &Arc<Records>, effects: &mut Vec<Effect>) {
        for record in records.iter() {
            if record.offset < self.position {
                continue;
            }
            if self.is_loaded(&record, effects) {
                continue;
            }
            let Stage::Reading { lacks } = &mut self.stage else { return };
            if let Some(needed) = lacks.take()
                && record.at > needed
            {
                self.lacks(Seconds::from_to(needed, record.at), effects);
            }
            if let Err(alarm) = self.take(record.value, effects) {
                self.stage = Stage::Halted;
                effects.push(Effect::Halt(alarm));
                return;
            }
            self.position = record.offset.next();
            self.keep(&record, effects);
        }
        self.pass();
    }

    fn take(&mut self, value: Option<&[u8]>, effects: &mut Vec<Effect>) -> Result<(), Alarm> {
        let Message { shard, changes } = Message::read(value.unwrap_or_default()).map_err(Alarm::of)?;
        let (late, mut taken) = (self.fold.late(), 0);
        for change in &changes {
            if self.fold.take(shard, change) {
                taken += 1;
                self.keeping.iter_mut().for_each(|keeping| keeping.add(change));
            }
        }
        effects.push(Effect::Tell(Note::Read { taken, copies: changes.len() - taken }));
        if self.fold.late() != late {
            effects.push(Effect::Tell(Note::Late));
        }
        Ok(())
    }

    fn lacks(&mut self, seconds: Seconds, effects: &mut Vec<Effect>) {
        self.lacks.push(seconds);
        effects.push(Effect::Tell(Note::Lacks(seconds)));
    }

    /// Ends up to the position are passed.
    fn pass(&mut self) {
        while let Some((standing, _)) = self.goals.pop_front_if(|(_, end)| *end <= self.position) {
            self.passed = Some(standing);
        }
    }

    /// What was read is made anew from the log, behind what is published.
    fn begin_anew(&mut self, effects: &mut Vec<Effect>) {
        (self.stage, self.looking, self.passed, self.whole) = (Stage::Begin, None, None, None);
        self.goals.clear();
        self.keeping.iter_mut().for_each(Keeping::forget);
        effects.push(Effect::Tell(Note::Anew));
    }

    /// Publishes the next moment, if it has come and the one before is done with.
    fn publish(&mut self, effects: &mut Vec<Effect>) {
        let Stage::Reading { lacks } = self.stage else { return };
        let Some(standing) = self.passed.as_ref().filter(|_| !self.is_publishing) else { return };
        let Some(as_of) = standing.as_of else { return };
        // The first moment of a fold, or the next one.
        let first = Some(self.fold.moment()).filter(|moment| *moment > self.published);
        let Some(moment) = first.or_else(|| next_moment(self.published, as_of)) else { return };
        if let Some(needed) = lacks {
            // The log has lost all that it had.
            self.stage = Stage::Reading { lacks: None };
            self.lacks(Seconds::from_to(needed, as_of), effects);
        }
        self.fold.advance(moment);
        self.fold.tell();
        (self.published, self.is_publishing) = (moment, true);
        let publication = self.publication(moment);
        effects.push(Effect::Publish(publication));
    }

    fn publication(&mut self, moment: u64) -> Publication {
        let is_whole = self.whole.is_none_or(|whole| moment - whole >= WHOLE);
        let mut touched = self.fold.touched();
        if is_whole {
            self.whole = Some(moment);
            let windows = 0..self.setup.windows.len();
            let each = |place: Place| windows.clone().map(|index| (place.clone(), index)).collect::<Vec<_>>();
            touched = self.fold.places().flat_map(each).chain(self.sent.keys().cloned()).collect();
            touched.sort_unstable();
            touched.dedup();
        }
        let (mut boards, mut gone) = (Vec::new(), Vec::new());
        for (place, index) in touched {
            let list = self.fold.list(&place, index);
            let window = self.setup.windows[index];
            let key = (place, index);
            let before = self.sent.get(&key);
            let was_listed = before.is_some_and(|before| !before.items.is_empty());
            if list.items.is_empty() && !was_listed {
                if is_whole && self.sent.remove(&key).is_some() {
                    gone.push(board_key(self.setup.partition, &key.0, window));
                }
                continue;
            }
            let is_same = |before: &Sent| before.items == list.items && before.complete == list.complete;
            if is_whole || !before.is_some_and(is_same) {
                let sent = Sent { moment, items: list.items.clone(), complete: list.complete };
                boards.push(self.board(&key.0, window, &sent));
                self.sent.insert(key, sent);
            }
        }
        Publication { boards, gone, tick: self.tick(moment) }
    }

    fn board(&self, place: &Place, window: Window, sent: &Sent) -> Written {
        Written {
            writer: self.setup.writer.clone(),
            partition: self.setup.partition,
            moment: sent.moment,
            place: place.clone(),
            window,
            items: sent.items.clone(),
            complete: sent.complete,
        }
    }

    fn tick(&self, moment: u64) -> Tick {
        let listed = self.sent.iter().filter(|(_, sent)| !sent.items.is_empty());
        let windows = &self.setup.windows;
        let marks = listed.map(|((place, index), sent)| mark(place, windows[*index], sent.moment));
        Tick {
            writer: self.setup.writer.clone(),
            partition: self.setup.partition,
            of: self.setup.of,
            moment,
            marks: marks.fold(0, u64::wrapping_add),
            folded: self.fold.has_folded_regions(),
            claims: (0..windows.len()).map(|index| (windows[index], self.claim(index, moment))).collect(),
        }
    }

    /// What may be claimed of the lists of the window at `index` at `moment`.
    fn claim(&self, index: usize, moment: u64) -> Claim {
        let standing = self.passed.clone().unwrap_or_default();
        let lapses: Vec<Seconds> = standing.lapses.iter().chain(&self.lacks).copied().collect();
        certify(&Evidence {
            from: self.setup.windows[index].from(moment),
            moment,
            since: standing.since,
            lapses: &lapses,
            late: self.fold.late(),
            missing: false,
            shed: self.fold.bound(index),
        })
    }
}
