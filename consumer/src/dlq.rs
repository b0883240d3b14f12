//! An operator's commands on dead letters: list them by reason, and send those that decode as events now again.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use tally_core::definitions::Definitions;
use tally_core::event::{KeyScheme, decode};
use tally_core::fence::Offset;
use tally_core::ids::ShardCount;
use tally_core::ports::log::Outgoing;
use tally_core::ports::{Producer, TopicReader};

use crate::letter::Letter;
use crate::print;

/// Prints up to `limit` dead letters, then how many there are by reason.
pub(crate) async fn list(reader: &dyn TopicReader, limit: usize) -> anyhow::Result<()> {
    let mut reasons: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut printed = 0;
    for (partition, log) in reader.logs().await.context("cannot look at the dead letters")? {
        let mut at = log.start;
        while at < log.end {
            let records = reader.read(&partition, at, log.end).await.context("cannot read dead letters")?;
            let Some(last) = records.last_offset() else { break };
            for letter in records.iter().map(Letter::read) {
                *reasons.entry(letter.reason).or_default() += 1;
                if printed < limit {
                    printed += 1;
                    print::line(&described(&letter))?;
                }
            }
            at = last.next();
        }
    }
    let total: u64 = reasons.values().sum();
    reasons.iter().try_for_each(|(reason, count)| print::line(&format!("{reason}\t{count}")))?;
    print::line(&format!("total\t{total}"))
}

/// One line of JSON, since a record may hold any character.
fn described(letter: &Letter<'_>) -> String {
    #[derive(serde::Serialize)]
    struct Line<'a> {
        topic: Option<&'a str>,
        partition: Option<u32>,
        offset: Option<u64>,
        reason: &'a str,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cut_from: Option<u64>,
    }
    let (topic, partition, offset) = letter
        .from
        .map_or((None, None, None), |(topic, partition, offset)| (Some(topic), Some(partition), Some(offset.0)));
    let line =
        Line { topic, partition, offset, reason: letter.reason, message: letter.message, cut_from: letter.cut_from };
    serde_json::to_string(&line).expect("strings and integers always serialise")
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// Sent to the topic again.
    pub(crate) sent: u64,
    /// Still not valid events, or cut.
    pub(crate) skipped: u64,
    /// What adds to a sum, which has to be asked for.
    pub(crate) sums: u64,
    /// From other topics whose consumers share the dead-letter topic.
    pub(crate) foreign: u64,
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
pub(crate) struct Replay {
    pub(crate) reader: Arc<dyn TopicReader>,
    pub(crate) producer: Arc<dyn Producer>,
    pub(crate) topic: String,
    pub(crate) key: KeyScheme,
    pub(crate) shards: ShardCount,
    /// What is an event, of those said in the topic.
    pub(crate) definitions: Definitions,
    /// Send what adds to a sum as well: a letter that is sent twice counts twice.
    pub(crate) sums: bool,
    /// Send nothing, and do not write down how far it was.
    pub(crate) dry_run: bool,
}

impl Replay {
    /// Reads at most `limit` dead letters, and none that was written after it began, so that it ends even if every letter
    /// comes back. It continues where the last replay stopped; one that was killed may send some letters again.
    pub(crate) async fn run(&self, limit: usize) -> anyhow::Result<Replayed> {
        let mut done = Replayed::default();
        let mut left = limit;
        for (partition, log) in self.reader.logs().await.context("cannot look at the dead letters")? {
            let marked = self.reader.bookmark(&partition).await.context("cannot read how far the last replay was")?;
            let mut at = marked.unwrap_or(log.start).max(log.start);
            let mut passed = None;
            while at < log.end && left > 0 {
                let records = self.reader.read(&partition, at, log.end).await.context("cannot read dead letters")?;
                let Some(last) = records.iter().take(left).last().map(|record| record.offset) else { break };
                for record in records.iter().take(left) {
                    if self.put_back(&Letter::read(record), &mut done).await? == Put::LeftOut {
                        passed.get_or_insert(record.offset);
                    }
                }
                left -= records.len().min(left);
                at = last.next();
                if !self.dry_run {
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
        let key = self.key.key_of(&event, self.shards);
        let headers = letter.original_headers();
        let record = Outgoing {
            topic: &self.topic,
            partition: None,
            key: Some(key.as_bytes()),
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
