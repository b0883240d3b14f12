//! Sending dead letters that decode as events now again.
//!
//! A record is put back once, however many letters it has and however many replays are run or killed. Each transaction of a
//! replay holds the records that it puts back and a receipt that names them; a replay reads the receipts before it sends, once
//! it has taken over the name that all replays of the deployment write under (docs/adr/0184).

use std::cell::Cell;
use std::sync::Arc;

use tally_batch_recount::Calls;
use tally_consumer::letter::Letter;
use tally_core::definitions::Definitions;
use tally_core::event::decode;
use tally_core::ports::log::{Header, Outgoing};
use tally_core::ports::{Outcome, TopicReader, Transactions};
use tally_core::topic::{Log, Partition};

use super::letters::{Wanted, put_back_of};
use super::receipts::{Identities, Identity, letter, receipt, receipt_headers};
use crate::said::counted;

/// What a replay did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    /// Sent to the topic again.
    pub(super) sent: u64,
    /// Still not valid events, or cut.
    pub(super) skipped: u64,
    /// Of records that were put back before, by this replay or another: they have several letters.
    pub(super) repeated: u64,
    /// What adds to a sum, which has to be asked for.
    pub(super) sums: u64,
    /// From other topics or deployments whose consumers share the dead-letter topic.
    pub(super) foreign: u64,
}

impl Replayed {
    /// What became of letters, or would, a line each.
    pub(super) fn said(&self, what: &str) -> Vec<String> {
        let Self { sent, skipped, repeated, sums, foreign } = *self;
        let parts = [
            (sent, what),
            (skipped, "still no event"),
            (repeated, "put back before"),
            (sums, "left out, since sums may count twice: --sums sends them"),
            (foreign, "of other topics or deployments"),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        parts.map(|(count, what)| format!("{} {what}", counted(count, "letter"))).collect()
    }
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
pub(super) struct Replay {
    pub(super) reader: Arc<dyn TopicReader>,
    pub(super) transactions: Arc<dyn Transactions>,
    /// How long Kafka is waited for.
    pub(super) calls: Calls,
    pub(super) deployment: String,
    pub(super) topic: String,
    /// What is an event, of those said in the topic.
    pub(super) definitions: Definitions,
    /// Which letters are sent. Where not all are meant, how far it was is not written down: it begins with the first letter there is.
    pub(super) wanted: Wanted,
    /// Send what adds to a sum as well.
    pub(super) sums: bool,
    /// Send nothing, and do not write down how far it was.
    pub(super) dry_run: bool,
}

impl Replay {
    /// Reads at most `limit` dead letters, and none that was written after it began, so that it ends even if every letter
    /// comes back. It continues where the last replay stopped, and sends nothing that another has sent, also where that one was
    /// killed. A replay that is still running is ended by this one. Kafka is waited for.
    ///
    /// # Errors
    /// Letters cannot be read, or cannot be sent.
    pub(super) async fn run(&self, limit: usize) -> anyhow::Result<Replayed> {
        if !self.dry_run {
            // Behind this, receipts say all that was ever sent.
            self.calls.persist("begin to put dead letters back", || self.transactions.take_over()).await?;
        }
        let logs = self.calls.persist("look at the dead letters", || self.reader.logs()).await?;
        let mut known = self.calls.persist("read receipts", || self.put_back(&logs)).await?;
        let mut done = Replayed::default();
        let mut left = limit;
        for (partition, log) in logs {
            let marked = || self.reader.bookmark(&partition);
            let marked = self.calls.persist("read how far the last replay was", marked).await?;
            let marked = marked.filter(|_| self.wanted.is_all());
            let mut at = marked.unwrap_or(log.start).max(log.start);
            let mut passed = None;
            while at < log.end && left > 0 {
                let read = || self.reader.read(&partition, at, log.end);
                let records = self.calls.persist("read dead letters", read).await?;
                let Some(last) = records.iter().take(left).last().map(|record| record.offset) else { break };
                let mut batch = Batch::default();
                let letters = records.iter().take(left).filter_map(letter);
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
                    let mark = || self.reader.mark(&partition, at);
                    self.calls.persist("write down how far the replay is", mark).await?;
                }
            }
        }
        Ok(done)
    }

    /// What was put back so far.
    async fn put_back(&self, logs: &[(Partition, Log)]) -> Outcome<Identities> {
        put_back_of(&*self.reader, logs, &self.deployment, &self.topic).await
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
        let Some(of) = Identity::of(letter, &self.deployment, &self.topic) else {
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
        let has_failed = Cell::new(false);
        let write = || async {
            if has_failed.replace(true) {
                // It is not known whether the write before this one was carried out: then its receipt is there.
                self.transactions.take_over().await?;
                let known = self.put_back(&self.reader.logs().await?).await?;
                if batch.of.iter().all(|of| known.has(*of)) {
                    return Ok(());
                }
            }
            self.transactions.write(&all).await
        };
        self.calls.persist("put dead letters back", write).await
    }
}
