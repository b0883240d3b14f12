//! The state machine of one partition of the log of changes: where reading begins, when a moment has come, and what is
//! published. A *moment* is a whole second; a list is always of one moment. `worker.rs` runs the machine and does its
//! I/O.
//!
//! 1. **Look.** It asks for the ends of the log, and for the position that the fold of the counters has stored.
//! 2. **Replay.** It reads what the windows need from the log, beginning two hours before them. It publishes nothing
//!    before the end that the log had at that time, so a start does not publish a whole day second by second.
//! 3. **Publish.** It publishes the moments in order, one at a time: the boards that changed, which are lists of one
//!    counter, region and window, and then a tick, which completes them. The log itself tells which moment has come:
//!    every second it states up to when it is complete.
//!
//! After a fault, reading resumes at its position if that is still in the log; otherwise everything is read again.

mod contract;
mod reading;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_core::fold::Position;
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset};

use reading::Reading;

pub use contract::{Alarm, Effect, Input, Looked, Note, Publication, Setup};

use crate::window::{first_moment, next_moment};
use crate::{Claim, Evidence, Fold, Place, Ranked, Tick, Window, Written, board_key, certify, mark};

/// How much further back than its windows a partition reads. It covers the differences between the clocks of machines,
/// and more.
const SLACK: Duration = Duration::from_secs(2 * 3600);

/// How often, in seconds, every board is written again, for readers that have lost boards of an earlier writer.
const WHOLE: u64 = 300;

/// The state machine of one partition.
#[derive(Debug)]
pub struct Partition {
    setup: Setup,
    stage: Stage,
    reading: Reading,
    fold: Fold,
    /// Whether this fold has published a moment.
    is_told: bool,
    published: u64,
    is_publishing: bool,
    /// The boards as they were last written.
    sent: BTreeMap<(Place, usize), Sent>,
    /// The moment at which all boards were last written.
    whole: Option<u64>,
    /// How many forgotten keys were reported.
    shed: u64,
}

/// A board as it was last written.
#[derive(Debug)]
struct Sent {
    moment: u64,
    items: Vec<Ranked>,
    complete: bool,
}

/// Returns the time from which on the lists of `moment` need the log.
fn needed(windows: &[Window], moment: u64) -> UnixMillis {
    let longest = windows.iter().map(|window| moment - window.from(moment)).max().unwrap_or_default();
    UnixMillis(moment * 1000).minus(Duration::from_secs(longest).saturating_add(SLACK))
}

#[derive(Debug)]
enum Stage {
    /// It has asked for the ends of the log and the stored position.
    Looking,
    /// It has asked for the first message appended at this time or later.
    Finding { needed: UnixMillis, log: Log, stored: Box<Position> },
    /// It has asked to open the log at the position.
    Opening,
    /// It reads the log.
    Reading,
    /// It has stopped reading.
    Halted,
}

impl Partition {
    /// Creates the state machine of a newly assigned partition.
    pub fn new(setup: Setup) -> Self {
        let fold = setup.fold(0);
        Self {
            setup,
            stage: Stage::Looking,
            reading: Reading::default(),
            fold,
            is_told: false,
            published: 0,
            is_publishing: false,
            sent: BTreeMap::new(),
            whole: None,
            shed: 0,
        }
    }

    /// Returns the effect to carry out before the first input.
    pub fn begin(&self) -> Effect {
        Effect::Look { again: false }
    }

    /// Handles one input, and appends the resulting effects to `effects`.
    pub fn step(&mut self, input: Input, effects: &mut Vec<Effect>) {
        match (input, &self.stage) {
            (Input::Looked(looked), Stage::Looking) => self.looked(*looked, effects),
            (Input::Found(offset), Stage::Finding { .. }) => self.found(offset, effects),
            (Input::Opened, Stage::Opening) => self.stage = Stage::Reading,
            (Input::Records(records), Stage::Reading) => self.read(&records, effects),
            (Input::Broken, Stage::Reading) => self.look(true, effects),
            (Input::Published, _) => self.is_publishing = false,
            _ => {}
        }
        self.publish(effects);
        let before = std::mem::replace(&mut self.shed, self.fold.shed_keys());
        if self.shed > before {
            effects.push(Effect::Tell(Note::Shed(self.shed - before)));
        }
    }

    /// Changes the limit of [keys](Fold::keys). Keys beyond it are forgotten.
    pub fn allow(&mut self, keys: usize) {
        if keys != self.setup.keys {
            self.setup.keys = keys;
            self.fold.allow(keys);
        }
    }

