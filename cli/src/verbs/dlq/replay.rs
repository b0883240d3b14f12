//! Sends dead letters that now decode as events to their topic again, for `tally dlq replay`.
//!
//! A record is put back once, however many letters it has and however many replays are run or killed. Each transaction
//! has the records that it puts back and a receipt that names them. All replays of a deployment have one transactional
//! id. A replay takes it over, which ends the one before, and then reads all receipts (docs/adr/0184).

use std::cell::Cell;
use std::sync::Arc;

use tally_batch_recount::Calls;
use tally_consumer::letter::{Letter, PUT_BACK_FOR};
use tally_core::definitions::Definitions;
use tally_core::event::decode;
use tally_core::ports::log::{Header, Outgoing};
use tally_core::ports::{Outcome, TopicReader, Transactions};
use tally_core::topic::{Log, Partition};

use super::letters::{Wanted, put_back_of};
use super::receipts::{Identities, Identity, letter, receipt, receipt_headers};
use crate::said::counted;

/// How many letters a replay has read, by what it did with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Replayed {
    /// Their records were sent to the topic again.
    pub(super) sent: u64,
    /// They are still not valid events, or are cut.
    pub(super) skipped: u64,
    /// Their records were put back before, by this replay or another.
    pub(super) repeated: u64,
    /// They add to sums, and `--sums` was not given.
    pub(super) sums: u64,
    /// They come from other topics, or from other deployments that share the dead-letter topic.
    pub(super) foreign: u64,
    /// Letters that an earlier replay of all has read were passed over.
    pub(super) goes_on: bool,
    /// As many were read, or sent, as were asked for.
    pub(super) is_full: bool,
}

impl Replayed {
    /// Returns the counts that are not 0, a line each. `what` says what becomes, or would become, of those in `sent`.
    pub(super) fn said(&self, what: &str) -> Vec<String> {
        let Self { sent, skipped, repeated, sums, foreign, .. } = *self;
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

/// A record that is put back.
struct PutBack<'a> {
    of: Identity,
    key: String,
    value: Option<&'a [u8]>,
    headers: Vec<Header<'a>>,
}

/// A replay of the dead letters of one topic in one deployment.
pub(super) struct Replay {
    pub(super) reader: Arc<dyn TopicReader>,
    pub(super) transactions: Arc<dyn Transactions>,
    /// Repeats calls to Kafka that fail, for a limited time.
    pub(super) calls: Calls,
    pub(super) deployment: String,
    pub(super) topic: String,
    /// The counters whose events are in the topic, to decode them.
    pub(super) definitions: Definitions,
    /// Which letters are sent. Unless all are meant, the replay begins with the first one and stores no bookmark.
    pub(super) wanted: Wanted,
    /// Whether records that add to sums are sent, too.
    pub(super) sums: bool,
    /// Whether to send nothing and store no bookmark.
    pub(super) dry_run: bool,
}

impl Replay {
    /// Reads at most `limit` dead letters or, if not all are meant, sends at most so many. Reads none that was written
    /// after it began, so that it ends even if every record gets a new letter. If all letters are meant, it continues at
    /// the last replay's bookmark. Safe to repeat: it sends nothing that another replay has sent, even one that was
    /// killed. It ends a replay that is still running.
    ///
    /// # Errors
    /// Letters cannot be read, or cannot be sent.
    pub(super) async fn run(&self, limit: usize) -> anyhow::Result<Replayed> {
        if !self.dry_run {
            // From here on no other replay can send, so the receipts name everything that was sent.
            self.calls.persist("begin to put dead letters back", || self.transactions.take_over()).await?;
        }
        let logs = self.calls.persist("look at the dead letters", || self.reader.logs()).await?;
        let mut known = self.calls.persist("read receipts", || self.put_back(&logs)).await?;
        let mut done = Replayed::default();
        let (is_all, mut left) = (self.wanted.is_all(), limit as u64);
        for (partition, log) in logs {
            let marked = || self.reader.bookmark(&partition);
            let marked = self.calls.persist("read how far the last replay was", marked).await?;
            let marked = marked.filter(|_| is_all);
            let mut at = marked.unwrap_or(log.start).max(log.start);
            done.goes_on |= at > log.start;
            let mut passed = None;
            while at < log.end && left > 0 {
                let read = || self.reader.read(&partition, at, log.end);
                let records = self.calls.persist("read dead letters", read).await?;
                let most = if is_all { usize::try_from(left).unwrap_or(usize::MAX) } else { usize::MAX };
                let Some(last) = records.iter().take(most).last().map(|record| record.offset) else { break };
                let mut batch = Vec::new();
                let letters = records.iter().take(most).filter_map(letter);
                for letter in letters.filter(|letter| self.wanted.has(letter)) {
                    if !is_all && done.sent == limit as u64 {
                        break;
                    }
                    if self.leaves_out(&letter, &mut known, &mut batch, &mut done) {
                        passed.get_or_insert(letter.record.offset);
                    }
                }
                self.commit(&partition, &batch).await?;
                left = if is_all { left.saturating_sub(records.len() as u64) } else { limit as u64 - done.sent };
                at = last.next();
                if !self.dry_run && is_all {
                    // The next replay begins with the first letter that this one has left out.
                    let at = passed.unwrap_or(at);
                    let mark = || self.reader.mark(&partition, at);
                    self.calls.persist("write down how far the replay is", mark).await?;
                }
            }
        }
        done.is_full = left == 0;
        Ok(done)
    }

    /// Reads which records were put back so far. If this replay sends, it has to know all of them: an old like that is
    /// sent again would win over a later unlike.
    async fn put_back(&self, logs: &[(Partition, Log)]) -> Outcome<Identities> {
        let receipts = put_back_of(&*self.reader, logs, &self.deployment, &self.topic).await?;
        if self.dry_run { Ok(receipts.with_warnings()) } else { receipts.complete() }
    }

    /// Counts `letter` in `done`, and puts its record into `batch` if it is to be sent. Returns whether the letter is
    /// left out because it adds to a sum and `--sums` was not given.
    fn leaves_out<'a>(
        &'a self,
        letter: &Letter<'a>,
        known: &mut Identities,
        batch: &mut Vec<PutBack<'a>>,
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
        // The record gets the right key: with a wrong or missing one it would be out of order again.
        let key = event.subject().to_owned();
        let mut headers = letter.original_headers();
        headers.push((PUT_BACK_FOR, Some(self.deployment.as_bytes())));
        batch.push(PutBack { of, key, value: letter.record.value, headers });
        done.sent += 1;
        false
    }

    /// Sends a batch, and its receipt to the partition of its letters. A replay that is killed here has sent both or
    /// neither.
    async fn commit(&self, letters: &Partition, batch: &[PutBack<'_>]) -> anyhow::Result<()> {
        if self.dry_run || batch.is_empty() {
            return Ok(());
        }
        let of: Vec<Identity> = batch.iter().map(|record| record.of).collect();
        let (receipt, headers) = (receipt(&of), receipt_headers(&self.deployment, &self.topic));
        let back = batch.iter().map(|PutBack { key, value, headers, .. }| Outgoing {
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
                // The write before this one failed, but may have been carried out. If so, its receipt is there.
                self.transactions.take_over().await?;
                let known = self.put_back(&self.reader.logs().await?).await?;
                if of.iter().all(|of| known.has(*of)) {
                    return Ok(());
                }
            }
            self.transactions.write(&all).await
        };
        self.calls.persist("put dead letters back", write).await
    }
}
