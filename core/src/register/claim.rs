//! Claims: who writes the rows of a partition, from which offset it reads, and how far the rows are.
//!
//! A consumer that takes a partition over raises its claim, and stores under it how far the rows are. Every record
//! before `safe` is finished, so `safe` may be committed to Kafka. The group's committed offset may be less: an
//! operator may reset it to read again.

pub(super) mod earlier;
mod past;
mod standstill;

use std::collections::VecDeque;
use std::time::Duration;

pub use earlier::Earlier;
pub use past::{BadPast, Past};
pub use standstill::Standstill;

use super::Topic;
use crate::time::UnixMillis;
use crate::topic::{Log, Offset, TopicId};

/// The claim of a partition. [`Found::start`] decides from it where reading begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// How often the partition was taken over.
    pub n: u64,
    /// What was last stored under this claim or an earlier one.
    pub kept: Option<Kept>,
}

/// How far the rows of a partition are. The consumer stores it under the claim once a second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The topic whose offsets these are.
    pub topic: TopicId,
    /// The topic's generation when this was stored.
    pub generation: u16,
    /// Every record before it is finished.
    pub safe: Offset,
    /// Every record that Kafka had acknowledged by this time is finished. Unknown at the beginning and during a
    /// replay.
    pub safe_at: Option<UnixMillis>,
    /// Values of `safe_at` that were stored before.
    pub earlier: Earlier,
    /// When this was stored, by the store's clock, rounded up. It grows each time.
    pub at: UnixMillis,
    /// The greatest `safe` ever stored.
    pub greatest: Offset,
    /// When this was stored, no record from here on was in the rows. Those before were read, finished or not.
    pub sent: Offset,
    /// The earlier values of `sent`.
    pub past: Past,
    /// During a replay: the offset at which it ends.
    pub replay: Option<Offset>,
    /// In this generation, a consumer has read an event whose key belongs to another partition.
    pub misrouted: bool,
    /// A record that was read last. If another one is at its offset later, the log lost its tail and has grown again.
    pub last: Option<LastRead>,
}

/// A record that was read: its offset, and its [fingerprint](crate::ports::log::Record::fingerprint).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRead {
    pub at: Offset,
    pub fingerprint: u64,
}

/// Returns how old the rows have to be for reading their events again to be a replay.
fn half(tombstones: Duration) -> Duration {
    tombstones / 2
}

impl Kept {
    /// Returns the first `Kept` of a partition of `topic` that begins at `safe`.
    pub fn first(topic: &Topic, safe: Offset) -> Self {
        let (topic, generation) = (topic.id.clone(), topic.current().number);
        Self { topic, generation, safe, greatest: safe, sent: safe, ..Self::default() }
    }

    /// Marks the records up to `greatest` as a replay: they were read before, or may be copies of records that were.
    #[must_use]
    pub fn read_again_to(self, greatest: Offset) -> Self {
        let replay = Some(greatest).filter(|greatest| *greatest > self.safe);
        let past = Past(replay.map(|greatest| (UnixMillis(0), greatest)).into_iter().collect());
        let greatest = greatest.max(self.safe);
        Self { greatest, sent: greatest, past, replay, ..self }
    }

    /// Returns what is stored when an operator skips to `to`, in a log that ends at `end`. `now` is not earlier than
    /// the store's clock.
    #[must_use]
    pub fn skipped_to(&self, to: Offset, end: Offset, now: UnixMillis) -> Self {
        let greatest = self.greatest.max(to).min(end);
        let replay = self.replay.filter(|until| to < *until);
        let at = now.max(UnixMillis(self.at.0 + 1));
        let (earlier, past) = (self.earlier(), Past::default());
        Self { safe: to, earlier, greatest, sent: greatest, at, past, replay, last: None, ..self.clone() }
    }

    /// Returns what is stored next. The rows have everything before `safe`, and everything that Kafka had acknowledged
    /// by `safe_at`, but nothing from `sent` on. `now` is not earlier than the store's clock.
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
        Self { safe, safe_at, earlier: self.earlier(), at, greatest, sent, past, replay, ..self.clone() }
    }

    /// Returns what is [`earlier`](Self::earlier) once something is stored after this.
    fn earlier(&self) -> Earlier {
        let mut earlier = self.earlier.clone();
        if let Some(safe_at) = self.safe_at {
            earlier.note(self.at, safe_at);
        }
        earlier
    }

    /// Returns whether the records that are read again, up to `until`, have become so old that this is a replay, as
    /// after a long outage. The consumer then claims the partition again, so that a loss is opened first. `now` is not
    /// earlier than the store's clock.
    pub fn has_grown_old(&self, until: Offset, now: UnixMillis, tombstones: Duration) -> bool {
        let was = || self.was(now.minus(half(tombstones)));
        self.safe < until && self.replay.is_none() && was().is_some_and(|was| self.safe < was)
    }
}

