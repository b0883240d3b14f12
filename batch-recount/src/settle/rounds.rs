//! Repeats the looks of a recount at row keys, round after round, and sends the corrections that they call for. A *row
//! key* is the partition key of the rows of one shard of a counter; a *look* compares what the counters have for some
//! shards with the sums of their rows. A row key is *settled* once counter and rows agree, which a look finds, or one
//! pass over the rows of many keys. It is *left* if too many looks do not find that, or if it must not or cannot be
//! corrected. It is *doubtful* if it is left because the weight of a row cannot be read.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures_util::FutureExt;
use tally_adapters::dynamodb::LedgerEntry;
use tally_adapters::dynamodb::PUTS;
use tally_core::audit::{Cause, Drift};
use tally_core::changes::{Amend, Body, Correction, Place};
use tally_core::ids::{CounterId, RowKey};
use tally_core::recount::is_large;
use tally_core::topic::Offset;

use super::look::{Found, Looked, WRITES};
use super::pass::Part;
use super::{Ended, POLL, Recount};
use crate::calls::at_once;
use crate::metrics;

/// How many corrections of a run the process logs one by one.
const TOLD: u64 = 1_000;

/// How many of the row keys left are remembered.
const REMEMBERED: usize = 10_000;

/// How many corrections are sent at once, which Kafka's client gathers into few requests.
const SENT: usize = 1024;

/// The name that the ledger gives for these corrections.
const BY: &str = "tally-batch-recount";

/// A row key that is not settled.
pub(crate) struct Open {
    pub(crate) key: RowKey,
    /// How many looks have not settled it.
    looks: u32,
    /// Whether a correction of it was sent.
    is_corrected: bool,
    /// Whether it was settled after that, and is looked at once more.
    is_rechecked: bool,
    /// Why it differs, once its count was marked as doubtful. The correction comes after that.
    doubted: Option<Cause>,
}

/// What happens to a row key after a look.
enum Next {
    Settled,
    Doubtful,
    Left,
    Again,
    /// A correction or a doubt is sent.
    Sent,
}

/// What is sent after a look, and the lines of the ledger, which are written before.
#[derive(Default)]
struct Sends {
    corrections: Vec<Correction>,
    lines: Vec<LedgerEntry>,
}

impl Sends {
    fn send(&mut self, correction: Correction) -> Next {
        self.corrections.push(correction);
        Next::Sent
    }

    /// Marks a count as doubtful instead of correcting it.
    fn doubt(&mut self, correction: Correction) -> Next {
        let parts = correction.parts.keys().map(|shard| (*shard, Amend::Doubt)).collect();
        self.send(Correction { parts, ..correction })
    }
}

impl Recount {
    /// Settles row keys. After `rules.recheck` it looks once more at those that had to be corrected.
    ///
    /// # Errors
    /// A recount cannot begin, or a store refuses what it is asked.
    pub async fn keys(&self, keys: Vec<RowKey>) -> anyhow::Result<Ended> {
        let settled = self.settle(keys, None).await?;
        self.rechecked(settled, None).await
    }

    /// Settles row keys, and also returns those that had to be corrected. If many of a `part` had to be, another pass
    /// over it proves them, instead of a look at each.
    pub(crate) async fn settle(&self, keys: Vec<RowKey>, part: Option<Part>) -> anyhow::Result<(Ended, Vec<Open>)> {
        let mut keys = keys;
        self.findings.so_far().doubted += keys.len() as u64;
        // Those of one counter are best looked at together: they are corrected together.
        keys.sort_unstable();
        let open = |key| Open { key, looks: 0, is_corrected: false, is_rechecked: false, doubted: None };
        self.rounds(keys.into_iter().map(open).collect(), part, true).await
    }

    /// Looks once more at what a settling has corrected. Returns how both ended.
    pub(crate) async fn rechecked(
        &self,
        (mut ended, corrected): (Ended, Vec<Open>),
        part: Option<Part>,
    ) -> anyhow::Result<Ended> {
        ended.add(self.recheck(corrected, part).await?);
        Ok(ended)
    }

    /// Takes the row keys that were left, or are in doubt, since the last call; at most 10,000 of them.
    pub fn left(&self) -> Vec<RowKey> {
        std::mem::take(&mut *self.left.lock())
    }

