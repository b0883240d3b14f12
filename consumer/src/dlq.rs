//! An operator's commands on dead letters: list them by reason, and send those that decode as events now again.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use serde::Serialize;
use tally_core::definitions::Definitions;
use tally_core::event::decode;
use tally_core::fence::Offset;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Producer, TopicReader};
use tally_service::UnixMillis;

use crate::letter::Letter;
use crate::print;

/// Which dead letters are meant; without either all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Those put aside for this reason.
    pub reason: Option<String>,
    /// Those put aside at this time or later.
    pub since: Option<UnixMillis>,
    /// Those of the record that had this place: a partition and an offset.
    pub from: Option<(u32, u64)>,
}

/// A dead letter, for people: where the record came from, and why it was not applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Described {
    pub topic: Option<String>,
    pub partition: Option<u32>,
    pub offset: Option<u64>,
    pub reason: &'static str,
    pub message: String,
    /// How many bytes the record had, where the letter has only some of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_from: Option<u64>,
}

/// Dead letters: some of them one by one, and how many there are for each reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Letters {
    pub first: Vec<Described>,
    pub reasons: BTreeMap<&'static str, u64>,
}

impl Wanted {
    /// Whether all are meant.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    fn has(&self, letter: &Letter<'_>) -> bool {
        let reason = self.reason.as_ref().is_none_or(|reason| reason == letter.reason);
        let place = letter.from.map(|(_, partition, offset)| (partition, offset.0));
        reason
            && self.since.is_none_or(|since| letter.record.at >= since)
            && (self.from.is_none() || place == self.from)
    }
}

/// Reads the dead letters that are meant, and describes the first `limit` of them.
///
/// # Errors
/// They cannot be read.
pub async fn letters(reader: &dyn TopicReader, wanted: &Wanted, limit: usize) -> anyhow::Result<Letters> {
    let mut found = Letters::default();
    for (partition, log) in reader.logs().await.context("cannot look at the dead letters")? {
        let mut at = log.start;
        while at < log.end {
            let records = reader.read(&partition, at, log.end).await.context("cannot read dead letters")?;
            let Some(last) = records.last_offset() else { break };
            for letter in records.iter().map(Letter::read).filter(|letter| wanted.has(letter)) {
                *found.reasons.entry(letter.reason).or_default() += 1;
                if found.first.len() < limit {
                    found.first.push(described(&letter));
                }
            }
            at = last.next();
        }
    }
    Ok(found)
}

/// How many dead letters no replay has read yet.
///
/// # Errors
/// The topic cannot be looked at.
pub async fn unread(reader: &dyn TopicReader) -> anyhow::Result<u64> {
    let mut unread = 0;
    for (partition, log) in reader.logs().await.context("cannot look at the dead letters")? {
        let marked = reader.bookmark(&partition).await.context("cannot read how far the last replay was")?;
        unread += log.end.0.saturating_sub(marked.unwrap_or(log.start).max(log.start).0);
    }
    Ok(unread)
}

/// Prints up to `limit` dead letters, then how many there are by reason.
pub(crate) async fn list(reader: &dyn TopicReader, limit: usize) -> anyhow::Result<()> {
    let Letters { first, reasons } = letters(reader, &Wanted::default(), limit).await?;
    for letter in &first {
        // One line of JSON, since a record may hold any character.
        print::line(&serde_json::to_string(letter).expect("strings and integers always serialise"))?;
    }
    let total: u64 = reasons.values().sum();
    reasons.iter().try_for_each(|(reason, count)| print::line(&format!("{reason}\t{count}")))?;
    print::line(&format!("total\t{total}"))
}

