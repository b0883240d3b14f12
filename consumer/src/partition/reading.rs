//! Decodes the records that the consumer has read from a partition. An event of one user, such as a like, becomes a
//! write of that user's row; an amount, such as three views, is added to its sum; and a record that is no event becomes
//! a dead letter.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tally_core::definitions::Definitions;
use tally_core::event::{Deed, Event, Rejection, decode};
use tally_core::ports::Outcome;
use tally_core::ports::log::{Record, Records};
use tally_core::register::{Effect, LastRead, Progress};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition};

use super::Held;
use crate::letter::PUT_BACK_FOR;
use crate::{metrics, misrouted};

/// What was read and is not finished, and the definitions by which it is decoded.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) runs: Runs,
    /// How many records were taken in.
    pub(super) taken: u64,
    /// The definitions of the counters whose events are in the topic.
    definitions: Definitions,
    /// Records before this offset were read before the definitions were, so an action that these do not have is
    /// unknown.
    settled: Offset,
    asks: bool,
    /// The records of unknown actions whose dead letters are not acknowledged.
    unknown: BTreeSet<Offset>,
    /// Whether a sum's event waits for these. Its cell will say that everything before the event is in. So no record
    /// may be left by then that another reader might add, because its action was defined since.
    waits: bool,
    /// How often in a row the definitions could not be read.
    tries: u32,
    /// Whether this has warned of events whose times are most likely in seconds.
    told_of_old_times: bool,
}

impl Reading {
    pub(super) fn new(definitions: &Definitions, topic: &str, at: Offset) -> Self {
        Self { definitions: definitions.said_in(topic), settled: at, ..Self::default() }
    }
}

/// Events of one pass that are in another partition than their key says.
#[derive(Default)]
struct Misrouted {
    events: u64,
    last: Option<Offset>,
}

/// Warns of the time of an event, which is taken all the same: a wrong time changes no count.
fn warn_of_old_time(event: &Event<'_>, partition: &Partition, offset: Offset) {
    let (at, date, subject) = (event.at.0, event.at.date(), event.subject());
    tracing::warn!(
        %partition, %offset, subject, at,
        "an event says that it happened at {date}: `ts` is in milliseconds since 1970, and this is most likely seconds; it is \
         taken as it is, and further ones are only counted"
    );
}

impl Held {
    /// Returns whether more records are wanted.
    pub(super) fn reads(&self) -> bool {
        !self.reading.runs.is_full() && !self.reading.asks && !self.tail.has_regrown
    }

    /// Takes in the records that were read, while there is room. Stops before a record whose action is not known.
    pub(super) fn hand_out(&mut self) {
        let mut misrouted = Misrouted::default();
        while self.may_put_aside()
            && !self.tail.has_regrown
            && !self.reading.asks
            && !self.reading.waits
            && let Some((run, first)) = self.reading.runs.next()
        {
            let mut handed = 0;
            while let Some(record) = run.get(first + handed)
                && self.may_put_aside()
                && self.take(&run, record, &mut misrouted)
            {
                handed += 1;
            }
            let last = handed.checked_sub(1).and_then(|last| run.get(first + last));
            self.kept.last =
                last.map(|last| LastRead { at: last.offset, fingerprint: last.fingerprint() }).or(self.kept.last);
            self.reading.runs.handed(handed);
        }
        if let Some(last) = misrouted.last {
            metrics::MISROUTED.counter(&[]).increment(misrouted.events);
            self.kept.misrouted = true;
            self.warn(misrouted.events, last);
        }
    }

    /// Takes in a record. Returns whether it did: a record may have to wait for the definitions, or for dead letters.
    fn take(&mut self, run: &Arc<Records>, record: Record<'_>, misrouted: &mut Misrouted) -> bool {
        let offset = record.offset;
        if offset < self.progress.next() {
            // It was read twice.
            metrics::RECORDS.counter(&["stale"]).increment(1);
            return true;
        }
        if self.is_for_another(record) {
            self.progress.take_elsewhere(offset);
            self.progress.finish(offset);
            (self.reading.taken, self.rejected) = (self.reading.taken + 1, self.rejected + 1);
            metrics::RECORDS.counter(&["stale"]).increment(1);
            return true;
        }
        let decoded = decode(record, &self.reading.definitions);
        match decoded {
            Err(Rejection::BadAction(Some(_))) if offset >= self.reading.settled => {
                self.learn();
                return false;
            }
            Err(rejection) => {
                if matches!(rejection, Rejection::BadAction(Some(_))) {
                    self.reading.unknown.insert(offset);
                }
                self.progress.take_elsewhere(offset);
                self.put_aside(offset, Arc::clone(run), rejection);
            }
            Ok(Event { deed: Deed::Amount(_), .. }) if !self.reading.unknown.is_empty() => {
                self.reading.waits = true;
                return false;
            }
            Ok(event) => {
                if event.has_bad_region() {
                    metrics::BAD_REGIONS.counter(&[]).increment(1);
                }
                if event.at < UnixMillis::YEAR_2000 {
                    metrics::OLD_TIMES.counter(&[]).increment(1);
                    if !std::mem::replace(&mut self.reading.told_of_old_times, true) {
                        warn_of_old_time(&event, self.log.partition(), offset);
                    }
                }
                match Effect::of(&event, &self.topic, self.log.partition(), offset, self.shared.shards) {
                    Effect::Write(write) => {
                        if !write.version.is_routed() {
                            (misrouted.events, misrouted.last) = (misrouted.events + 1, Some(offset));
                        }
                        self.writing.gather(record.weight(), &self.shared);
                        self.progress.take(write);
                    }
                    Effect::Add { counter, version, amount } => {
                        self.progress.take_elsewhere(offset);
                        if self.writing.add(counter, version, amount, &self.shared) {
                            self.progress.finish(offset);
                        }
                    }
                }
            }
        }
        self.reading.taken += 1;
        true
    }

