//! Reads one partition of the log `changes` for the lists of what is trending (`partition.rs`): decides which changes
//! count, since the log has copies, and what is known of losses.
//!
//! A log keeps a day and some hours, so a start seldom finds its beginning. Reading begins where the windows need it,
//! at a position whose [`Filter`] is not known (a filter has the last position that was read of each stream shard, and
//! skips copies). The fold of the counters has stored the filter of a later position. Entries before that position pass
//! through a filter that begins empty, and later ones through the stored filter. This is correct for windows that begin
//! after the time at which reading begins:
//!
//! - **No change is missing.** The empty filter is never ahead of the true one in any stream shard: both advance with
//!   the sections that they see, and the true one has seen more. So every entry after the beginning that the true
//!   filter accepts is accepted.
//! - **No change counts twice.** From the first section of a stream shard on, an entry is accepted once, and the stored
//!   filter is at least as far in each. Other accepted entries are late copies, up to half a day late, of sections from
//!   before the beginning. Their changes lie before every such window, and each is accepted once.
//! - **Losses are known.** The empty filter takes the first back-links for holes, so its findings are ignored. The
//!   stored filter knows where the last loss was announced; if that is after the beginning, the message there states
//!   when. If the message before the stored position is not the one that the fold has read there, the log has lost its
//!   end, which is a loss, too.
//!
//! None of this is needed for a log that is read from its offset 0: its filter is the true one from the first message
//! on, and before that message there was nothing, or a loss is announced. So the lists of a young deployment are exact
//! at once.

use tally_core::changes::{BadMessage, Body, DeploymentId, Effect, Entry, Filter, Item, Message, Place};
use tally_core::fold::{Mark, Position, ReadTo};
use tally_core::ports::log::Record;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, TopicId};

use super::contract::{Looked, Note};
use crate::Evidence;

/// A partition of the log up to the current position.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The topic; `None` before anything was read.
    topic: Option<TopicId>,
    /// Everything before this position was read.
    next: Place,
    filter: Filter,
    /// The stored position, whose filter is used once reading reaches it.
    stored: Option<Position>,
    /// The last loss in the stored filter, if it was announced after the beginning.
    announced: Option<Place>,
    /// The end of the log at the last look.
    end: Offset,
    /// See [`Evidence::since`].
    since: Option<UnixMillis>,
    /// See [`Evidence::loss`].
    loss: Option<UnixMillis>,
    /// See [`Evidence::unreadable`].
    unreadable: Option<u64>,
}

impl Reading {
    /// Reads all of a log that still has its beginning.
    pub(super) fn of_all(Looked { log, generation, .. }: Looked) -> Self {
        let (topic, next, since) = (Some(log.topic), Place::new(generation, log.start), Some(UnixMillis(0)));
        Self { topic, next, end: log.end, since, ..Self::default() }
    }

    /// Reads the log from the offset `from` on. No earlier message in it was appended at `needed` or later.
    pub(super) fn of_windows(log: Log, from: Offset, needed: UnixMillis, stored: Position) -> Self {
        let since = match (from > log.start, log.start) {
            (true, _) => Some(needed),
            (false, Offset(0)) => Some(UnixMillis(0)),
            // Messages before the first one in the log may have been needed.
            (false, _) => None,
        };
        // The message before the stored position is read, too, to check that it is the one that the fold has read.
        let from = from.min(Offset(stored.at.offset().0.saturating_sub(1)).max(log.start));
        let next = Place::new(stored.at.generation(), from).min(stored.at);
        let announced = stored.filter.loss().filter(|loss| *loss >= next);
        let (topic, end, stored) = (Some(log.topic), log.end, Some(stored));
        let mut reading = Self { topic, next, stored, announced, end, since, ..Self::default() };
        reading.take_over(next);
        reading
    }

    /// Returns the offset of the next record.
    pub(super) fn position(&self) -> Offset {
        self.next.offset()
    }

    /// Returns the topic; `None` before anything was read.
    pub(super) fn topic(&self) -> Option<&TopicId> {
        self.topic.as_ref()
    }

    /// Returns whether everything up to the end at the last look was read.
    pub(super) fn has_caught_up(&self) -> bool {
        self.position() >= self.end
    }

    /// Returns the time up to which all changes of the table were read, or `None` if that is not known.
    pub(super) fn as_of(&self) -> Option<UnixMillis> {
        self.filter.standing().as_of.filter(|_| self.stored.is_none())
    }

    /// Returns the evidence from the log about a window after the second `from`.
    pub(super) fn evidence(&self, from: u64) -> Evidence {
        let Self { since, loss, unreadable, .. } = *self;
        Evidence { from, since, loss, unreadable, late: None, shed: 0 }
    }

    /// Handles the next record, and passes each change in it that counts to `each`.
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

    /// Returns whether the message before the stored position is not the one that the fold has read there: then the log
    /// has lost its end. The stored filter is used nevertheless, and changes that only the lost end contained are
    /// missing.
    fn is_replaced(&self, read: ReadTo) -> bool {
        let stored = self.stored.as_ref().and_then(Position::read_to);
        stored.is_some_and(|stored| stored.at == read.at && stored.last != read.last)
    }

    /// Takes over the stored filter once reading reaches its position.
    fn take_over(&mut self, at: Place) {
        if let Some(stored) = self.stored.take_if(|stored| stored.at <= at) {
            self.filter = stored.filter;
        }
    }
}
