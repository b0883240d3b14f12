//! What was read of a partition of the log, and what is known by it.
//!
//! A log keeps a day and some hours, so a start seldom finds its beginning. It begins where the windows need, which is a place
//! whose [`Filter`] is not known; the fold of the counters has stored the filter of a later one. Until that place the entries are
//! taken through a filter that begins empty, and from there on through the stored one. That is sound for windows that begin
//! behind the time at which reading begins:
//!
//! * **Nothing is missing.** An empty filter has reached no further in any stream shard than the true one has: both are raised
//!   by what they have met, and the true one has met all that and more. So whatever the true filter accepts behind the
//!   beginning is accepted.
//! * **Nothing counts twice.** From the first section of a stream shard on an entry is accepted once, and the stored filter has
//!   reached at least as far in each. What is accepted beyond that are late copies, at most half a day late, of sections from
//!   before the beginning: changes of before it, which are in no such window, and each of them once.
//! * **Losses are known.** An empty filter takes the first back-links for holes, so what it finds is not listened to. The stored
//!   one knows where the last loss was announced. If that lies behind the beginning, the message there tells when. Where
//!   another message stands before the stored place than the fold has read there, the log has lost its end: a loss, too.
//!
//! A log that is read from its offset 0 needs none of that: its filter is the true one from the first message on, and before
//! the first message there is nothing, or a loss is announced. So lists of a young deployment are exact at once.

use tally_core::changes::{BadMessage, Body, DeploymentId, Effect, Entry, Filter, Item, Message, Place};
use tally_core::fold::{Mark, Position, ReadTo};
use tally_core::ports::log::Record;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, TopicId};

use super::contract::{Looked, Note};
use crate::Evidence;

/// A partition of the log as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The topic; `None` before anything is read.
    topic: Option<TopicId>,
    /// Everything before this place was read.
    next: Place,
    filter: Filter,
    /// What is known of a later place, and is taken over there.
    stored: Option<Position>,
    /// The last loss that the stored filter knows, if it was announced behind the beginning.
    announced: Option<Place>,
    /// Where the log ended when it was looked at.
    end: Offset,
    /// See [`Evidence::since`].
    since: Option<UnixMillis>,
    /// See [`Evidence::loss`].
    loss: Option<UnixMillis>,
    /// See [`Evidence::unreadable`].
    unreadable: Option<u64>,
}

impl Reading {
    /// All of a log that has its beginning still.
    pub(super) fn of_all(Looked { log, generation, .. }: Looked) -> Self {
        let (topic, next, since) = (Some(log.topic), Place::new(generation, log.start), Some(UnixMillis(0)));
        Self { topic, next, end: log.end, since, ..Self::default() }
    }

    /// The log from the offset `from` on, before which nothing is that was appended at `needed` or later and is in the log.
    pub(super) fn of_windows(log: Log, from: Offset, needed: UnixMillis, stored: Position) -> Self {
        let since = match (from > log.start, log.start) {
            (true, _) => Some(needed),
            (false, Offset(0)) => Some(UnixMillis(0)),
            // Messages before the first one that is there may be such that were needed.
            (false, _) => None,
        };
        // The message before the stored place is read, too: it has to be the one that the fold has read there.
        let from = from.min(Offset(stored.at.offset().0.saturating_sub(1)).max(log.start));
        let next = Place::new(stored.at.generation(), from).min(stored.at);
        let announced = stored.filter.loss().filter(|loss| *loss >= next);
        let (topic, end, stored) = (Some(log.topic), log.end, Some(stored));
        let mut reading = Self { topic, next, stored, announced, end, since, ..Self::default() };
        reading.take_over(next);
        reading
    }

    /// The next record.
    pub(super) fn position(&self) -> Offset {
        self.next.offset()
    }

    /// Whether the next record is, or will be, in this log.
    pub(super) fn goes_on_in(&self, log: &Log) -> bool {
        self.topic.as_ref() == Some(&log.topic) && (log.start..=log.end).contains(&self.position())
    }

    /// Whether everything was read that the log had when it was looked at.
    pub(super) fn has_caught_up(&self) -> bool {
        self.position() >= self.end
    }

    /// Everything that was in the table by then was read; `None` where that is not known.
    pub(super) fn as_of(&self) -> Option<UnixMillis> {
        self.filter.standing().as_of.filter(|_| self.stored.is_none())
    }

    /// What is known of a window behind the second `from`, as far as the log goes.
    pub(super) fn evidence(&self, from: u64) -> Evidence {
        let Self { since, loss, unreadable, .. } = *self;
        Evidence { from, since, loss, unreadable, late: None, shed: 0 }
    }

    /// Takes the next record. `each` is given the changes in it that count.
    pub(super) fn take(
        &mut self,
        record: &Record<'_>,
        deployment: &DeploymentId,
        mut each: impl FnMut(&Entry),
    ) -> Result<Vec<Note>, BadMessage> {
        let value = record.value.ok_or_else(|| BadMessage::Malformed("it has no value".to_owned()))?;
        let message = Message::read(value, deployment)?;
        let (at, mut notes) = (Place::new(self.next.generation(), record.offset), Vec::new());
        self.take_over(at);
        let is_replaced = self.is_replaced(ReadTo { at: at.next(), last: Mark::of(record.at, value) });
        self.since.get_or_insert(record.at);
        let (before, mut taken, mut unreadable) = (self.filter.loss(), 0, None);
        self.filter.take(at, record.at, &message, |item, _| {
            let Item::Entry(entry) = item else { return };
            taken += 1;
            match &entry.effect {
                Effect::Weighed { .. } => each(entry),
                Effect::Unreadable { .. } => unreadable = unreadable.max(Some(entry.second)),
                Effect::Marked(_) => {}
            }
        });
        self.unreadable = self.unreadable.max(unreadable);
        self.next = at.next();
        let is_announced = self.announced.take_if(|announced| *announced <= at).is_some();
        if is_announced || is_replaced || (self.stored.is_none() && self.filter.loss() > before) {
            self.loss = self.loss.max(Some(record.at));
            notes.push(Note::Loss);
        }
        self.take_over(self.next);
        if let Body::Sections { sections, .. } = &message.body {
            let entries: usize = sections.iter().map(|section| section.entries.len()).sum();
            if entries > 0 {
                notes.push(Note::Read { taken, copies: entries - taken });
            }
        }
        Ok(notes)
    }

    /// Whether another message stands before the stored place than the fold has read there: the log has lost its end. What is
    /// stored has to do then, and changes that only the lost end had are missing here.
    fn is_replaced(&self, read: ReadTo) -> bool {
        let stored = self.stored.as_ref().and_then(Position::read_to);
        stored.is_some_and(|stored| stored.at == read.at && stored.last != read.last)
    }

    /// Takes what is stored of a place over, once it is reached.
    fn take_over(&mut self, at: Place) {
        if let Some(stored) = self.stored.take_if(|stored| stored.at <= at) {
            self.filter = stored.filter;
        }
    }
}
