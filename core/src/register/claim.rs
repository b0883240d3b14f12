//! Claims: from where on a partition is read, and what may be said of its rows.
//!
//! Who takes a partition over raises its claim, and stores under it how far the rows have come. Everything before `safe` is
//! finished, so that is what may be committed; what the topic's own group has committed may be less, as an operator resets it.

mod past;

use std::collections::VecDeque;
use std::time::Duration;

use thiserror::Error;

pub use past::{BadPast, Past};

use super::Topic;
use crate::time::UnixMillis;
use crate::topic::{Log, Offset, TopicId};

/// The claim of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Which take-over it is.
    pub n: u64,
    /// What was stored under it or an earlier one last.
    pub kept: Option<Kept>,
}

/// How far the rows of a partition have come, as it is stored once a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The topic whose offsets these are.
    pub topic: TopicId,
    /// The generation that the topic had.
    pub generation: u16,
    /// Every record before it is finished.
    pub safe: Offset,
    /// Every record that Kafka had acknowledged by then is finished; unknown until the first one is, and during a replay.
    pub safe_at: Option<UnixMillis>,
    /// When this was stored by the store's clock, rounded up: greater each time.
    pub at: UnixMillis,
    /// The greatest `safe` ever stored.
    pub greatest: Offset,
    /// Records before it may be in the rows: they were read, though an earlier one may be unfinished.
    pub sent: Offset,
    /// What `sent` was.
    pub past: Past,
    /// Up to where the partition replays, while it does.
    pub replay: Option<Offset>,
    /// Since the generation began, a consumer has read an event in it whose key belongs to another partition.
    pub misrouted: bool,
}

/// How long before a start the rows have to have been as far for it to be no replay.
fn half(tombstones: Duration) -> Duration {
    tombstones / 2
}

impl Kept {
    /// What may be said of a partition of `topic` that nothing is known of yet, but that it begins at `safe`.
    pub fn first(topic: &Topic, safe: Offset) -> Self {
        Self {
            topic: topic.id.clone(),
            generation: topic.current().number,
            safe,
            safe_at: None,
            at: UnixMillis(0),
            greatest: safe,
            sent: safe,
            past: Past::default(),
            replay: None,
            misrouted: false,
        }
    }

    /// The same, where the records up to `greatest` were read before, or may be copies of some that were: they are a replay.
    #[must_use]
    pub fn read_again_to(self, greatest: Offset) -> Self {
        let replay = Some(greatest).filter(|greatest| *greatest > self.safe);
        let past = Past(replay.map(|greatest| (UnixMillis(0), greatest)).into_iter().collect());
        let greatest = greatest.max(self.safe);
        Self { greatest, sent: greatest, past, replay, ..self }
    }

    /// What is stored where an operator has a partition go on at `to`, whatever lies before it, in a log that ends at `end`.
    /// `now` is not earlier than the store's clock.
    #[must_use]
    pub fn skipped_to(&self, to: Offset, end: Offset, now: UnixMillis) -> Self {
        let greatest = self.greatest.max(to).min(end);
        let replay = self.replay.filter(|until| to < *until);
        let at = now.max(UnixMillis(self.at.0 + 1));
        Self { safe: to, greatest, sent: greatest, at, past: Past::default(), replay, ..self.clone() }
    }

    /// What is stored next: the rows have come to `safe`, with everything that Kafka had acknowledged by `safe_at` if that is
    /// known, and nothing behind `sent` is in them. `now` is not earlier than the store's clock.
    #[must_use]
    pub fn come_to(
        &self,
        [safe, sent]: [Offset; 2],
        safe_at: Option<UnixMillis>,
        now: UnixMillis,
        tombstones: Duration,
    ) -> Self {
        let at = now.max(UnixMillis(self.at.0 + 1));
        let (greatest, sent) = (self.greatest.max(safe), self.sent.max(sent).max(safe));
        let mut past = self.past.clone();
        past.take([self.at, at], sent, tombstones);
        let replay = self.replay.filter(|until| safe < *until);
        let safe_at = if replay.is_some() { None } else { self.safe_at.max(safe_at) };
        Self { safe, safe_at, at, greatest, sent, past, replay, ..self.clone() }
    }

    /// Whether what is read once more, up to `until`, is by now as old as a replay, as after a long outage: the partition is claimed
    /// again then, so that a loss is opened first. `now` is not earlier than the store's clock.
    pub fn has_grown_old(&self, until: Offset, now: UnixMillis, tombstones: Duration) -> bool {
        let was = || self.was(now.minus(half(tombstones)));
        self.safe < until && self.replay.is_none() && was().is_some_and(|was| self.safe < was)
    }
}