    /// Returns the number of [keys](Fold::keys).
    pub fn keys(&self) -> usize {
        self.fold.keys()
    }

    /// Returns whether it expects records.
    pub fn reads(&self) -> bool {
        matches!(self.stage, Stage::Reading)
    }

    /// Returns the latest moment that was published, or is being published.
    pub fn published(&self) -> u64 {
        self.published
    }

    /// Returns the offset of the next record to read.
    pub fn position(&self) -> Offset {
        self.reading.position()
    }

    fn look(&mut self, again: bool, effects: &mut Vec<Effect>) {
        self.stage = Stage::Looking;
        effects.push(Effect::Look { again });
    }

    /// Decides where to read: at the current position, if that is in the log; else where the windows begin, if a
    /// position there or later is stored; else at the very beginning. If the log has lost its beginning and no position
    /// is stored, it looks again later: the fold of the counters will store one.
    fn looked(&mut self, looked: Looked, effects: &mut Vec<Effect>) {
        if self.reading.goes_on_in(&looked.log) {
            return self.open(effects);
        }
        if let Some(stored) = looked.usable() {
            let moment = stored.filter.standing().as_of.and_then(|as_of| first_moment(0, as_of)).unwrap_or_default();
            self.begin_anew(moment, effects);
            let needed = needed(&self.setup.windows, moment);
            self.stage = Stage::Finding { needed, log: looked.log, stored: Box::new(stored) };
            effects.push(Effect::Find(needed));
        } else if looked.log.start == Offset(0) {
            self.begin_anew(0, effects);
            self.reading = Reading::of_all(looked);
            self.open(effects);
        } else {
            self.look(true, effects);
        }
    }

    fn found(&mut self, offset: Option<Offset>, effects: &mut Vec<Effect>) {
        let Stage::Finding { needed, log, stored } = std::mem::replace(&mut self.stage, Stage::Opening) else {
            return;
        };
        // If no message is that late, or the broker cannot search by time, the whole log is read.
        let from = offset.unwrap_or_default().max(log.start);
        self.reading = Reading::of_windows(log, from, needed, *stored);
        self.open(effects);
    }

    fn open(&mut self, effects: &mut Vec<Effect>) {
        self.stage = Stage::Opening;
        effects.push(Effect::Open(self.reading.position()));
    }

    /// Discards everything that was read before.
    fn begin_anew(&mut self, moment: u64, effects: &mut Vec<Effect>) {
        if self.is_told {
            effects.push(Effect::Tell(Note::Anew));
        }
        self.fold = self.setup.fold(moment);
        (self.is_told, self.whole, self.shed) = (false, None, 0);
    }

    fn read(&mut self, records: &Arc<Records>, effects: &mut Vec<Effect>) {
        for record in records.iter() {
            if record.offset < self.reading.position() {
                continue;
            }
            let late = self.fold.late();
            match self.reading.take(&record, &self.setup.deployment, |entry| self.fold.take(entry)) {
                Ok(notes) => effects.extend(notes.into_iter().map(Effect::Tell)),
                Err(bad) => {
                    self.stage = Stage::Halted;
                    return effects.push(Effect::Halt(Alarm::of(bad)));
                }
            }
            if self.fold.late() != late {
                effects.push(Effect::Tell(Note::Late));
            }
        }
        // Before the first moment is published, no change can be late, so the fold adds changes at once.
        if !self.is_told
            && let Some(moment) = self.reading.as_of().and_then(|as_of| first_moment(0, as_of))
        {
            self.fold.advance(moment);
        }
    }

    /// Publishes the next moment if it has come and the previous one is acknowledged.
    fn publish(&mut self, effects: &mut Vec<Effect>) {
        if self.is_publishing || !self.reads() || !self.reading.has_caught_up() {
            return;
        }
        let Some(as_of) = self.reading.as_of() else { return };
        let moment = if self.is_told {
            next_moment(self.published, as_of)
        } else {
            first_moment(self.published, as_of).map(|moment| moment.max(self.fold.moment()))
        };
        let Some(moment) = moment else { return };
        self.fold.advance(moment);
        self.fold.tell();
        (self.published, self.is_publishing, self.is_told) = (moment, true, true);
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

    /// Returns the claim about the lists of the window at `index` at `moment`.
    fn claim(&self, index: usize, moment: u64) -> Claim {
        let (late, shed) = (self.fold.late(), self.fold.bound(index));
        certify(&Evidence { late, shed, ..self.reading.evidence(self.setup.windows[index].from(moment)) })
    }
}