/// What a consumer knows when it has claimed a partition. It raises the claim before it asks for the rest.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub claim: &'a Claim,
    pub topic: &'a Topic,
    /// The number of the partition.
    pub index: u32,
    /// What Kafka answers about the partition.
    pub log: &'a Log,
    /// How many partitions the topic has in Kafka.
    pub partitions: u32,
    /// What the group has committed.
    pub committed: Option<Offset>,
    /// The fingerprint of the record that is where the one read last was ([`last_read_in`]), if there is one.
    pub there: Option<u64>,
}

/// Where reading of a partition begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The first record that is read.
    pub at: Offset,
    /// Set during a replay: removed members may come back until reading has passed this offset, so a loss is opened
    /// before the first write.
    pub replay: Option<Offset>,
    /// What is first stored under the claim.
    pub kept: Kept,
}

/// Returns what is wrong with the topic, whatever the partition: Kafka has another topic of this name, or fewer
/// partitions than before.
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

/// Returns the record that was read last, if the log has its offset. Where another record is there by now, the log lost
/// its tail.
pub fn last_read_in(claim: &Claim, log: &Log) -> Option<LastRead> {
    let kept = claim.kept.as_ref().filter(|kept| kept.topic == log.topic)?;
    kept.last.filter(|last| log.start <= last.at && last.at < log.end)
}

impl Found<'_> {
    /// Decides where reading begins: at the committed offset, but not behind `safe`. `now` is not earlier than the
    /// store's clock; `tombstones` is how long tombstones are kept.
    ///
    /// # Errors
    /// The reason why the partition is not read.
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
        // Records that are applied and meanwhile deleted need not be read again.
        let at = self.committed.map_or(before.safe, |committed| committed.max(start).min(before.safe));
        if at < start {
            return Err(Standstill::LogTruncated { at, start });
        }
        if before.greatest > end {
            return Err(Standstill::BeyondLog { at: before.greatest, end });
        }
        let last = last_read_in(self.claim, self.log);
        if let Some(LastRead { at, .. }) = last.filter(|last| self.there.is_some_and(|there| there != last.fingerprint))
        {
            return Err(Standstill::LogRegrown { at });
        }
        // Records behind `safe` that the log has lost are not read again.
        let before =
            Kept { last, sent: before.sent.min(end), replay: before.replay.map(|until| until.min(end)), ..before };
        let was = before.was(now.minus(half(tombstones)));
        let is_old = at < before.sent && was.is_some_and(|was| at < was);
        let kept = before.begun_at(at, is_old, now, tombstones);
        Ok(Start { at, replay: kept.replay, kept })
    }

    /// Returns the offset before which all records of Kafka's present topic are known to be finished; the log's start
    /// where none are.
    pub fn finished(&self) -> Offset {
        let kept = self.claim.kept.as_ref().filter(|kept| kept.topic == self.log.topic);
        kept.map_or(self.log.start, |kept| kept.safe)
    }

    /// Returns what was last stored of this topic. If nothing was, only the beginning is safe. If nothing was stored
    /// of any topic, but the group has committed an offset, the claim was lost, and everything up to that offset is a
    /// replay.
    fn before(&self, first: Offset) -> Kept {
        let first = Kept::first(self.topic, first);
        match &self.claim.kept {
            Some(kept) if kept.topic == first.topic => {
                let same = kept.generation == first.generation;
                let earlier = if same { kept.earlier.clone() } else { Earlier::default() };
                Kept { generation: first.generation, misrouted: kept.misrouted && same, earlier, ..kept.clone() }
            }
            Some(of_another) => Kept { at: of_another.at, ..first },
            None => match self.committed.map(|committed| committed.min(self.log.end)) {
                Some(greatest) => first.read_again_to(greatest),
                None => first,
            },
        }
    }

    /// Returns a standstill if the group has committed more than what was stored as `safe` for this topic.
    fn forward_reset(&self, before: &Kept) -> Option<Standstill> {
        let is_known = self.claim.kept.as_ref().is_some_and(|kept| kept.topic == before.topic);
        let committed = self.committed.filter(|committed| is_known && *committed > before.safe)?;
        Some(Standstill::ForwardReset { safe: before.safe, committed, greatest: before.greatest })
    }
}

impl Kept {
    /// Returns the offset `sent` at `moment`, if it is known. Records before it were written by then, even if they
    /// were read again since.
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
        let earlier = if replay.is_none() { self.earlier() } else { Earlier::default() };
        let moment = now.max(UnixMillis(self.at.0 + 1));
        Self { safe: at, safe_at, earlier, at: moment, past, replay, ..self }
    }
}

/// The ends of a partition that Kafka has named, and when it was asked. Once every record before an end is finished,
/// so is everything that Kafka had acknowledged when it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    said: VecDeque<(UnixMillis, Offset)>,
    /// How far apart the questions are kept: the further, the further behind the partition is.
    apart: Duration,
}

impl Ends {
    /// How many are kept.
    const MOST: usize = 128;

    /// Takes in that Kafka, asked at `asked`, named `end`. `asked` is not later than the store's clock at that moment.
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

    /// Returns the latest question whose end is at most `safe`: everything acknowledged by then is finished. Returns
    /// `None` if there is none since the last call.
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
