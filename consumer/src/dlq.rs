//! An operator's commands on dead letters: list them by reason, and send those that decode as events now again.
//!
//! A record is put back once, however many letters it has and however many replays are run or killed. Each transaction of a
//! replay holds the records that it puts back and a receipt that names them; a replay reads the receipts before it sends, once
//! it has taken over the name that all replays of the deployment write under (docs/adr/0184).

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use serde::Serialize;
use tally_core::definitions::Definitions;
use tally_core::event::decode;
use tally_core::ports::log::{Header, Outgoing, Record};
use tally_core::ports::{Outcome, TopicReader, Transactions};
use tally_core::topic::{Log, Offset, Partition};
use tally_service::UnixMillis;

use crate::identity::{Identities, Identity, put_back, receipt, receipt_headers};
use crate::letter::Letter;

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
    /// Whether a replay has put the record back.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_put_back: bool,
    /// What the record holds, where the letters of one record are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Content>,
}

/// What a record holds, for people: bytes that are no UTF-8 are escaped as in Rust. Times are in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Content {
    /// When it was written; 0 where its letter does not say it.
    pub written: u64,
    /// When its letter was.
    pub put_aside: u64,
    pub key: Option<String>,
    pub headers: Vec<(String, Option<String>)>,
    pub value: Option<String>,
}

/// Dead letters that no replay has put back: some of them one by one, and how many there are for each reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Letters {
    pub first: Vec<Described>,
    pub reasons: BTreeMap<&'static str, u64>,
    /// How many there are of records that were put back. They are among the others only where one record is asked for.
    pub put_back: u64,
    /// How many there are of each other deployment that has its dead letters in the same topic.
    pub foreign: BTreeMap<String, u64>,
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

/// Reads the dead letters of `topic` in `deployment` that are meant, and describes the first `limit` of them that no replay has put
/// back. Of one record all are described, with what it holds.
///
/// # Errors
/// They cannot be read.
pub async fn letters(
    reader: &dyn TopicReader,
    (deployment, topic): (&str, &str),
    wanted: &Wanted,
    limit: usize,
) -> anyhow::Result<Letters> {
    let mut found = Letters::default();
    let logs = reader.logs().await.context("cannot look at the dead letters")?;
    let known = put_back_of(reader, &logs, deployment, topic).await?;
    for (partition, log) in logs {
        let note = |record: Record<'_>| {
            let Some(letter) = Letter::read(record).filter(|letter| wanted.has(letter)) else { return };
            if let Some(other) = letter.foreign(deployment) {
                *found.foreign.entry(other.to_owned()).or_default() += 1;
                return;
            }
            let is_put_back = letter.identity(deployment, topic).is_some_and(|of| known.has(of));
            found.put_back += u64::from(is_put_back);
            if !is_put_back {
                *found.reasons.entry(letter.reason).or_default() += 1;
            } else if wanted.from.is_none() {
                return;
            }
            if found.first.len() < limit {
                let record = wanted.from.map(|_| content(&letter));
                found.first.push(Described { is_put_back, record, ..described(&letter) });
            }
        };
        each(reader, &partition, log.start, log.end, note).await.context("cannot read dead letters")?;
    }
    Ok(found)
}

/// Hands each record of `partition` from `from` and before `to` to `take`.
pub(crate) async fn each(
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

/// How many letters are told from receipts and from letters of other deployments; offsets alone count the rest.
const COUNTED: usize = 100_000;

/// How many dead letters of `topic` in `deployment` no replay has put back.
///
/// # Errors
/// The topic cannot be looked at.
pub async fn left(reader: &dyn TopicReader, deployment: &str, topic: &str) -> anyhow::Result<u64> {
    let (mut uncounted, mut letters, mut known) = (0, Vec::new(), Identities::default());
    for (partition, log) in reader.logs().await.context("cannot look at the dead letters")? {
        let mut at = log.start;
        while at < log.end && letters.len() < COUNTED {
            let records = reader.read(&partition, at, log.end).await.context("cannot read dead letters")?;
            for record in records.iter() {
                let letter = Letter::read(record).filter(|letter| letter.foreign(deployment).is_none());
                letters.extend(letter.map(|letter| letter.identity(deployment, topic)));
                // The receipt of a letter lies behind it.
                put_back(record, deployment, topic)?.into_iter().for_each(|of| known.insert(of));
            }
            at = records.last_offset().map_or(log.end, Offset::next);
        }
        uncounted += log.end.0.saturating_sub(at.0);
    }
    Ok(uncounted + letters.iter().filter(|of| of.is_none_or(|of| !known.has(of))).count() as u64)
}

/// What replays have put back so far of `topic` in `deployment`.
async fn put_back_of(
    reader: &dyn TopicReader,
    logs: &[(Partition, Log)],
    deployment: &str,
    topic: &str,
) -> anyhow::Result<Identities> {
    let mut known = Identities::default();
    for (partition, log) in logs {
        let mut read = Ok(());
        let note = |record: Record<'_>| match put_back(record, deployment, topic) {
            Ok(of) => of.into_iter().for_each(|each| known.insert(each)),
            Err(error) => read = Err(error),
        };
        each(reader, partition, log.start, log.end, note).await.context("cannot read receipts")?;
        read?;
    }
    Ok(known)
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
        is_put_back: false,
        record: None,
    }
}

