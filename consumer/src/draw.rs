//! An operator's command on a draw: whether the record of a threshold is as it was written, and is what the log says.
//!
//! Of a sum the log alone decides: the events that the winning write took in lie in the log, in order, and those of them
//! that have a dead letter count nothing. The same log gives the same winner to each who reads it. Of a set the record names
//! a member; the log has to have an event that puts it there.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use tally_core::definitions::Definitions;
use tally_core::event::{Deed, decode};
use tally_core::fault::Fault;
use tally_core::fence::{Fence, Log, Offset, Partition};
use tally_core::ids::{CounterId, MemberKey, PostId};
use tally_core::milestone::{Events, Milestone, Winner};
use tally_core::ports::log::Record;
use tally_core::ports::{FencedRows, Milestones, Outcome, Recorded, TopicReader};
use tally_core::time::UnixMillis;

use crate::letter::Letter;

/// Records say when they were written to the second.
const SECOND: u64 = 1_000;

/// Whether a draw is what the log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is; what to tell.
    True(String),
    /// It is not, and why.
    False(String),
    /// The log cannot say it any more, and why.
    Gone(String),
}

/// What could not be read.
#[derive(Debug)]
enum Unread {
    Tables(anyhow::Error),
    Log(Fault),
}

impl From<Fault> for Unread {
    fn from(fault: Fault) -> Self {
        Self::Log(fault)
    }
}

impl From<anyhow::Error> for Unread {
    fn from(error: anyhow::Error) -> Self {
        Self::Tables(error)
    }
}

/// Which threshold of which counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// The post, or another subject.
    pub post: PostId,
    /// The counter's name.
    pub counter: String,
    /// The threshold.
    pub n: i64,
}

/// A draw to be verified.
pub(crate) struct Draw {
    pub(crate) counter: CounterId,
    pub(crate) n: i64,
    pub(crate) milestones: Arc<dyn Milestones>,
    pub(crate) rows: Arc<dyn FencedRows>,
    /// Reads the topic that the counter's events are said in.
    pub(crate) topic: Arc<dyn TopicReader>,
    pub(crate) letters: Arc<dyn TopicReader>,
    /// What is an event, of those said in the topic.
    pub(crate) definitions: Definitions,
}

/// Where an event lies, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    partition: Partition,
    offset: Offset,
    at: UnixMillis,
}

impl Draw {
    /// Verifies it.
    ///
    /// # Errors
    /// Tables that cannot be read.
    pub(crate) async fn verify(&self) -> anyhow::Result<Found> {
        let Self { counter, n, .. } = self;
        let recorded = match self.milestones.milestone(counter, *n).await {
            Ok(recorded) => recorded,
            Err(Fault::Poison(why)) => return Ok(Found::False(format!("the record cannot be read: {why}"))),
            Err(fault) => return Err(fault).context("cannot read the record"),
        };
        let Some(Recorded { milestone, digest }) = recorded else {
            return Ok(Found::False(format!("{counter} has no record of {n}")));
        };
        if milestone.n != *n || digest != milestone.digest(counter) {
            return Ok(Found::False("the record is not as it was written: its digest is another".to_owned()));
        }
        let found = match &milestone.by {
            Winner::Unwitnessed => Ok(Found::True(told(&milestone, "none: a correction crossed it", None))),
            Winner::Member(member) => self.member(&milestone, member).await,
            Winner::Events(events) => self.event(&milestone, events).await,
        };
        match found {
            // A log that cannot be read says no more than one that is not there.
            Err(Unread::Log(fault)) => Ok(Found::Gone(format!("the log cannot be read: {fault}"))),
            Err(Unread::Tables(error)) => Err(error),
            Ok(found) => Ok(found),
        }
    }

