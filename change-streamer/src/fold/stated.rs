//! Stores how far the fold of a partition is, and decides in [`resume`] where the next fold begins. A *statement* says
//! what the fold has read, which other folds compare with the log, and its standing: up to when all changes are
//! counted, and which losses are open. The *position* is the place where the next fold begins.

use std::sync::Arc;
use std::time::Duration;

use tally_core::cached::StandingAt;
use tally_core::changes::Place;
use tally_core::fold::{Position, ReadTo, Replaced, Stated};
use tally_core::topic::{Log, Offset};
use tally_service::{Stop, Until};
use tokio::time::Instant;

use super::partition::{BYTES, Next, PartitionFold};
use super::write::Known;
use crate::metrics;
use crate::regions::Publisher;

/// The least wait between two statements: below a second, since the log says once a second how far it is.
const STANDING: Duration = Duration::from_millis(700);

/// How often the position is stored.
const POSITION: Duration = Duration::from_secs(30);

/// The wait before a partition begins again whose counts could not be published.
const PUBLISH_AGAIN: Duration = Duration::from_secs(1);

/// A position is stored after so many full buffers, so that the next fold has no more than these in memory until it has
/// read all that this one had.
const STORED_AFTER: usize = 4;

impl PartitionFold {
    /// Stores the standing each second, the position less often; `now` stores both. Returns how to go on.
    pub(super) async fn store(&mut self, now: bool, stop: &Stop) -> anyhow::Result<Next> {
        let clock = Instant::now();
        if now || clock >= self.standing_at {
            self.standing_at = clock + STANDING;
            if self.stated.standing.at < self.written.at
                && let Some(next) = self.state_surely(None, stop).await?
            {
                return Ok(next);
            }
        }
        let is_due = now || clock >= self.position_at || self.since >= STORED_AFTER * BYTES;
        let is_stored_now = is_due && self.stored < self.written.at;
        if !self.publish(is_stored_now).await {
            return Ok(Next::Begin);
        }
        if is_stored_now {
            let (store, until) = (Arc::clone(&self.folding.store), Until::LastCall(stop));
            let put = || store.store_position(self.index, &self.written);
            let is_stored = self.patience.persist("store a position", until, put).await?;
            self.stored = self.written.at;
            if !is_stored {
                let stands = self.patience.persist("read a position", until, || store.position(self.index)).await?;
                return Ok(self.compare(stands.and_then(|stands| stands.read_to())));
            }
        }
        if is_due {
            (self.position_at, self.since) = (clock + POSITION, 0);
        }
        Ok(Next::Read)
    }

    /// Takes over the topic of counts for this partition, where this Region publishes. Forgets the counters that this
    /// fold knows: other folds may have published later ones.
    pub(super) async fn begin_publishing(&mut self, until: Until<'_>) -> anyhow::Result<()> {
        let Some(publishing) = &self.folding.publishing else { return Ok(()) };
        let begin = || Publisher::begin(publishing, self.index);
        self.publisher = Some(self.patience.persist("take over the topic of counts", until, begin).await?);
        self.known = Known::default();
        Ok(())
    }

    /// Publishes what is written, if that is due or `is_all` is to be published. Returns whether this fold may go on.
    /// If not, it begins again: another fold may have the partition, or it is not known what was published.
    async fn publish(&mut self, is_all: bool) -> bool {
        let (clock, now) = (Instant::now(), self.patience.clock().now());
        let Some(publisher) = self.publisher.as_mut().filter(|publisher| is_all || publisher.is_due(clock)) else {
            return true;
        };
        let stated = StandingAt { at: self.written.at, standing: self.standing.clone() };
        let done = publisher.publish(&stated, now).await;
        let condition = format!("published {}", self.index);
        match done {
            Ok(()) => {
                metrics::PUBLISHED.counter(&["published"]).increment(1);
                self.readiness.forget(&condition);
                true
            }
            Err(fault) => {
                metrics::PUBLISHED.counter(&["failed"]).increment(1);
                tracing::warn!(partition = self.index, %fault, "counts were not published: the partition is begun again");
                self.readiness.not_ready(&condition, fault.to_string());
                self.patience.clock().sleep(PUBLISH_AGAIN).await;
                false
            }
        }
    }

