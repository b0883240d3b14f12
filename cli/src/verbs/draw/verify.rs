//! Whether the record of a threshold is as it was written, and is what the log says.
//!
//! Of a sum the log alone decides: the events that the winning write took in lie in the log, in order. The same log gives the
//! same winner to each who reads it. Of a set the record names a member; the log has to have an event that puts it there.
//!
//! A dead letter proves nothing about its record. It may have been written by a consumer that had lost its partition, or that
//! was killed before the record's counter was defined, while another counted the record. So a record with a letter may have
//! counted or not. Amounts are positive: where a sum comes to what is recorded without all of those, none of them counted, and
//! where it comes to it with all of them, all did. Otherwise the log cannot say which.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::{Recorded, Recounts};
use tally_core::definitions::Definitions;
use tally_core::event::{Deed, decode};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, MemberKey};
use tally_core::milestone::{Events, Milestone, Winner};
use tally_core::ports::log::Record;
use tally_core::ports::{Outcome, TopicReader};
use tally_core::register::{Claim, Topic};
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};
use tally_service::Clock;

use super::judged::{Found, Place, Put, Sum, judged, told};
use crate::health::say;
use crate::verbs::dlq::{Identities, Identity, each, letter};

/// How often what cannot be read is tried.
const TRIES: u32 = 5;

/// The wait before it is tried again.
const BETWEEN: Duration = Duration::from_secs(1);

/// A draw to be verified.
pub(super) struct Draw {
    pub(super) counter: CounterId,
    pub(super) n: i64,
    pub(super) milestones: Recounts,
    pub(super) claims: Claims,
    pub(super) deployment: String,
    /// The topic that the counter's events are said in.
    pub(super) topic_name: String,
    /// Reads it.
    pub(super) topic: Arc<dyn TopicReader>,
    pub(super) letters: Arc<dyn TopicReader>,
    /// What is an event, of those said in the topic.
    pub(super) definitions: Definitions,
}

/// The records of a topic that have a dead letter.
struct Letters {
    of: Identities,
    /// The dead-letter topic has lost its oldest letters: what was written up to here may have had one.
    lost_until: Option<UnixMillis>,
}

impl Letters {
    /// Whether `record` of `partition` has one.
    fn has(&self, partition: &Partition, record: Record<'_>) -> bool {
        self.of.has(Identity { partition: partition.index, offset: record.offset.0, at: record.at.0 })
    }
}

impl Draw {
    /// Verifies it, and tries again where something cannot be read for the moment.
    pub(super) async fn persist(&self, clock: Clock) -> Found {
        let mut left = TRIES;
        loop {
            left -= 1;
            match self.verify().await {
                Ok(found) => return found,
                Err(fault) if fault.is_retryable() && left > 0 => {
                    say(&format!("cannot read the log, trying again: {fault}"));
                    clock.sleep(BETWEEN).await;
                }
                Err(fault) => return Found::Unread(fault),
            }
        }
    }

    /// Verifies it.
    ///
    /// # Errors
    /// The tables or the log cannot be read.
    pub(super) async fn verify(&self) -> Outcome<Found> {
        let Self { counter, n, .. } = self;
        let recorded = match self.milestones.milestone(counter, *n).await {
            Err(Fault::Poison(why)) => return Ok(Found::False(format!("the record cannot be read: {why}"))),
            recorded => recorded?,
        };
        let Some(Recorded { milestone, digest }) = recorded else {
            return Ok(Found::False(format!("{counter} has no record of {n}")));
        };
        if milestone.n != *n || digest != milestone.digest(counter) {
            return Ok(Found::False("the record is not as it was written: its digest is another".to_owned()));
        }
        match &milestone.by {
            Winner::Unwitnessed => {
                Ok(Found::True(told(&milestone, "none: crossed by a correction, or before it was watched for", None)))
            }
            Winner::Member(member) => self.member(&milestone, member).await,
            Winner::Events(events) => self.event(&milestone, events).await,
        }
    }

