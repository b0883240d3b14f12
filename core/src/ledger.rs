//! The ledger of changes: what each record of a stream shard did to a counter, written to a log for those who count over time.
//! One machine a stream shard, without I/O, beside the one that [applies](crate::apply) it and never waited for by it.
//!
//! 1. **Gather.** Every record that changes a weight or a region becomes one entry, in the partition of its subject.
//! 2. **Cut.** A prefix ends by age or size for all partitions alike, and yields one message for each partition that has entries.
//! 3. **Send.** Each partition of the log has a line of messages. Only its first is under way; the next one waits until it
//!    is acknowledged. After an unknown outcome the same message is sent again.
//! 4. **Store.** How far the stream shard is fed moves behind a prefix once all its messages, and all before, are acknowledged.
//!
//! So any copy of a message lands after all earlier ones of its stream shard and partition are in the log, whichever process
//! sent it and wherever that process cut. A reader that counts a record only if it lies behind every record it has counted of
//! that stream shard counts each record once ([`Filter`]).
//!
//! A log that takes nothing is not waited for without end: past a limit of bytes or time what waits is dropped, and a [`Lapse`]
//! says which seconds that concerns. Until it is stored nothing behind it is sent: a process that crashes then would leave
//! the next one to send what readers pass over by now, and no lapse to say so.
//!
//! The runner owns the clock, the channel from the reader and the clients. It hands in one [`Input`] at a time and carries out
//! every [`Effect`]; an answer that is not awaited is ignored. A machine that is dropped half-way loses nothing: the next one
//! begins where the stream shard is fed, and what it repeats is not counted again.

mod contract;
mod entry;
mod filter;
mod gathered;
mod line;
mod seconds;
#[cfg(test)]
mod tests;

pub use contract::{Again, Answer, Effect, End, Input, Request, RequestId, Rules};
pub use entry::{BadMessage, Change, Message, Side};
pub use filter::Filter;
pub use line::Outgoing;
pub use seconds::{Lapse, Seconds};

use std::time::Duration;

use crate::fault::Fault;
use crate::ids::{Ordinal, Sequence};
use crate::tally::{Record, RecordKind};
use crate::time::{Now, UnixMillis};

use gathered::{Full, Gathered};
use line::Lines;

/// How far a stream shard is in the ledger, as it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fed {
    /// Every record up to this one is in the log, or in a stored lapse.
    pub sequence: Option<Sequence>,
    /// So is everything written before this time; `None` where nothing was stored yet.
    pub at: Option<UnixMillis>,
    /// So is all of the stream shard.
    pub end: bool,
}