/// What is known of a partition when it was claimed. The claim was raised before the rest was asked.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub claim: &'a Claim,
    pub topic: &'a Topic,
    /// Which partition it is.
    pub index: u32,
    /// What Kafka says of it.
    pub log: &'a Log,
    /// How many partitions the topic has by now.
    pub partitions: u32,
    /// What the group has committed.
    pub committed: Option<Offset>,
}

/// Where a partition is begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The first record that is read.
    pub at: Offset,
    /// Records up to here are read once more, so long after they were written that removed members may come back until it is
    /// passed: a loss is opened before the first write.
    pub replay: Option<Offset>,
    /// What is stored under the claim first.
    pub kept: Kept,
}

/// Why a partition is not begun, or read no further, until an operator has looked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Standstill {
    /// An operator has paused the topic.
    #[error("an operator has paused it: `tally resume` lets it go on")]
    Paused,
    /// The topic was deleted and created again.
    #[error(
        "the topic is {found}, but its rows are of {expected}: it was created again, and `tally topic adopt` goes on with it"
    )]
    TopicReplaced { expected: TopicId, found: TopicId },
    /// The topic has fewer partitions than before, which Kafka does to no topic.
    #[error("the topic has {found} partitions, but had {expected}: `tally topic adopt` goes on with it")]
    FewerPartitions { expected: u32, found: u32 },
    /// The topic has grown, and this partition is a new one.
    #[error("the partition is new: drain the {known} partitions before it, then `tally topic adopt` takes it in")]
    NewPartition { known: u32 },
    /// The group's offset was set forward.
    #[error(
        "the group has committed {committed}, but everything is done up to {safe} alone: reset the group to {safe}, or leave out \
         what lies between with `tally topic skip --to {committed}`"
    )]
    ForwardReset { safe: Offset, committed: Offset },
    /// Retention has deleted records that were never applied.
    #[error(
        "it continues at {at}, but the log starts at {start}: {} records were deleted unread, and `tally topic skip --to {start}` \
         goes on without them",
        .start.0.saturating_sub(.at.0)
    )]
    LogTruncated { at: Offset, start: Offset },
    /// The log has lost records that were applied.
    #[error(
        "everything is done up to {at}, but the log ends at {end}: it has lost its tail, and `tally topic skip --to {end}` goes on \
         with what comes behind that"
    )]
    BeyondLog { at: Offset, end: Offset },
    /// The store refuses one record after the other, or a request for good.
    #[error("the store does not take what is written: {0}")]
    Refused(String),
}

impl Standstill {
    /// Every [name](Self::name).
    pub const NAMES: &'static [&'static str] = &[
        "paused",
        "topic_replaced",
        "fewer_partitions",
        "new_partition",
        "forward_reset",
        "log_truncated",
        "beyond_log",
        "refused",
    ];

    /// Its name, as a metric label.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::TopicReplaced { .. } => "topic_replaced",
            Self::FewerPartitions { .. } => "fewer_partitions",
            Self::NewPartition { .. } => "new_partition",
            Self::ForwardReset { .. } => "forward_reset",
            Self::LogTruncated { .. } => "log_truncated",
            Self::BeyondLog { .. } => "beyond_log",
            Self::Refused(_) => "refused",
        }
    }
}

/// What is wrong with a topic that Kafka says this of, whatever the partition: it is another one, or has lost partitions.
pub fn unfit(topic: &Topic, id: &TopicId, partitions: u32) -> Option<Standstill> {
    let expected = topic.current().partitions();
    if topic.id != *id {
        Some(Standstill::TopicReplaced { expected: topic.id.clone(), found: id.clone() })
    } else if partitions < expected {
        Some(Standstill::FewerPartitions { expected, found: partitions })
    } else {
        None
    }
}

