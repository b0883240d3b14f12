//! `tally draw verify`: checks a *draw*, the record of who brought a counter to a threshold: whether it is as it was
//! written, and whether the topic of events (the log) says the same.
//!
//! For a sum (a counter of amounts, such as views) the record names a range of offsets. `Draw::event` adds their
//! amounts up again, and the event that reaches the threshold is the winner: every reader of the log finds the same
//! one. For a set (a counter of members, such as likes) the record names a member, and `Draw::member` looks for an
//! event that adds this member.
//!
//! A dead letter does not prove that its event never counted. The consumer that wrote it may have lost its partition,
//! or may have been killed before the event's counter was defined, while another consumer counted the event. Amounts
//! are positive. So if the sum without all events that have a letter is the recorded one, none of them counted; if the
//! sum with all of them is, all counted. Otherwise the log cannot say which did.

mod judged;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::{Recorded, Recounts};
use tally_consumer::letters_of;
use tally_core::definitions::Definitions;
use tally_core::event::{Deed, decode};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, CounterKind, MemberKey, PostId};
use tally_core::milestone::{Events, Milestone, Winner};
use tally_core::ports::log::Record;
use tally_core::ports::{Outcome, TopicReader};
use tally_core::register::Topic;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, Partition};
use tally_service::{Clock, Invalid};

use self::judged::{Found, Place, Put, Sum, judged, told};
use crate::desk::{Desk, Where};
use crate::health::{FOUND_SOMETHING, UNAVAILABLE, say};
use crate::said::{Answer, Table, plain};
use crate::verbs::dlq::{Identities, Identity, each, letter};

/// How often a verification is tried if something cannot be read.
const TRIES: u32 = 5;

/// The wait before the next try.
const BETWEEN: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Says whether the record of who was first at a threshold is as it was written, and is what the log says: `true`,
    /// `false`, `gone` or `unread`. Exits with 1 if it is not, and with 69 where the log cannot be read or cannot say
    /// it: it is cut, or an event has a dead letter and may have counted all the same
    Verify {
        /// The post, or another subject
        #[arg(value_name = "POST")]
        post: PostId,
        /// The counter's name
        #[arg(value_name = "COUNTER")]
        counter: String,
        /// The threshold
        #[arg(value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
        n: i64,

        #[command(flatten)]
        of: Box<Where>,
    },
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        let Self::Verify { post, counter, n, of } = self;
        let desk = Desk::open(*of).await?;
        let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
        let invalid = |why: &str| Invalid::variable("COUNTER", format!("{counter:?} {why}"));
        let definition = defined.named(&counter).ok_or_else(|| invalid("is no counter of the deployment"))?;
        if !definition.has_milestones() {
            return Err(invalid("has an action that takes off: who was first at a threshold has no meaning").into());
        }
        let topic = definition.topic.as_deref().unwrap_or(&desk.topic);
        let draw = Draw {
            counter: CounterId { post, name: definition.name.clone() },
            n,
            milestones: desk.recounts.clone(),
            claims: desk.claims.clone(),
            deployment: desk.deployment()?.to_owned(),
            topic_name: topic.to_owned(),
            topic: Arc::new(desk.reader(topic)?),
            letters: Arc::new(desk.reader(&letters_beside(topic, &desk.topic, &desk.dead_letter_topic))?),
            definitions: defined.said_in(topic),
        };
        let (verdict, detail, code) = match draw.persist(desk.clock).await {
            Found::True(told) => ("true", told, 0),
            Found::False(why) => ("false", why, FOUND_SOMETHING),
            Found::Gone(why) => ("gone", why, UNAVAILABLE),
            Found::Unread(fault) => ("unread", fault.to_string(), UNAVAILABLE),
        };
        let text = said(verdict, &detail, definition.name.kind());
        Ok(Answer::new(json!({"verdict": verdict, "detail": detail}), text).exiting_with(code))
    }
}

/// Says what was found. The `detail` of `true` is the winner and the winner's event as JSON; otherwise it is the reason.
/// The topic of events proves the winner of a sum. Of a set it proves only that the member was there: changes of
/// different rows are counted in the order of the topic `changes`.
fn said(verdict: &str, detail: &str, kind: CounterKind) -> String {
    let Ok(told) = serde_json::from_str::<serde_json::Map<_, _>>(detail) else {
        return format!("{verdict}: {}", plain(detail));
    };
    let mut table = Table::default();
    told.iter().for_each(|(name, value)| table.row([name, value]));
    let proved = match kind {
        CounterKind::Sum => "the record is what the log says",
        CounterKind::Set => "the record is unchanged, and the log has the member's event; it does not prove the order",
    };
    format!("{verdict}: {proved}\n{table}")
}