/// The machine of one stream shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    shard: Ordinal,
    partitions: u32,
    rules: Rules,
    gathered: Gathered,
    lines: Lines,
    /// Bytes that other stream shards of the process have waiting.
    others: usize,
    /// What is in the log or in a stored lapse.
    reached: Reached,
    /// What of that is stored.
    stored: Reached,
    /// What is being stored.
    storing: Option<(RequestId, Storing)>,
    store_at: Duration,
    /// Everything written before this time was passed on by the reader.
    read_up_to: UnixMillis,
    /// The last record handed in.
    read: Option<Sequence>,
    reader_ended: Option<ReaderEnded>,
    next: RequestId,
    ended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reached {
    sequence: Option<Sequence>,
    at: UnixMillis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storing {
    /// How far the stream shard is fed.
    Reached(Reached),
    /// The lapse at the head of what waits.
    Lapse,
    /// That all of the stream shard is fed.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderEnded {
    AtEndOfShard,
    /// What is not acknowledged by then is left to the next machine.
    ByRequest {
        until: Duration,
    },
}

impl Changes {
    /// Begins where the stream shard is fed, for a log of so many partitions, at least one.
    pub fn new(shard: Ordinal, fed: Fed, partitions: u32, rules: Rules, now: Now) -> Self {
        let reached = Reached { sequence: fed.sequence, at: fed.at.unwrap_or_default() };
        Self {
            shard,
            partitions: partitions.max(1),
            rules,
            gathered: Gathered::default(),
            lines: Lines::default(),
            others: 0,
            reached,
            stored: reached,
            storing: None,
            store_at: now.at,
            read_up_to: reached.at,
            read: fed.sequence,
            reader_ended: None,
            next: RequestId { prefix: fed.sequence, nth: 0 },
            ended: false,
        }
    }

    /// Takes one input; what follows from it is added to `effects`.
    pub fn step(&mut self, now: Now, input: Input, effects: &mut Vec<Effect>) {
        if self.ended {
            return;
        }
        match input {
            Input::Records(records) => records.iter().for_each(|record| self.take(record, now, effects)),
            Input::UpTo(at) => self.read_up_to = self.read_up_to.max(at),
            Input::Lost(to) => self.lapse(to, now, effects),
            Input::EndOfShard => self.reader_ended = Some(ReaderEnded::AtEndOfShard),
            Input::ReaderStopped => {
                self.reader_ended = Some(ReaderEnded::ByRequest { until: now.at.saturating_add(self.rules.farewell) });
            }
            Input::Answered(id, answer) => self.answered(id, answer, effects),
            Input::Others(bytes) => self.others = bytes,
            Input::Woke => {}
        }
        self.go_on(now, effects);
    }

    /// When to hand in [`Input::Woke`], by the monotonic clock, if no other input comes first.
    pub fn wake_at(&self) -> Option<Duration> {
        let due = self.gathered.opened.map(|opened| opened.saturating_add(self.rules.age));
        let given_up = self.lines.oldest().map(|sealed| sealed.saturating_add(self.rules.patience));
        let stored = (self.storing.is_none() && self.to_store().is_some()).then_some(self.store_at);
        let farewell = match self.reader_ended {
            Some(ReaderEnded::ByRequest { until }) => Some(until),
            _ => None,
        };
        [due, given_up, stored, farewell].into_iter().flatten().min().filter(|_| !self.ended)
    }

    /// Bytes of entries that are not acknowledged yet.
    pub fn waiting(&self) -> usize {
        self.gathered.bytes + self.lines.bytes()
    }

    /// Everything written before this time is in the log or in a stored lapse, and it is stored that it is.
    pub fn fed_at(&self) -> UnixMillis {
        self.stored.at
    }

    fn take(&mut self, record: &Record, now: Now, effects: &mut Vec<Effect>) {
        // Read again for the counters alone.
        if Some(record.sequence) <= self.read {
            return;
        }
        self.read = Some(record.sequence);
        if let RecordKind::Unreadable { .. } = record.kind {
            self.seal(now, effects);
            let second = Seconds::of(record.written);
            self.lines.push_lapse(second, Some(record.sequence), record.written, now.at);
            return;
        }
        let change = Change::of(record);
        if let Err(Full) = self.gathered.push(record, change.as_ref(), self.partitions, now.at) {
            self.seal(now, effects);
            let taken = self.gathered.push(record, change.as_ref(), self.partitions, now.at);
            assert!(taken.is_ok(), "an entry is far smaller than a message");
        }
    }

    /// What the reader passes on next may not follow on what was before.
    fn lapse(&mut self, to: UnixMillis, now: Now, effects: &mut Vec<Effect>) {
        self.seal(now, effects);
        let from = self.read_up_to.max(self.lines.newest()).max(self.reached.at);
        self.lines.push_lapse(Seconds::between(from, to), None, UnixMillis(0), now.at);
    }

    /// Ends the prefix that is gathered: its messages join their lines.
    fn seal(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let gathered = std::mem::take(&mut self.gathered);
        let Some(last) = gathered.last else { return };
        self.next = RequestId { prefix: Some(last), nth: 0 };
        let covers = self.read_up_to.max(gathered.newest);
        let (records, bytes) = (gathered.records, gathered.bytes);
        let messages = gathered.messages(self.shard);
        effects.push(Effect::Sealed { records, messages: messages.len(), bytes });
        self.lines.push(messages, last, covers, gathered.seconds, now.at);
    }

    fn go_on(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.ended {
            return;
        }
        let due = self.gathered.opened.is_some_and(|opened| now.at >= opened.saturating_add(self.rules.age));
        if due || self.reader_ended.is_some() {
            self.seal(now, effects);
        }
        self.give_up(now, effects);
        self.send(effects);
        self.settle();
        self.store(now, effects);
        if let Some(ReaderEnded::ByRequest { until }) = self.reader_ended
            && (now.at >= until || self.is_settled())
        {
            self.end(End::Stopped, effects);
        }
    }

    /// Drops what waits once it is too much, or has waited for too long.
    fn give_up(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let much = self.waiting().saturating_add(self.others) > self.rules.bytes;
        let long = self.lines.oldest().is_some_and(|sealed| now.at >= sealed.saturating_add(self.rules.patience));
        if !(much || long) {
            return;
        }
        self.seal(now, effects);
        let recorded = matches!(self.storing, Some((_, Storing::Lapse)));
        if let Some(seconds) = self.lines.give_up(recorded, now.at) {
            effects.push(Effect::GaveUp(seconds));
        }
    }

    fn send(&mut self, effects: &mut Vec<Effect>) {
        let next = &mut self.next;
        self.lines.send(|message, again| {
            let id = next.take();
            effects.push(Effect::Ask(id, Request::Send { message, again }));
            id
        });
    }

    /// Reaches each line at the head that Kafka has acknowledged.
    fn settle(&mut self) {
        while let Some((sequence, at)) = self.lines.pop_acknowledged() {
            self.reach(sequence, at);
        }
        if self.lines.is_empty() && self.gathered.last.is_none() {
            self.reach(self.read, self.read_up_to);
        }
    }

    fn reach(&mut self, sequence: Option<Sequence>, at: UnixMillis) {
        self.reached = Reached { sequence: self.reached.sequence.max(sequence), at: self.reached.at.max(at) };
    }

    /// What is to be stored next.
    fn to_store(&self) -> Option<Storing> {
        if self.lines.lapse_at_head().is_some() {
            Some(Storing::Lapse)
        } else if self.reader_ended == Some(ReaderEnded::AtEndOfShard) && self.lines.is_empty() {
            Some(Storing::End)
        } else {
            (self.reached != self.stored).then_some(Storing::Reached(self.reached))
        }
    }

    fn store(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.storing.is_some() {
            return;
        }
        let Some(storing) = self.to_store() else { return };
        let request = match storing {
            Storing::Lapse => {
                let seconds = self.lines.lapse_at_head().expect("a lapse is at the head");
                Request::StoreLapse(Lapse { shard: self.shard, seconds })
            }
            Storing::End => Request::StoreEnd(self.reached.at),
            Storing::Reached(_) if self.reader_ended.is_none() && now.at < self.store_at => return,
            Storing::Reached(Reached { sequence: Some(to), at }) if self.stored.sequence != Some(to) => {
                Request::StoreFed { to, at }
            }
            Storing::Reached(Reached { at, .. }) => Request::StoreFedAt(at),
        };
        if matches!(storing, Storing::Reached(_)) {
            self.store_at = now.at.saturating_add(self.rules.store);
        }
        let id = self.next.take();
        self.storing = Some((id, storing));
        effects.push(Effect::Ask(id, request));
    }

    fn answered(&mut self, id: RequestId, answer: Answer, effects: &mut Vec<Effect>) {
        match (answer, self.storing) {
            (Answer::Done, Some((awaited, storing))) if awaited == id => {
                self.storing = None;
                match storing {
                    Storing::Lapse => self.lines.lapse_stored(),
                    Storing::End => self.end(End::Fed, effects),
                    Storing::Reached(reached) => self.stored = reached,
                }
            }
            (Answer::Sent(outcome), _) => self.lines.answered(id, outcome),
            _ => {}
        }
    }

    fn is_settled(&self) -> bool {
        self.lines.is_empty() && self.storing.is_none() && self.reached == self.stored
    }

    fn end(&mut self, end: End, effects: &mut Vec<Effect>) {
        if !self.ended {
            self.ended = true;
            effects.push(Effect::Ended(end));
        }
    }
}