    /// The latest event that puts `member` there and is not younger than its row.
    async fn member(&self, milestone: &Milestone, member: &MemberKey) -> Outcome<Found> {
        let letters = self.letters().await?;
        let (mut put, topic) = (Put::default(), self.claims.topic(&self.topic_name).await?);
        for (partition, log) in self.topic.logs().await? {
            if let Some(why) = another(&partition, &log, topic.as_ref(), &self.claims.read(&partition).await?) {
                return Ok(Found::Gone(why));
            }
            if log.start > Offset(0) {
                put.cut = Some(partition.clone());
            }
            let take = |record: Record<'_>| {
                if !self.puts(record, member) {
                    return;
                }
                let place = Place { partition: partition.clone(), offset: record.offset, at: record.at };
                if letters.has(&partition, record) {
                    put.with_letter = Some(place);
                } else {
                    put.take(milestone, place);
                }
            };
            each(&*self.topic, &partition, log.start, log.end, take).await?;
        }
        Ok(put.found(milestone, member, letters.lost_until))
    }

    /// Whether `record` says that `member` is in the counter.
    fn puts(&self, record: Record<'_>, member: &MemberKey) -> bool {
        let Ok(event) = decode(record, &self.definitions) else { return false };
        let is_there = matches!(&event.deed, Deed::Member { id, present: true } if **id == *member.as_str());
        is_there && event.counter == self.counter.name && event.subject() == &*self.counter.post
    }

    /// The event with which the amounts of those that one write took in reach what was needed.
    async fn event(&self, milestone: &Milestone, events: &Events) -> Outcome<Found> {
        let partition = Partition { topic: events.topic.clone(), index: events.partition };
        let logs = self.topic.logs().await?;
        let Some((_, log)) = logs.into_iter().find(|(found, _)| *found == partition) else {
            return Ok(Found::Gone(format!("there is no log of {partition}")));
        };
        let topic = self.claims.topic(&self.topic_name).await?;
        if let Some(why) = another(&partition, &log, topic.as_ref(), &self.claims.read(&partition).await?) {
            return Ok(Found::Gone(why));
        }
        let generation = topic.as_ref().map(|topic| topic.generation_of(partition.index, Offset(events.from)).number);
        if generation.is_some_and(|generation| u64::from(generation) != events.generation) {
            return Ok(Found::Gone(format!("the offsets of {partition} have begun anew since")));
        }
        if log.start > Offset(events.from) {
            return Ok(Found::Gone(format!("{partition} begins at {}, and the events at {}", log.start, events.from)));
        }
        let letters = self.letters().await?;
        // Without the events that have a dead letter, and with them.
        let (mut without, mut with) = (Sum::default(), Sum::default());
        let take = |record: Record<'_>| {
            let adds = topic.as_ref().is_none_or(|topic| topic.adds(partition.index, record.offset));
            let Some(n) = self.amount(record).filter(|_| adds) else { return };
            let place = || Place { partition: partition.clone(), offset: record.offset, at: record.at };
            with.add(n, events.nth, place);
            if !letters.has(&partition, record) {
                without.add(n, events.nth, place);
            }
        };
        each(&*self.topic, &partition, Offset(events.from), Offset(events.to), take).await?;
        Ok(judged(milestone, events, &without, &with, letters.lost_until.is_some()))
    }

    /// What `record` adds to the counter, if it is an event of it.
    fn amount(&self, record: Record<'_>) -> Option<i64> {
        let event = decode(record, &self.definitions).ok()?;
        let Deed::Amount(n) = event.deed else { return None };
        (event.counter == self.counter.name && event.subject() == &*self.counter.post).then_some(n)
    }

    /// Which records of the counter's topic have a dead letter.
    async fn letters(&self) -> Outcome<Letters> {
        let mut found = Letters { of: Identities::default(), lost_until: None };
        for (letters, log) in self.letters.logs().await? {
            let mut lost_until = (log.start > Offset(0)).then_some(UnixMillis(u64::MAX));
            let note = |record: Record<'_>| {
                lost_until = lost_until.map(|until| until.min(record.at));
                let of = letter(record).and_then(|letter| Identity::of(&letter, &self.deployment, &self.topic_name));
                if let Some(of) = of {
                    found.of.insert(of);
                }
            };
            each(&*self.letters, &letters, log.start, log.end, note).await?;
            found.lost_until = found.lost_until.max(lost_until);
        }
        Ok(found)
    }
}

/// Why `log` is not the one that was counted from: it is another topic's, or ends before what was applied.
fn another(partition: &Partition, log: &Log, topic: Option<&Topic>, claim: &Claim) -> Option<String> {
    if let Some(topic) = topic.filter(|topic| topic.id != log.topic) {
        return Some(format!("{partition} is another topic by now: {}, and was {}", log.topic, topic.id));
    }
    let kept = claim.kept.as_ref().filter(|kept| kept.topic == log.topic)?;
    let (furthest, end) = (kept.greatest, log.end);
    (furthest > end).then(|| format!("{partition} ends at {end}, and was applied up to {furthest}"))
}

#[cfg(test)]
mod tests;