/// Returns the topic of dead letters for `topic`: the deployment's one (`letters`), unless that has the name which
/// follows from its topic of likes (`own`). Then the name for `topic` follows from `topic`.
fn letters_beside(topic: &str, own: &str, letters: &str) -> String {
    if topic == own || letters != letters_of(own) { letters.to_owned() } else { letters_of(topic) }
}

/// A draw to be verified.
struct Draw {
    counter: CounterId,
    n: i64,
    milestones: Recounts,
    claims: Claims,
    deployment: String,
    /// The topic of the counter's events.
    topic_name: String,
    /// Reads that topic.
    topic: Arc<dyn TopicReader>,
    letters: Arc<dyn TopicReader>,
    /// The counters whose events are in the topic, to decode them.
    definitions: Definitions,
}

/// Which records of the counter's topic have a dead letter.
struct Letters {
    of: Identities,
    /// If the dead-letter topic has lost its oldest letters: records written up to this time may have had one.
    lost_until: Option<UnixMillis>,
}

impl Letters {
    /// Returns whether `record` of `partition` has a dead letter.
    fn has(&self, partition: &Partition, record: Record<'_>) -> bool {
        self.of.has(Identity { partition: partition.index, offset: record.offset.0, at: record.at.0 })
    }
}

impl Draw {
    /// Verifies the draw, and tries again a few times if something cannot be read for the moment.
    async fn persist(&self, clock: Clock) -> Found {
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

    /// Verifies the draw once.
    ///
    /// # Errors
    /// The tables or the log cannot be read.
    async fn verify(&self) -> Outcome<Found> {
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

    /// Looks in all partitions for events that add `member`. The latest that is not younger than the record decides.
    async fn member(&self, milestone: &Milestone, member: &MemberKey) -> Outcome<Found> {
        let letters = self.letters().await?;
        let (mut put, topic) = (Put::default(), self.claims.topic(&self.topic_name).await?);
        for (partition, _) in self.topic.logs().await? {
            let log = match self.log(&partition, topic.as_ref()).await? {
                Ok(log) => log,
                Err(why) => return Ok(Found::Gone(why)),
            };
            if log.start > Offset(0) {
                put.cut = Some(partition.clone());
            }
            let take = |record: Record<'_>| {
                let deed = self.deed(record);
                if !matches!(deed, Some(Deed::Member { id, present: true }) if *id == *member.as_str()) {
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

    /// Returns the log of a partition, or why it is not the one that was counted: it is another topic's, or ends before
    /// the last event applied. The claim is read before the log, which may grow meanwhile and never ends before that event.
    async fn log(&self, partition: &Partition, topic: Option<&Topic>) -> Outcome<Result<Log, String>> {
        let claim = self.claims.read(partition).await?;
        let log = self.topic.log(partition).await?;
        if let Some(topic) = topic.filter(|topic| topic.id != log.topic) {
            return Ok(Err(format!("{partition} is another topic by now: {}, and was {}", log.topic, topic.id)));
        }
        match claim.kept.filter(|kept| kept.topic == log.topic && kept.greatest > log.end) {
            Some(kept) => Ok(Err(format!("{partition} ends at {}, and was applied up to {}", log.end, kept.greatest))),
            None => Ok(Ok(log)),
        }
    }

    /// Returns what `record` does to the counter, if it is an event of the counter.
    fn deed<'a>(&self, record: Record<'a>) -> Option<Deed<'a>> {
        let event = decode(record, &self.definitions).ok()?;
        (event.counter == self.counter.name && event.subject() == &*self.counter.post).then_some(event.deed)
    }

    /// Adds up the events that the winning write took in, and finds the one that reaches the threshold.
    async fn event(&self, milestone: &Milestone, events: &Events) -> Outcome<Found> {
        let partition = Partition { topic: events.topic.clone(), index: events.partition };
        if !self.topic.logs().await?.iter().any(|(found, _)| *found == partition) {
            return Ok(Found::Gone(format!("there is no log of {partition}")));
        }
        let topic = self.claims.topic(&self.topic_name).await?;
        let log = match self.log(&partition, topic.as_ref()).await? {
            Ok(log) => log,
            Err(why) => return Ok(Found::Gone(why)),
        };
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
            let Some(Deed::Amount(n)) = self.deed(record).filter(|_| adds) else { return };
            let place = || Place { partition: partition.clone(), offset: record.offset, at: record.at };
            with.add(n, events.nth, place);
            if !letters.has(&partition, record) {
                without.add(n, events.nth, place);
            }
        };
        each(&*self.topic, &partition, Offset(events.from), Offset(events.to), take).await?;
        Ok(judged(milestone, events, &without, &with, letters.lost_until.is_some()))
    }

    /// Reads which records of the counter's topic have a dead letter.
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

#[cfg(test)]
mod tests;
