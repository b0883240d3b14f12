//! Part of the model of counting: the log of changes, which relays write and folds and recounts read, and what the
//! filter of a reader accepts of it.

use tally_core::changes::{Body, Effect, Entry, Filter, Item, LossNumber, Lost, Message, Nonce, Place, Section};
use tally_core::ids::CounterKind;
use tally_core::time::UnixMillis;

use super::super::{offset, opened, place, position, reached, sections, sequence, stream_shard, time, weighed};
use super::{Counts, MEMBERS, Record, Rule, Stream, key};
use crate::intern::Number;

/// The time at which every message is read and appended. Rows are written earlier: record `k` of the stream at the
/// time `k`.
pub(super) const NOW: UnixMillis = UnixMillis(100);

/// One partition: its messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Log {
    pub(super) messages: Vec<Number>,
    /// The filter of a reader of the whole log, unless it is empty.
    pub(super) end: Option<Number>,
    /// Whether that reader has found a hole.
    pub(super) hole: bool,
}

/// A position in the log, and a reader's filter there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Reader {
    pub(super) at: u8,
    pub(super) filter: Number,
}

/// What a reader sees in one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) filter: Number,
    /// Whether it accepts the entry or the correction in the message.
    pub(super) accepted: Option<Behind>,
    hole: bool,
}

/// The last loss announced before what was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Behind(pub(super) Option<Place>);

/// What a filter knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// The number of records of the stream.
    pub(super) reached: u8,
    /// The offset of the last announced loss.
    pub(super) loss: Option<u8>,
}

impl Counts {
    /// Returns a log in which the stream shard is announced, and a reader of all of it.
    pub(super) fn opened(&self) -> (Number, Reader) {
        let opened = self.message(opened([stream_shard(0)]));
        let log = self.append(self.logs.number(Log::default()), opened);
        (log, Reader { at: 1, filter: self.end(log) })
    }

    pub(super) fn message(&self, body: Body) -> Number {
        self.messages.number(Message { read: NOW, body })
    }

    /// Returns the next message of a relay whose records before `at` are acknowledged: the next record, or only that
    /// position.
    pub(super) fn section(&self, stream: Stream, at: u8, has_entry: bool) -> Number {
        let record = stream.record(at).filter(|_| has_entry);
        let before = stream.rows(at);
        self.sections.get((at, record, before), || {
            let entries: Vec<Entry> = record.map(|record| self.entry(at, record, before)).into_iter().collect();
            let to = at + u8::from(has_entry);
            let fed = Some(time(to));
            let section = Section { shard: stream_shard(0), back: position(at), to: position(to), fed, entries };
            self.message(sections(vec![section]))
        })
    }

    fn entry(&self, at: u8, record: Record, before: [i64; 2]) -> Entry {
        match record {
            Record::Change(member) => {
                let before = before[usize::from(member)];
                weighed(&key(), MEMBERS[usize::from(member)], [before, 1 - before], at + 1)
            }
            Record::Marker(recount) => {
                let effect = Effect::Marked(Nonce(recount.into()));
                Entry { key: key(), effect, second: 0, sequence: sequence(at + 1) }
            }
        }
    }

    /// Returns the announcement of the `nth` loss: of the record at `at`, which was not read.
    pub(super) fn lost(&self, nth: u8, at: u8) -> Number {
        let next = Some((stream_shard(0), sequence(at + 2)));
        self.message(Body::Lost(Lost { number: LossNumber(nth.into()), next }))
    }

    pub(super) fn append(&self, log: Number, message: Number) -> Number {
        self.appended.get((log, message), || {
            let mut log = (*self.logs.get(log)).clone();
            let filter = log.end.unwrap_or_else(|| self.filters.number(Filter::default()));
            let at = u8::try_from(log.messages.len()).expect("a log is short");
            let read = self.read(Reader { at, filter }, message);
            log.messages.push(message);
            log.end = Some(read.filter);
            log.hole |= read.hole;
            self.logs.number(log)
        })
    }

    /// Returns the log without its last message.
    pub(super) fn without_end(&self, log: Number) -> Number {
        let log = self.logs.get(log);
        let kept = log.messages.iter().take(log.messages.len() - 1);
        kept.fold(self.logs.number(Log::default()), |log, message| self.append(log, *message))
    }

    /// Returns the filter of a reader of the whole log.
    pub(super) fn end(&self, log: Number) -> Number {
        self.logs.get(log).end.expect("a log has a message")
    }

    /// Returns what the reader makes of the message at its position.
    pub(super) fn read(&self, reader: Reader, message: Number) -> Read {
        self.readings.get((reader, message), || {
            let mut filter = (*self.filters.get(reader.filter)).clone();
            let message = self.as_taken(&filter, &self.messages.get(message));
            let mut accepted = None;
            let taken = filter.take(place(reader.at), NOW, &message, |item, loss| {
                assert!(accepted.replace(Behind(loss)).is_none(), "a message has one item: {item:?}");
            });
            if !self.obeys(Rule::Filter) && matches!(&message.body, Body::Sections { .. }) {
                accepted = Some(Behind(filter.loss()));
            }
            Read { filter: self.filters.number(filter), accepted, hole: taken.hole.is_some() }
        })
    }

    /// Returns the message as a mutant sees it.
    fn as_taken(&self, filter: &Filter, message: &Message) -> Message {
        let mut message = message.clone();
        match &mut message.body {
            Body::Sections { sections, .. } if !self.obeys(Rule::BackLink) => {
                let reached = position(reached(filter));
                sections.iter_mut().for_each(|section| section.back = section.back.min(reached));
            }
            Body::Lost(lost) if !self.obeys(Rule::Raised) => lost.next = None,
            Body::Sections { losses, .. } if !self.obeys(Rule::NamedOnce) => {
                let open = filter.standing().open;
                losses.retain(|number| !open.contains(number));
            }
            _ => {}
        }
        message
    }

    pub(super) fn known(&self, filter: Number) -> Known {
        self.knowledge.get(filter, || {
            let filter = self.filters.get(filter);
            Known { reached: reached(&filter), loss: filter.loss().map(offset) }
        })
    }

    /// Returns the `as_of` of an exact answer by an API that took the standing at this filter and then read the
    /// counter.
    pub(super) fn exact_as_of(&self, filter: Number, counter: Number) -> Option<u8> {
        self.answers.get((filter, counter), || {
            let standing = self.filters.get(filter).standing();
            let served = tally_core::fold::serve(&standing, CounterKind::Set, Some(&*self.counters.get(counter)));
            served.exact.then(|| u8::try_from(served.as_of.0).expect("times are small"))
        })
    }
}

/// Returns the accepted item of a message.
pub(super) fn item(message: &Message) -> Option<Item<'_>> {
    match &message.body {
        Body::Sections { sections, .. } => sections.iter().flat_map(|section| &section.entries).map(Item::Entry).next(),
        Body::Correction(correction) => Some(Item::Correction(correction)),
        _ => None,
    }
}