    /// States up to where this fold has read, and the standing of what is written. Returns `None` once that is stored.
    /// Otherwise it must not write, and how to go on is returned: others have stated what this fold has not read.
    pub(super) async fn state_surely(&mut self, read: Option<ReadTo>, stop: &Stop) -> anyhow::Result<Option<Next>> {
        while let Some(next) = self.state(read, stop).await? {
            if next != Next::Read || !self.partition.is_sure() {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    /// Tries once to do that. If another fold has stated something meanwhile, compares that with the log and returns
    /// how to go on. Safe to repeat: a statement only replaces the one that this fold knows.
    pub(super) async fn state(&mut self, read: Option<ReadTo>, stop: &Stop) -> anyhow::Result<Option<Next>> {
        let (read, revision) = (read.max(self.stated.read), self.stated.revision + 1);
        let mut stated = Stated { read, revision, ..self.stated.clone() };
        if stated.standing.at < self.written.at {
            stated.standing = StandingAt { at: self.written.at, standing: self.standing.clone() };
            stated.last = self.written.last;
        }
        let put = || self.folding.store.state(self.index, &stated);
        match self.patience.persist("state what was read", Until::LastCall(stop), put).await? {
            Ok(()) => {
                self.stated = stated;
                Ok(None)
            }
            Err(stands) => {
                let known = std::mem::replace(&mut self.stated, stands.unwrap_or_default());
                if self.stated.standing.at.generation() > self.partition.place().generation() {
                    // Another fold has found that the log lost its end.
                    return Ok(Some(Next::Begin));
                }
                let new: Vec<ReadTo> =
                    self.stated.readings().filter(|read| known.readings().all(|known| known != *read)).collect();
                Ok(Some(self.compare(new)))
            }
        }
    }

    /// Compares what others have read with what this fold reads, and returns how to go on.
    fn compare(&mut self, stated: impl IntoIterator<Item = ReadTo>) -> Next {
        for read in stated {
            if read.at.generation() > self.partition.place().generation() {
                return Next::Begin;
            }
            if let Err(replaced) = self.partition.heed(read) {
                return self.replaced(replaced);
            }
        }
        Next::Read
    }

    /// Returns the jump after a replaced message: here, new changes would get places that counters have passed.
    pub(super) fn replaced(&self, replaced: Replaced) -> Next {
        tracing::error!(partition = %self.log.partition(), %replaced, "the log of changes lost its end");
        Next::Jump(replaced.0.generation())
    }
}

/// Returns the position to go on from. Also returns a place to jump to if reading cannot go on there: the topic is
/// another one, the log lost its end (it ends before `reached`, or other messages were found in the generation
/// `replaced`), or its beginning was deleted unread.
pub(super) fn resume(
    position: Option<Position>,
    reached: Option<Place>,
    generation: u16,
    replaced: Option<u16>,
    log: &Log,
) -> (Position, Option<Place>) {
    let start = Place::new(generation, log.start);
    let is_new = position.is_none();
    let position = position.unwrap_or_else(|| Position { at: start, ..Position::default() });
    let stored = position.at;
    let reached = reached.filter(|reached| reached.generation() == stored.generation()).max(Some(stored));
    let jump = if stored.generation() < generation {
        // Another topic: nothing of the one before is in it.
        Some(start)
    } else if replaced == Some(stored.generation()) || reached.is_some_and(|reached| reached.offset() > log.end) {
        // The log lost its end. In this generation, new changes would get places that the counters have passed.
        Some(Place::new(stored.generation() + 1, log.end))
    } else if stored.offset() < log.start || is_new && log.start > Offset(0) {
        Some(Place::new(stored.generation(), log.start))
    } else {
        None
    };
    (position, jump)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tally_core::topic::TopicId;

    #[test]
    fn a_position_that_is_not_in_the_log_is_a_jump() {
        let log = Log { topic: TopicId("t".into()), start: Offset(5), end: Offset(9) };
        let at = |generation, offset| Place::new(generation, Offset(offset));
        let position = |place| Some(Position { at: place, ..Position::default() });
        let resumed = |position: Option<Position>| {
            let (position, jump) = resume(position, Some(at(1, 9)), 1, None, &log);
            (position.at, jump)
        };
        assert_eq!(resumed(None), (at(1, 5), Some(at(1, 5))), "what was before the start is not known");
        assert_eq!(resumed(position(at(1, 7))), (at(1, 7), None));
        assert_eq!(resumed(position(at(1, 3))), (at(1, 3), Some(at(1, 5))), "retention");
        assert_eq!(resumed(position(at(1, 12))), (at(1, 12), Some(at(2, 9))), "an unclean election");
        assert_eq!(resumed(position(at(0, 7))), (at(0, 7), Some(at(1, 5))), "another topic");
        assert_eq!(resume(None, Some(at(1, 10)), 1, None, &log).1, Some(at(2, 9)), "no position was stored yet");
        assert_eq!(resume(position(at(1, 3)), Some(at(1, 10)), 1, None, &log).1, Some(at(2, 9)), "its beginning, too");
        let (_, jump) = resume(position(at(1, 7)), Some(at(1, 10)), 1, None, &log);
        assert_eq!(jump, Some(at(2, 9)), "counters have what the log lost");
        let replaced = |generation| resume(position(at(2, 7)), None, 1, Some(generation), &log).1;
        assert_eq!(replaced(2), Some(at(3, 9)), "the log grew on where counters have what it lost");
        assert_eq!(replaced(1), None, "another fold has jumped already");
    }
}