fn content(letter: &Letter<'_>) -> Content {
    let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.escape_ascii().to_string(),
    };
    let headers = letter.original_headers();
    Content {
        written: letter.at,
        put_aside: letter.record.at.0,
        key: letter.record.key.map(text),
        headers: headers.into_iter().map(|(name, value)| (name.to_owned(), value.map(text))).collect(),
        value: letter.record.value.map(text),
    }
}

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Sent to the topic again.
    pub sent: u64,
    /// Still not valid events, or cut.
    pub skipped: u64,
    /// Of records that were put back before, by this replay or another: they have several letters.
    pub repeated: u64,
    /// What adds to a sum, which has to be asked for.
    pub sums: u64,
    /// From other topics or deployments whose consumers share the dead-letter topic.
    pub foreign: u64,
}

/// What is put back by one transaction.
#[derive(Default)]
struct Batch<'a> {
    records: Vec<PutBack<'a>>,
    of: Vec<Identity>,
}

struct PutBack<'a> {
    key: String,
    value: Option<&'a [u8]>,
    headers: Vec<Header<'a>>,
}

/// Sends the dead letters of a topic of one deployment to it again.
pub struct Replay {
    pub reader: Arc<dyn TopicReader>,
    pub transactions: Arc<dyn Transactions>,
    pub deployment: String,
    pub topic: String,
    /// What is an event, of those said in the topic.
    pub definitions: Definitions,
    /// Which letters are sent. Where not all are meant, how far it was is not written down: it begins with the first letter there is.
    pub wanted: Wanted,
    /// Send what adds to a sum as well.
    pub sums: bool,
    /// Send nothing, and do not write down how far it was.
    pub dry_run: bool,
}

impl Replay {
    /// Reads at most `limit` dead letters, and none that was written after it began, so that it ends even if every letter
    /// comes back. It continues where the last replay stopped, and sends nothing that another has sent, also where that one was
    /// killed. A replay that is still running is ended by this one.
    ///
    /// # Errors
    /// Letters cannot be read, or cannot be sent.
    pub async fn run(&self, limit: usize) -> anyhow::Result<Replayed> {
        if !self.dry_run {
            // Behind this, receipts say all that was ever sent.
            self.transactions.take_over().await.context("cannot begin to put dead letters back")?;
        }
        let logs = self.reader.logs().await.context("cannot look at the dead letters")?;
        let mut known = put_back_of(&*self.reader, &logs, &self.deployment, &self.topic).await?;
        let mut done = Replayed::default();
        let mut left = limit;
        for (partition, log) in logs {
            let marked = self.reader.bookmark(&partition).await.context("cannot read how far the last replay was")?;
            let marked = marked.filter(|_| self.wanted.is_all());
            let mut at = marked.unwrap_or(log.start).max(log.start);
            let mut passed = None;
            while at < log.end && left > 0 {
                let records = self.reader.read(&partition, at, log.end).await.context("cannot read dead letters")?;
                let Some(last) = records.iter().take(left).last().map(|record| record.offset) else { break };
                let mut batch = Batch::default();
                let letters = records.iter().take(left).filter_map(Letter::read);
                for letter in letters.filter(|letter| self.wanted.has(letter)) {
                    if self.leaves_out(&letter, &mut known, &mut batch, &mut done) {
                        passed.get_or_insert(letter.record.offset);
                    }
                }
                self.commit(&partition, &batch).await?;
                left -= records.len().min(left);
                at = last.next();
                if !self.dry_run && self.wanted.is_all() {
                    // The next replay begins with what this one has left out.
                    let at = passed.unwrap_or(at);
                    self.reader.mark(&partition, at).await.context("cannot write down how far the replay is")?;
                }
            }
        }
        Ok(done)
    }

    /// Puts the record of `letter` into `batch` if it is to be sent. Whether it is left out: it adds to a sum, and that was not
    /// asked for.
    fn leaves_out<'a>(
        &self,
        letter: &Letter<'a>,
        known: &mut Identities,
        batch: &mut Batch<'a>,
        done: &mut Replayed,
    ) -> bool {
        let Some(of) = letter.identity(&self.deployment, &self.topic) else {
            done.foreign += 1;
            return false;
        };
        if known.has(of) {
            done.repeated += 1;
            return false;
        }
        let event = decode(letter.record, &self.definitions).ok().filter(|_| letter.cut_from.is_none());
        let Some(event) = event else {
            done.skipped += 1;
            return false;
        };
        if event.member().is_none() && !self.sums {
            done.sums += 1;
            return true;
        }
        known.insert(of);
        batch.of.push(of);
        // With a wrong or missing key it would be out of order again.
        let key = event.subject().to_owned();
        batch.records.push(PutBack { key, value: letter.record.value, headers: letter.original_headers() });
        done.sent += 1;
        false
    }

    /// Sends a batch, and its receipt to where its letters are. A replay that is killed here has sent both or neither.
    async fn commit(&self, letters: &Partition, batch: &Batch<'_>) -> anyhow::Result<()> {
        if self.dry_run || batch.of.is_empty() {
            return Ok(());
        }
        let (receipt, headers) = (receipt(&batch.of), receipt_headers(&self.deployment, &self.topic));
        let back = batch.records.iter().map(|PutBack { key, value, headers }| Outgoing {
            topic: &self.topic,
            partition: None,
            key: Some(key.as_bytes()),
            value: *value,
            headers,
        });
        let receipt = Outgoing {
            topic: &letters.topic,
            partition: Some(letters.index),
            key: None,
            value: Some(&receipt),
            headers: &headers,
        };
        let all: Vec<Outgoing<'_>> = back.chain([receipt]).collect();
        self.transactions.write(&all).await.context("cannot put dead letters back")
    }
}

#[cfg(test)]
mod tests;