    /// Looks once more at row keys that were corrected and are settled. A difference raises an alarm: records are lost
    /// or out of order, unless the counter was edited again.
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
        Ok(self.rounds(again.into(), None, false).await?.0)
    }

    /// Looks at row keys until each is settled or left; while there are many, passes take the place of looks. Returns
    /// how that ended, and the row keys that were corrected and found equal. Progress counts row keys the first time.
    async fn rounds(
        &self,
        mut todo: VecDeque<Open>,
        part: Option<Part>,
        is_first: bool,
    ) -> anyhow::Result<(Ended, Vec<Open>)> {
        let (mut ended, mut corrected, mut sent) = (Ended::default(), Vec::new(), Vec::new());
        let mut by_pass = part.filter(|_| todo.len() > self.rules.keys);
        while !todo.is_empty() {
            let round = todo.drain(..todo.len().min(self.rules.keys));
            let mut round: BTreeMap<RowKey, Open> = round.map(|open| (open.key.clone(), open)).collect();
            let is_lossy = !self.open_losses().await?.is_empty();
            let Looked { found, deferred } = Box::pin(self.look(round.keys().cloned().collect())).await?;
            let (mut sends, mut settled, mut waits) = (Sends::default(), found.len() as u64, false);
            for (key, found) in found {
                let Some(mut open) = round.remove(&key) else { continue };
                let next = self.next(&mut open, found, is_lossy, &mut sends);
                settled -= u64::from(matches!(next, Next::Again | Next::Sent));
                waits |= matches!(next, Next::Again);
                match next {
                    Next::Settled => corrected.extend(Some(open).filter(|open| open.is_corrected)),
                    Next::Doubtful => ended.doubtful += 1,
                    Next::Left => ended.left += 1,
                    Next::Sent if by_pass.is_some() => sent.push(open),
                    Next::Again | Next::Sent => todo.push_back(open),
                }
            }
            todo.extend(deferred.into_iter().filter_map(|key| round.remove(&key)));
            self.write_down(sends.lines).await?;
            self.send(sends.corrections).await?;
            if let Some(part) = by_pass.filter(|_| todo.is_empty()) {
                let (mut proved, others) = self.proved(std::mem::take(&mut sent), part).await?;
                settled += proved.len() as u64;
                proved.retain(|open| open.is_corrected);
                metrics::KEYS.counter(&["repaired"]).increment(proved.len() as u64);
                corrected.extend(proved);
                todo.extend(others);
                by_pass = by_pass.filter(|_| todo.len() > self.rules.keys);
            } else if waits {
                self.calls.wait(5 * POLL).await?;
            }
            if is_first {
                self.findings.so_far().settled += settled;
            }
        }
        Ok((ended, corrected))
    }

    /// Decides what happens to a row key after a look; `is_lossy` says that losses are open.
    fn next(&self, open: &mut Open, found: Found, is_lossy: bool, sends: &mut Sends) -> Next {
        let key = &open.key;
        match found {
            Found::Equal => {
                if !open.is_corrected {
                    self.findings.proved(1);
                } else if !open.is_rechecked {
                    metrics::KEYS.counter(&["repaired"]).increment(1);
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
            Found::Void(why) => self.again(open, why).unwrap_or(Next::Again),
            Found::Unreadable(error) => {
                tracing::error!(%key, error, "a counter cannot be read");
                self.leave(key)
            }
            Found::Differs(_, drift) if self.rules.dry_run => {
                self.findings.differs(drift);
                self.leave(key)
            }
            Found::Differs(correction, drift) => {
                let Drift { before, after, cause, .. } = drift;
                let is_large = cause != Cause::Total && is_large(before, after.saturating_sub(before));
                if is_large && !self.rules.force && !is_lossy {
                    tracing::warn!(%key, before, after, "a large correction was withheld: run with --force");
                    self.findings.withheld(drift);
                    // The count is marked as doubtful until an operator runs with --force.
                    if cause != Cause::Suspect {
                        sends.doubt(correction);
                    }
                    self.leave(key)
                } else if !is_lossy && looks_exact(cause) {
                    let is_late = open.doubted.replace(cause).is_some();
                    let left = is_late.then(|| self.again(open, "it is not called doubtful yet")).flatten();
                    left.unwrap_or_else(|| sends.doubt(correction))
                } else {
                    let cause = open.doubted.filter(|_| cause == Cause::Suspect).unwrap_or(cause);
                    self.differs(open, correction, Drift { cause, ..drift }, sends)
                }
            }
        }
    }

    fn differs(&self, open: &mut Open, correction: Correction, drift: Drift, sends: &mut Sends) -> Next {
        let Drift { before, after, cause, .. } = drift;
        if std::mem::take(&mut open.is_rechecked) {
            let key = &open.key;
            tracing::error!(%key, before, after, "a row key differs again: records may be lost or out of order");
            self.findings.alarm();
        } else if open.is_corrected {
            // The last correction was not applied: another one or a loss came before it, or the fold is late.
            return self.again(open, "it differs still").unwrap_or_else(|| sends.send(correction));
        }
        let (key, why) = (&open.key, cause.label());
        if before != after {
            sends.lines.push(LedgerEntry {
                counter: key.counter.clone(),
                shard: (cause != Cause::Total).then_some(key.shard),
                at: self.calls.now(),
                run: self.run,
                by: BY.to_owned(),
                before,
                after,
                why: why.to_owned(),
            });
        }
        match self.summary().corrected {
            ..TOLD => tracing::info!(%key, before, after, why, "corrected"),
            TOLD => tracing::info!("more is corrected: the table `recounts` has each correction"),
            _ => {}
        }
        self.findings.corrected(drift);
        open.is_corrected = true;
        sends.send(correction)
    }

    /// Counts a look that did not settle a row key. Leaves the row key if it was the last that is allowed.
    fn again(&self, open: &mut Open, why: &str) -> Option<Next> {
        open.looks += 1;
        let (key, looks) = (&open.key, open.looks);
        if looks < self.rules.looks {
            tracing::debug!(%key, why, "a row key is looked at again");
            return None;
        }
        tracing::error!(%key, why, looks, "a row key cannot be recounted and is left as it is");
        Some(self.leave(key))
    }

    fn leave(&self, key: &RowKey) -> Next {
        metrics::KEYS.counter(&["left"]).increment(1);
        let mut left = self.left.lock();
        if left.len() < REMEMBERED {
            left.push(key.clone());
        }
        Next::Left
    }

    /// Writes lines of the ledger, before the corrections that they tell of are sent. Safe to repeat: the lines are the
    /// same.
    async fn write_down(&self, lines: Vec<LedgerEntry>) -> anyhow::Result<()> {
        let put = |lines| async move {
            let put = || self.ports.recounts.put_ledger(lines);
            self.calls.write("write the ledger", lines.len() as u64, put).await
        };
        at_once(WRITES, lines.chunks(PUTS).map(|lines| put(lines).boxed())).await.map(|_| ())
    }

    /// Sends corrections, one for each counter: those of one look have seen the same counter. Waits until the folds
    /// have met them or patience ends. Safe to repeat: a counter takes a correction only if it has as many as the
    /// correction has seen, and then has one more.
    async fn send(&self, corrections: Vec<Correction>) -> anyhow::Result<()> {
        let mut joined: BTreeMap<CounterId, Correction> = BTreeMap::new();
        for correction in corrections {
            match joined.entry(correction.counter.clone()) {
                Entry::Vacant(place) => _ = place.insert(correction),
                Entry::Occupied(mut stands) => stands.get_mut().parts.extend(correction.parts),
            }
        }
        if joined.is_empty() {
            return Ok(());
        }
        let send = |correction: Correction| {
            let partition = self.partition(&RowKey::first(&correction.counter));
            async move { anyhow::Ok((partition, self.append(partition, Body::Correction(correction)).await?)) }.boxed()
        };
        let mut ends: BTreeMap<u32, Offset> = BTreeMap::new();
        for (partition, offset) in at_once(SENT, joined.into_values().map(send)).await? {
            let end = ends.entry(partition).or_default();
            *end = offset.next().max(*end);
        }
        // An earlier look would find the same difference again.
        self.folded(&ends).await.map(|_| ())
    }

    /// Waits until the folds have stored that everything before these offsets is in the counters, or patience ends.
    /// Returns the partitions where it is.
    ///
    /// # Errors
    /// The log is in another topic by now.
    pub(super) async fn folded(&self, ends: &BTreeMap<u32, Offset>) -> anyhow::Result<BTreeSet<u32>> {
        let deadline = self.calls.after(self.rules.patience);
        loop {
            let folds = self.folds().await?;
            // Checked after the folds: if the topic is still the same, their places are in it.
            self.require_same_log().await?;
            // A fold may be in a later generation than the topic's, where its partition lost its end once.
            let is_in = |fold: &Place, end| fold.generation() >= self.config.generation && fold.offset() >= end;
            let folded =
                ends.iter().filter(|(partition, end)| folds.get(partition).is_some_and(|fold| is_in(fold, **end)));
            let folded: BTreeSet<u32> = folded.map(|(partition, _)| *partition).collect();
            if folded.len() == ends.len() || self.calls.is_past(deadline) {
                return Ok(folded);
            }
            self.calls.wait(2 * POLL).await?;
        }
    }

    /// Returns the places that the folds have stored: everything before them is in the counters.
    pub(super) async fn folds(&self) -> anyhow::Result<BTreeMap<u32, Place>> {
        let read = || self.ports.changes.standings(self.config.partitions);
        let standings = self.calls.read("read how far the folds are", self.config.partitions as usize, read).await?;
        Ok(standings.into_iter().map(|(partition, stored)| (partition, stored.at)).collect())
    }
}

/// Returns whether answers may call the number exact although it differs. If so, it is marked as doubtful first: an API
/// process may have it in memory for a second after another one shows the corrected number, and must not call it exact
/// then. The next look corrects it, after the guard at least. While a loss is open nothing is exact.
fn looks_exact(cause: Cause) -> bool {
    matches!(cause, Cause::Drift | Cause::NoRows | Cause::MissingCounter)
}
