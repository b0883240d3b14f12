//! Looks at row keys, round after round, until each is settled.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::PoisonError;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_adapters::dynamodb::LedgerEntry;
use tally_adapters::dynamodb::PUTS;
use tally_core::audit::{Cause, Drift};
use tally_core::changes::{Amend, Body, Correction, Place};
use tally_core::ids::{CounterId, RowKey};
use tally_core::recount::is_large;
use tally_core::topic::Offset;

use super::look::{Found, Looked, WRITES};
use super::sums::Part;
use super::{Ended, POLL, Recount};
use crate::metrics;

/// Corrections of a run that the log of the process has one by one.
const TOLD: u64 = 1_000;

/// Row keys left that are remembered one by one.
const REMEMBERED: usize = 10_000;

/// Corrections sent at once, which Kafka's client gathers into few requests.
const SENT: usize = 1024;

/// Who has corrected a count, on the ledger.
const BY: &str = "tally-batch-recount";

/// A row key that is not settled.
pub(crate) struct Open {
    key: RowKey,
    /// Looks that have not settled it.
    looks: u32,
    /// A correction of it was sent.
    is_corrected: bool,
    /// It was settled after that, and is looked at once more.
    is_rechecked: bool,
    /// A large correction of it was withheld, and the count called doubtful instead.
    is_withheld: bool,
    /// Why it differs, once its count was called doubtful before it is corrected.
    doubted: Option<Cause>,
}

impl Open {
    fn new(key: RowKey) -> Self {
        Self { key, looks: 0, is_corrected: false, is_rechecked: false, is_withheld: false, doubted: None }
    }

    pub(crate) fn key(&self) -> &RowKey {
        &self.key
    }
}

/// What rounds have come to.
#[derive(Default)]
struct Rounds {
    ended: Ended,
    /// Row keys that were corrected and found equal.
    corrected: Vec<Open>,
    /// Those of which a correction was sent that no look has seen.
    sent: Vec<Open>,
}

/// What becomes of a row key after a look.
enum Next {
    Settled,
    Doubtful,
    Left,
    Again,
    /// A correction is sent, and this is its line on the ledger unless it was sent before.
    Send(Box<Correction>, Option<Box<LedgerEntry>>),
}

impl Recount {
    /// Settles row keys: those that had to be corrected are looked at once more a minute later.
    ///
    /// # Errors
    /// A recount cannot begin, or a store refuses what it is asked.
    pub async fn keys(&self, keys: Vec<RowKey>) -> anyhow::Result<Ended> {
        let (mut ended, corrected) = self.settle(keys, None).await?;
        ended.add(self.recheck(corrected, None).await?);
        Ok(ended)
    }

    /// Settles row keys; also those that had to be corrected. Where there are many of a `part`, another pass over it finds
    /// equal what was corrected, instead of a look at each.
    pub(crate) async fn settle(&self, keys: Vec<RowKey>, part: Option<Part>) -> anyhow::Result<(Ended, Vec<Open>)> {
        let mut keys = keys;
        self.findings.doubted(keys.len() as u64);
        // Those of one counter are best looked at together: they are corrected together.
        keys.sort_unstable();
        let mut todo: VecDeque<Open> = keys.into_iter().map(Open::new).collect();
        let (mut ended, mut corrected) = (Ended::default(), Vec::new());
        while !todo.is_empty() {
            let part = part.filter(|_| todo.len() > self.rules.keys);
            let rounds = self.rounds(todo, true, part.is_none()).await?;
            ended.add(rounds.ended);
            corrected.extend(rounds.corrected);
            todo = match part {
                None => VecDeque::new(),
                Some(part) => {
                    let (proved, left) = self.proved(rounds.sent, part).await?;
                    self.findings.settled(proved.len() as u64);
                    let before = corrected.len();
                    corrected.extend(proved.into_iter().filter(|open| open.is_corrected));
                    metrics::keys("repaired", (corrected.len() - before) as u64);
                    left.into()
                }
            };
        }
        Ok((ended, corrected))
    }