    /// Returns whether another deployment that reads this topic has put the record back for itself.
    fn is_for_another(&self, record: Record<'_>) -> bool {
        let is_other = |name: &String| record.header(PUT_BACK_FOR).is_some_and(|of| of != name.as_bytes());
        self.shared.name.as_ref().is_some_and(is_other)
    }

    /// Takes note that the dead letter of the record at `offset` is acknowledged.
    pub(super) fn acknowledged(&mut self, offset: Offset) {
        if self.reading.unknown.remove(&offset) && self.reading.unknown.is_empty() {
            self.reading.waits = false;
        }
    }

    /// Reads the definitions again: an action that was defined before it was used is among them.
    fn learn(&mut self) {
        self.reading.asks = true;
        let (shared, tries) = (Arc::clone(&self.shared), self.reading.tries);
        let work = async move {
            if let Some(attempt) = tries.checked_sub(1) {
                shared.host.clock().sleep(shared.pause(attempt)).await;
            }
            shared.deployment.definitions().await
        };
        self.begin(work, |held, list| {
            held.learnt(list);
            None
        });
    }

    /// Takes in the definitions, by which every record that was read before is decoded.
    fn learnt(&mut self, list: Outcome<Definitions>) {
        self.reading.asks = false;
        match list {
            Ok(list) => {
                self.reading.tries = 0;
                self.reading.definitions = list.said_in(&self.log.partition().topic);
                self.reading.settled = self.reading.runs.end().unwrap_or(self.reading.settled);
            }
            Err(fault) => {
                metrics::RETRIES.counter(&["definitions", fault.class()]).increment(1);
                self.reading.tries = self.reading.tries.saturating_add(1);
                if self.reading.tries.is_power_of_two() {
                    let partition = self.log.partition();
                    tracing::warn!(%partition, error = %fault, "cannot read the counters: trying again");
                }
            }
        }
    }

    fn warn(&self, events: u64, last: Offset) {
        let Some(run) = self.reading.runs.at(last) else { return };
        let Some(record) = run.at(last) else { return };
        let event = decode(record, &self.reading.definitions).ok();
        let expected = event.map(|event| event.subject().to_owned());
        let partitions = self.topic.current().partitions();
        let last = misrouted::Last::of(self.log.partition(), record, expected.as_deref(), partitions);
        self.shared.misrouted.note(events, last);
        self.shared.misrouted.tell();
    }

    /// Returns the run that the record at `offset` was read in.
    pub(super) fn run_of(&self, offset: Offset) -> Arc<Records> {
        self.reading.runs.at(offset).expect("a run is kept until its records are finished")
    }

    pub(super) fn most_ready(&self) -> usize {
        self.shared.settings.batch_rows.min(Progress::STATEMENTS)
    }
}

/// How much of what was read a partition may hold.
const MOST_BYTES: usize = 16 << 20;
const MOST_RECORDS: usize = 20_000;

/// The *runs*, each the records of one read, from the first record on that is not finished: it may become a dead
/// letter.
#[derive(Debug, Default)]
pub(super) struct Runs {
    held: VecDeque<Arc<Records>>,
    /// The next record to hand out: a run, and an index in it.
    next: (usize, usize),
    records: usize,
    bytes: usize,
}

impl Runs {
    pub(super) fn push(&mut self, run: Arc<Records>) {
        self.records += run.len();
        self.bytes += run.weight();
        self.held.push_back(run);
    }

    /// Returns whether as much is held as may be.
    pub(super) fn is_full(&self) -> bool {
        self.records >= MOST_RECORDS || self.bytes >= MOST_BYTES
    }

    /// Returns the run that the next record to hand out is in, and its index there.
    pub(super) fn next(&mut self) -> Option<(Arc<Records>, usize)> {
        while self.held.get(self.next.0).is_some_and(|run| self.next.1 >= run.len()) {
            self.next = (self.next.0 + 1, 0);
        }
        let run = self.held.get(self.next.0)?;
        Some((Arc::clone(run), self.next.1))
    }

    /// Takes note that so many records of the run were handed out.
    pub(super) fn handed(&mut self, records: usize) {
        self.next.1 += records;
    }

    /// Returns the run with the record at `offset`.
    pub(super) fn at(&self, offset: Offset) -> Option<Arc<Records>> {
        let index = self.held.partition_point(|run| run.last_offset().is_none_or(|last| last < offset));
        self.held.get(index).cloned()
    }

    /// Returns the first record at `offset` or behind it.
    pub(super) fn first_from(&self, offset: Offset) -> Option<Record<'_>> {
        self.held.iter().find_map(|run| run.between(offset, Offset(u64::MAX)).next())
    }

    /// Returns the offset behind the last record that was read.
    pub(super) fn end(&self) -> Option<Offset> {
        Some(self.held.back()?.last_offset()?.next())
    }

    /// Lets go of runs that are before `offset`.
    pub(super) fn release(&mut self, offset: Offset) {
        while self.next.0 > 0
            && let Some(run) = self.held.front()
            && run.last_offset().is_none_or(|last| last < offset)
        {
            self.records -= run.len();
            self.bytes -= run.weight();
            self.held.pop_front();
            self.next.0 -= 1;
        }
    }
}