fn described(letter: &Letter<'_>) -> Described {
    let from = letter.from.map(|(topic, partition, offset)| (topic.to_owned(), partition, offset.0));
    Described {
        topic: from.as_ref().map(|(topic, ..)| topic.clone()),
        partition: from.as_ref().map(|(_, partition, _)| *partition),
        offset: from.map(|(.., offset)| offset),
        reason: letter.reason,
        message: letter.message.to_owned(),
        cut_from: letter.cut_from,
    }
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Sent to the topic again.
    pub sent: u64,
    /// Still not valid events, or cut.
    pub skipped: u64,
    /// What adds to a sum, which has to be asked for.
    pub sums: u64,
    /// From other topics whose consumers share the dead-letter topic.
    pub foreign: u64,
}

/// What became of a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Put {
    /// It is sent, or will never be.
    Done,
    /// It adds to a sum, and that was not asked for.
    LeftOut,
}

/// Sends the dead letters of a topic to it again.
pub struct Replay {
    pub reader: Arc<dyn TopicReader>,
    pub producer: Arc<dyn Producer>,
    pub topic: String,
    /// What is an event, of those said in the topic.
    pub definitions: Definitions,
    /// Which letters are sent. Where not all are meant, how far it was is not written down, and the next replay meets them again.
    pub wanted: Wanted,
    /// Send what adds to a sum as well: a letter that is sent twice counts twice.
    pub sums: bool,
    /// Send nothing, and do not write down how far it was.
    pub dry_run: bool,
}

impl Replay {
    /// Reads at most `limit` dead letters, and none that was written after it began, so that it ends even if every letter
    /// comes back. It continues where the last replay stopped; one that was killed may send some letters again.
    ///
    /// # Errors
    /// Letters cannot be read, or cannot be sent.
    pub async fn run(&self, limit: usize) -> anyhow::Result<Replayed> {
        let mut done = Replayed::default();
        let mut left = limit;
        for (partition, log) in self.reader.logs().await.context("cannot look at the dead letters")? {
            let marked = self.reader.bookmark(&partition).await.context("cannot read how far the last replay was")?;
            let mut at = marked.unwrap_or(log.start).max(log.start);
            let mut passed = None;
            while at < log.end && left > 0 {
                let records = self.reader.read(&partition, at, log.end).await.context("cannot read dead letters")?;
                let Some(last) = records.iter().take(left).last().map(|record| record.offset) else { break };
                for letter in records.iter().take(left).map(Letter::read).filter(|letter| self.wanted.has(letter)) {
                    if self.put_back(&letter, &mut done).await? == Put::LeftOut {
                        passed.get_or_insert(letter.record.offset);
                    }
                }
                left -= records.len().min(left);
                at = last.next();
                if !self.dry_run && self.wanted.is_all() {
                    // The next replay begins with what this one has left out.
                    self.mark(&partition, passed.unwrap_or(at)).await?;
                }
            }
        }
        Ok(done)
    }

    async fn mark(&self, partition: &tally_core::fence::Partition, at: Offset) -> anyhow::Result<()> {
        self.reader.mark(partition, at).await.context("cannot write down how far the replay is")
    }

    async fn put_back(&self, letter: &Letter<'_>, done: &mut Replayed) -> anyhow::Result<Put> {
        if letter.from.is_none_or(|(topic, ..)| topic != self.topic) {
            done.foreign += 1;
            return Ok(Put::Done);
        }
        let event = decode(letter.record, &self.definitions).ok().filter(|_| letter.cut_from.is_none());
        let Some(event) = event else {
            done.skipped += 1;
            return Ok(Put::Done);
        };
        if event.member().is_none() && !self.sums {
            done.sums += 1;
            return Ok(Put::LeftOut);
        }
        if self.dry_run {
            done.sent += 1;
            return Ok(Put::Done);
        }
        // With a wrong or missing key it would be out of order again.
        let key = event.subject().as_bytes();
        let headers = letter.original_headers();
        let record = Outgoing {
            topic: &self.topic,
            partition: None,
            key: Some(key),
            value: letter.record.value,
            headers: &headers,
        };
        self.producer.send(record).await.context("cannot put a dead letter back")?;
        done.sent += 1;
        Ok(Put::Done)
    }
}

#[cfg(test)]
mod tests;