    /// The latest event that puts `member` there and is not younger than its row.
    async fn member(&self, milestone: &Milestone, member: &MemberKey) -> Result<Found, Unread> {
        let until = milestone.at.0.saturating_add(SECOND);
        let (mut found, mut cut): (Option<Place>, Option<Partition>) = (None, None);
        let logs = self.topic.logs().await?;
        for (partition, log) in logs {
            if let Some(why) = self.another(&partition, &log).await? {
                return Ok(Found::Gone(why));
            }
            if log.start > Offset(0) {
                cut = Some(partition.clone());
            }
            let letters = self.letters_of(&partition, log.start, log.end).await?;
            let put = |record: Record<'_>| {
                if record.at.0 >= until || letters.contains(&record.offset) {
                    return;
                }
                let event = decode(record, &self.definitions).ok();
                let puts = event.is_some_and(|event| {
                    let is_there =
                        matches!(&event.deed, Deed::Member { id, present: true } if **id == *member.as_str());
                    is_there && event.counter == self.counter.name && event.subject() == &*self.counter.post
                });
                if puts && found.as_ref().is_none_or(|found| found.at <= record.at) {
                    found = Some(Place { partition: partition.clone(), offset: record.offset, at: record.at });
                }
            };
            each(&*self.topic, &partition, log.start, log.end, put).await?;
        }
        let who = format!("member {member}");
        Ok(match (found, cut) {
            (Some(place), _) => Found::True(told(milestone, &who, Some(&place))),
            (None, Some(partition)) => {
                Found::Gone(format!("{partition} begins after offset 0, and no event of {member} is left"))
            }
            (None, None) => Found::False(format!("no event in the log puts {member} there")),
        })
    }

    /// The event with which the amounts of those that one write took in reach what was needed.
    async fn event(&self, milestone: &Milestone, events: &Events) -> Result<Found, Unread> {
        let partition = Partition { topic: events.topic.clone(), index: events.partition };
        let logs = self.topic.logs().await?;
        let Some((_, log)) = logs.into_iter().find(|(found, _)| *found == partition) else {
            return Ok(Found::Gone(format!("there is no log of {partition}")));
        };
        if let Some(why) = self.another(&partition, &log).await? {
            return Ok(Found::Gone(why));
        }
        let fence = self.fence(&partition).await?;
        if fence.as_ref().is_some_and(|fence| fence.terms.generation != events.generation) {
            return Ok(Found::Gone(format!("the offsets of {partition} have begun anew since")));
        }
        let passed_over = fence.map_or(Offset(0), |fence| fence.terms.sums_from);
        let from = Offset(events.from).max(log.start).max(passed_over);
        let letters = self.letters_of(&partition, from, Offset(events.to)).await?;
        let (mut total, mut winner) = (0i64, None);
        let take = |record: Record<'_>| {
            if letters.contains(&record.offset) {
                return;
            }
            let Ok(event) = decode(record, &self.definitions) else { return };
            let Deed::Amount(n) = event.deed else { return };
            if event.counter != self.counter.name || event.subject() != &*self.counter.post {
                return;
            }
            total = total.saturating_add(n);
            if winner.is_none() && total >= events.nth {
                winner = Some(Place { partition: partition.clone(), offset: record.offset, at: record.at });
            }
        };
        each(&*self.topic, &partition, from, Offset(events.to), take).await?;
        Ok(match winner {
            Some(place) if total == events.gained => Found::True(told(milestone, "event", Some(&place))),
            _ if log.start > Offset(events.from) => Found::Gone(format!(
                "{partition} begins at {} by now, and the events begin at {}",
                log.start, events.from
            )),
            _ => Found::False(format!("the events come to {total} in the log, and to {} in the record", events.gained)),
        })
    }

    /// Why `log` is not the one that was counted from: it ends before what was.
    async fn another(&self, partition: &Partition, log: &Log) -> anyhow::Result<Option<String>> {
        let fence = self.fence(partition).await?;
        Ok(fence.and_then(|fence| {
            if fence.topic != log.topic {
                return Some(format!("{partition} is another topic by now: {}, and was {}", log.topic, fence.topic));
            }
            let beyond = fence.offset > log.end;
            beyond.then(|| format!("{partition} ends at {}, and was applied up to {}", log.end, fence.offset))
        }))
    }

    async fn fence(&self, partition: &Partition) -> anyhow::Result<Option<Fence>> {
        self.rows.fence(partition).await.context("cannot read a fence")
    }

    /// The offsets of `partition` from `from` and before `to` that have a dead letter.
    async fn letters_of(&self, partition: &Partition, from: Offset, to: Offset) -> Outcome<BTreeSet<Offset>> {
        let mut found = BTreeSet::new();
        for (letters, log) in self.letters.logs().await? {
            let note = |record: Record<'_>| {
                if let Some((topic, index, offset)) = Letter::read(record).from
                    && (topic, index) == (&*partition.topic, partition.index)
                    && (from..to).contains(&offset)
                {
                    found.insert(offset);
                }
            };
            each(&*self.letters, &letters, log.start, log.end, note).await?;
        }
        Ok(found)
    }
}

/// Hands each record of `partition` from `from` and before `to` to `take`.
async fn each(
    reader: &dyn TopicReader,
    partition: &Partition,
    from: Offset,
    to: Offset,
    mut take: impl FnMut(Record<'_>),
) -> Outcome<()> {
    let mut at = from;
    while at < to {
        let records = reader.read(partition, at, to).await?;
        let Some(last) = records.last_offset() else { break };
        records.iter().filter(|record| record.offset < to).for_each(&mut take);
        at = last.next();
    }
    Ok(())
}

/// A draw in one line of JSON, since an id may hold any character.
fn told(milestone: &Milestone, who: &str, place: Option<&Place>) -> String {
    #[derive(serde::Serialize)]
    struct Line<'a> {
        n: i64,
        winner: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        topic: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        partition: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
        at: u64,
        version: u64,
    }
    let line = Line {
        n: milestone.n,
        winner: who,
        topic: place.map(|place| &*place.partition.topic),
        partition: place.map(|place| place.partition.index),
        offset: place.map(|place| place.offset.0),
        at: place.map_or(milestone.at, |place| place.at).0,
        version: milestone.version,
    };
    serde_json::to_string(&line).expect("strings and integers always serialise")
}

#[cfg(test)]
mod tests;