    /// Those of row keys that a pass over `part` proves, and the others.
    async fn proved(&self, open: Vec<Open>, part: Part) -> anyhow::Result<(Vec<Open>, Vec<Open>)> {
        let unproved = self.unproved(open.iter().map(|open| open.key.clone()).collect(), part).await?;
        Ok(open.into_iter().partition(|open| !unproved.contains(&open.key)))
    }

    /// The row keys that were left, or are in doubt, since this was asked last, as far as they are remembered.
    pub fn left(&self) -> Vec<RowKey> {
        std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks once more at row keys that were corrected and are settled. A difference says that records are lost or out of
    /// order, unless the counter was edited again.
    pub(crate) async fn recheck(&self, corrected: Vec<Open>, part: Option<Part>) -> anyhow::Result<Ended> {
        if corrected.is_empty() {
            return Ok(Ended::default());
        }
        self.calls.wait(self.rules.recheck).await?;
        let again = corrected.into_iter().map(|open| Open { looks: 0, is_rechecked: true, doubted: None, ..open });
        let mut again: Vec<Open> = again.collect();
        if let Some(part) = part.filter(|_| again.len() > self.rules.keys) {
            again = self.proved(again, part).await?.1;
        }
        Ok(self.rounds(again.into(), false, true).await?.ended)
    }

    /// Rounds over row keys until each is settled or left. One that a correction was sent of is looked at again, or handed back.
    /// Progress counts them the first time.
    async fn rounds(&self, mut todo: VecDeque<Open>, is_first: bool, looks_again: bool) -> anyhow::Result<Rounds> {
        let Rounds { mut ended, mut corrected, mut sent } = Rounds::default();
        while !todo.is_empty() {
            let round = todo.drain(..todo.len().min(self.rules.keys));
            let mut round: BTreeMap<RowKey, Open> = round.map(|open| (open.key.clone(), open)).collect();
            let is_lossy = !self.open_losses().await?.is_empty();
            let Looked { found, deferred } = Box::pin(self.look(round.keys().cloned().collect())).await?;
            let (mut corrections, mut lines, mut again) = (Vec::new(), Vec::new(), false);
            let (before, of_round) = (todo.len() + sent.len(), found.len());
            for (key, found) in found {
                let Some(mut open) = round.remove(&key) else { continue };
                match self.next(&mut open, found, is_lossy) {
                    Next::Settled if open.is_corrected => corrected.push(open),
                    Next::Settled => {}
                    Next::Doubtful => ended.doubtful += 1,
                    Next::Left => ended.left += 1,
                    Next::Again => {
                        again = true;
                        todo.push_back(open);
                    }
                    Next::Send(correction, line) => {
                        corrections.push(*correction);
                        lines.extend(line.map(|line| *line));
                        if looks_again {
                            todo.push_back(open);
                        } else {
                            sent.push(open);
                        }
                    }
                }
            }
            if is_first {
                self.findings.settled((of_round + before - todo.len() - sent.len()) as u64);
            }
            todo.extend(deferred.into_iter().filter_map(|key| round.remove(&key)));
            self.write_down(lines).await?;
            self.send(corrections).await?;
            if again {
                self.calls.wait(5 * POLL).await?;
            }
        }
        Ok(Rounds { ended, corrected, sent })
    }

    /// What becomes of a row key of which this was found; losses are open, or not.
    fn next(&self, open: &mut Open, found: Found, is_lossy: bool) -> Next {
        let key = &open.key;
        match found {
            Found::Equal => {
                if !open.is_corrected {
                    self.findings.proved(1);
                } else if !open.is_rechecked {
                    metrics::keys("repaired", 1);
                }
                Next::Settled
            }
            Found::Doubtful => {
                tracing::warn!(%key, "the weight of a row cannot be read: its counter is in doubt");
                self.leave(key);
                Next::Doubtful
            }
            Found::Waits if self.rules.dry_run => Next::Settled,
            Found::Waits => Next::Again,
            Found::Void(why) => self.again(open, why, Next::Again),
            Found::Unreadable(error) => {
                tracing::error!(%key, error, "a counter cannot be read");
                self.leave(key)
            }
            Found::Differs { correction, before, after, cause } => {
                let drift = Drift { key: key.to_string(), before, after, cause };
                if self.rules.dry_run {
                    self.findings.differs(drift);
                    return self.leave(key);
                }
                let add = after.saturating_sub(before);
                let is_withheld = cause != Cause::Total && is_large(before, add) && !self.rules.force && !is_lossy;
                if is_withheld {
                    self.withhold(open, &correction, drift)
                } else if !is_lossy && looks_exact(cause) {
                    match open.doubted.replace(cause) {
                        None => doubt(&correction),
                        Some(_) => self.again(open, "it is not called doubtful yet", doubt(&correction)),
                    }
                } else {
                    let cause = open.doubted.filter(|_| cause == Cause::Suspect).unwrap_or(cause);
                    self.differs(open, correction, Drift { cause, ..drift })
                }
            }
        }
    }

    /// Leaves a correction that is too large unwritten; the count is called doubtful until an operator runs with `--force`.
    fn withhold(&self, open: &mut Open, correction: &Correction, drift: Drift) -> Next {
        let (key, is_doubted) = (&open.key, drift.cause == Cause::Suspect);
        if !std::mem::replace(&mut open.is_withheld, true) {
            let Drift { before, after, .. } = drift;
            tracing::warn!(%key, before, after, "a large correction was withheld: run with --force");
            self.findings.withheld(drift);
            if !is_doubted {
                return doubt(correction);
            }
        }
        self.leave(key)
    }

    fn differs(&self, open: &mut Open, correction: Correction, drift: Drift) -> Next {
        let (key, Drift { before, after, cause, .. }) = (&open.key, &drift);
        if std::mem::take(&mut open.is_rechecked) {
            tracing::error!(%key, before, after, "a row key differs again: records may be lost or out of order");
            self.findings.alarm();
        } else if open.is_corrected {
            // The last correction was not applied: another one was before it, a loss, or the fold is late.
            return self.again(open, "it differs still", Next::Send(Box::new(correction), None));
        }
        let line = (before != after).then(|| Box::new(self.line(key, &drift)));
        match self.summary().corrected {
            ..TOLD => tracing::info!(%key, before, after, why = cause.label(), "corrected"),
            TOLD => tracing::info!("more is corrected: each line is on the ledger, which `tally post show` prints"),
            _ => {}
        }
        self.findings.corrected(drift);
        open.is_corrected = true;
        Next::Send(Box::new(correction), line)
    }

    /// The line of a correction on the ledger.
    fn line(&self, key: &RowKey, Drift { before, after, cause, .. }: &Drift) -> LedgerEntry {
        LedgerEntry {
            counter: key.counter.clone(),
            shard: (*cause != Cause::Total).then_some(key.shard),
            at: self.calls.now(),
            run: self.run,
            by: BY.to_owned(),
            before: *before,
            after: *after,
            why: cause.label().to_owned(),
        }
    }

    /// The `next` thing to do about a row key that a look has not settled, unless there were too many.
    fn again(&self, open: &mut Open, why: &str, next: Next) -> Next {
        open.looks += 1;
        if open.looks < self.rules.looks {
            tracing::debug!(key = %open.key, why, "a row key is looked at again");
            return next;
        }
        tracing::error!(key = %open.key, why, looks = open.looks, "a row key cannot be recounted and is left as it is");
        self.leave(&open.key)
    }

    fn leave(&self, key: &RowKey) -> Next {
        metrics::keys("left", 1);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < REMEMBERED {
            left.push(key.clone());
        }
        Next::Left
    }

    /// Writes lines of the ledger, before what they say is sent. Safe to repeat: it is the same line.
    async fn write_down(&self, lines: Vec<LedgerEntry>) -> anyhow::Result<()> {
        let write = |some: Vec<LedgerEntry>| async move {
            self.calls.persist("write the ledger", || self.ports.recounts.put_ledger(&some)).await?;
            self.calls.wrote(some.len() as u64);
            anyhow::Ok(())
        };
        let batches: Vec<_> = lines.chunks(PUTS).map(<[_]>::to_vec).collect();
        stream::iter(batches).map(|some| write(some).boxed()).buffer_unordered(WRITES).try_collect().await
    }

    /// Sends corrections, and waits until the folds have met them or patience ends. Safe to repeat: a counter takes a
    /// correction only if it has as many as the correction has seen, and taking it raises them.
    async fn send(&self, corrections: Vec<Correction>) -> anyhow::Result<()> {
        if corrections.is_empty() {
            return Ok(());
        }
        let send = |correction: Correction| {
            let partition = self.partition(&RowKey::first(&correction.counter));
            async move { anyhow::Ok((partition, self.append(partition, Body::Correction(correction)).await?)) }.boxed()
        };
        let sent: Vec<(u32, Offset)> =
            stream::iter(joined(corrections)).map(send).buffer_unordered(SENT).try_collect().await?;
        let mut ends: BTreeMap<u32, Offset> = BTreeMap::new();
        for (partition, offset) in sent {
            let end = ends.entry(partition).or_default();
            *end = offset.next().max(*end);
        }
        // A look before that would find the same difference again.
        self.folded(&ends).await?;
        Ok(())
    }

    /// Waits until the folds have stored that everything before these offsets is in the counters, or patience ends; the partitions
    /// of which it is.
    ///
    /// # Errors
    /// The log is in another topic by now.
    pub(super) async fn folded(&self, ends: &BTreeMap<u32, Offset>) -> anyhow::Result<BTreeSet<u32>> {
        let clock = self.calls.clock();
        let deadline = clock.reading().at + self.rules.patience;
        loop {
            let folds = self.folds().await?;
            // After the folds: if the topic is the same still, their places are in it.
            self.require_same_log().await?;
            let is_in = |(partition, end): &(&u32, &Offset)| self.is_up_to(folds.get(partition).copied(), **end);
            let folded: BTreeSet<u32> = ends.iter().filter(is_in).map(|(partition, _)| *partition).collect();
            if folded.len() == ends.len() || clock.reading().at >= deadline {
                return Ok(folded);
            }
            self.calls.wait(2 * POLL).await?;
        }
    }

    /// Whether a fold has everything before `end`. A fold may be in a later generation than the topic's, where its partition lost
    /// its end once.
    fn is_up_to(&self, fold: Option<Place>, end: Offset) -> bool {
        fold.is_some_and(|fold| fold.generation() >= self.config.generation && fold.offset() >= end)
    }

    /// The places of the partitions that the folds have stored: everything before is in the counters.
    pub(super) async fn folds(&self) -> anyhow::Result<BTreeMap<u32, Place>> {
        let read = || self.ports.changes.standings(self.config.partitions);
        let standings = self.calls.persist("read how far the folds are", read).await?;
        self.calls.read_items(standings.len());
        Ok(standings.into_iter().map(|(partition, stored)| (partition, stored.at)).collect())
    }
}

/// Whether the number may be called exact although it differs. Such a number is called doubtful first: a reader may have it in
/// memory for a second after the counter has another one, and no reader is to be told it as exact from then on. The next look
/// corrects it, after the guard at least. While a loss is open nothing is exact.
fn looks_exact(cause: Cause) -> bool {
    matches!(cause, Cause::Drift | Cause::NoRows | Cause::MissingCounter)
}

/// Calls a count doubtful instead of correcting it.
fn doubt(correction: &Correction) -> Next {
    let parts = correction.parts.keys().map(|shard| (*shard, Amend::Doubt)).collect();
    Next::Send(Box::new(Correction { parts, ..correction.clone() }), None)
}

/// One correction of each counter: all of one look at it have seen the same.
fn joined(corrections: Vec<Correction>) -> impl Iterator<Item = Correction> {
    let mut joined: BTreeMap<CounterId, Correction> = BTreeMap::new();
    for correction in corrections {
        match joined.entry(correction.counter.clone()) {
            Entry::Vacant(place) => _ = place.insert(correction),
            Entry::Occupied(mut stands) => stands.get_mut().parts.extend(correction.parts),
        }
    }
    joined.into_values()
}