impl Found<'_> {
    /// Where the partition is begun: at what the group has committed, but not behind what is safe. `now` is not earlier than the
    /// store's clock, and tombstones are kept for so long.
    ///
    /// # Errors
    /// Why it is not begun.
    pub fn start(&self, now: UnixMillis, tombstones: Duration) -> Result<Start, Standstill> {
        if self.topic.is_paused {
            return Err(Standstill::Paused);
        }
        let known = self.topic.current().partitions();
        if let Some(unfit) = unfit(self.topic, &self.log.topic, self.partitions) {
            return Err(unfit);
        }
        let first = self.topic.begin_of(self.index).ok_or(Standstill::NewPartition { known })?;
        let before = self.before(first);
        if let Some(reset) = self.forward_reset(&before) {
            return Err(reset);
        }
        let Log { start, end, .. } = *self.log;
        // What is applied already and deleted by now need not be read once more.
        let at = self.committed.map_or(before.safe, |committed| committed.max(start).min(before.safe));
        if at < start {
            return Err(Standstill::LogTruncated { at, start });
        }
        if before.greatest > end {
            return Err(Standstill::BeyondLog { at: before.greatest, end });
        }
        // What the log has lost behind `safe` is not read once more.
        let before = Kept { sent: before.sent.min(end), replay: before.replay.map(|until| until.min(end)), ..before };
        let was = before.was(now.minus(half(tombstones)));
        let is_old = at < before.sent && was.is_some_and(|was| at < was);
        let kept = before.begun_at(at, is_old, now, tombstones);
        Ok(Start { at, replay: kept.replay, kept })
    }

    /// Everything before it is known to be finished in the log that Kafka has; its start where nothing is.
    pub fn finished(&self) -> Offset {
        let kept = self.claim.kept.as_ref().filter(|kept| kept.topic == self.log.topic);
        kept.map_or(self.log.start, |kept| kept.safe)
    }

    /// What was stored last of this topic. Where that is nothing, nothing is safe but the beginning; and if nothing was stored of
    /// any topic but the group has come further, the claim was lost, and all of it is read once more.
    fn before(&self, first: Offset) -> Kept {
        let first = Kept::first(self.topic, first);
        match &self.claim.kept {
            Some(kept) if kept.topic == first.topic => {
                let misrouted = kept.misrouted && kept.generation == first.generation;
                Kept { generation: first.generation, misrouted, ..kept.clone() }
            }
            Some(of_another) => Kept { at: of_another.at, ..first },
            None => match self.committed.map(|committed| committed.min(self.log.end)) {
                Some(greatest) => first.read_again_to(greatest),
                None => first,
            },
        }
    }

    /// Whether the group has committed more than was ever safe.
    fn forward_reset(&self, before: &Kept) -> Option<Standstill> {
        let is_known = self.claim.kept.as_ref().is_some_and(|kept| kept.topic == before.topic);
        let committed = self.committed.filter(|committed| is_known && *committed > before.safe)?;
        Some(Standstill::ForwardReset { safe: before.safe, committed })
    }
}

impl Kept {
    /// What was sent by a moment, where anything is known of it. Records before that were written by then, also those that are read
    /// once more since.
    fn was(&self, moment: UnixMillis) -> Option<Offset> {
        let was_stored = self.at > UnixMillis(0) && self.past != Past::default();
        if was_stored && self.at <= moment { Some(self.sent) } else { self.past.at(moment) }
    }

    fn begun_at(self, at: Offset, is_old: bool, now: UnixMillis, tombstones: Duration) -> Self {
        let mut past = self.past.clone();
        if past.0.back().is_none_or(|(_, sent)| *sent < self.sent) {
            let reached = if self.at > UnixMillis(0) { self.at } else { now };
            past.note(reached, self.sent, tombstones);
        }
        let replay = if is_old { Some(self.sent) } else { self.replay.filter(|until| at < *until) };
        let safe_at = self.safe_at.filter(|_| replay.is_none());
        let moment = now.max(UnixMillis(self.at.0 + 1));
        Self { safe: at, safe_at, at: moment, past, replay, ..self }
    }
}

/// What Kafka said of the end of a partition, and when it was asked: once everything before that end is finished, so is
/// everything that was acknowledged by then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    said: VecDeque<(UnixMillis, Offset)>,
    /// How far apart they are kept: the further, the further behind the partition is.
    apart: Duration,
}

impl Ends {
    /// How many are kept.
    const MOST: usize = 128;

    /// Kafka, asked at `asked`, named `end`. `asked` is not later than the store's clock then.
    pub fn take(&mut self, asked: UnixMillis, end: Offset) {
        let before = self.said.len().checked_sub(2).map(|nth| self.said[nth].0);
        match self.said.back_mut() {
            Some(last) if last.1 == end => last.0 = asked.max(last.0),
            Some(last) if before.is_some_and(|before| last.0.since(before) < self.apart) => *last = (asked, end),
            _ => self.said.push_back((asked, end)),
        }
        if self.said.len() > Self::MOST {
            let mut nth = 0;
            self.said.retain(|_| {
                nth += 1;
                nth % 2 == 1
            });
            let first_two = self.said[1].0.since(self.said[0].0);
            self.apart = (self.apart * 2).max(first_two);
        }
    }

    /// The latest moment by which everything acknowledged is before `safe`, if there is one among those not answered before.
    pub fn reached(&mut self, safe: Offset) -> Option<UnixMillis> {
        let mut reached = None;
        while let Some((asked, _)) = self.said.front().filter(|(_, end)| *end <= safe) {
            reached = reached.max(Some(*asked));
            self.said.pop_front();
        }
        if self.said.len() < 2 {
            self.apart = Duration::ZERO;
        }
        reached
    }
}

#[cfg(test)]
mod tests;
