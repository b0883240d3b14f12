//! The layers behind this process's memory: the shared cache, then the table. The table decides; no layer's value is
//! ever made up.

use std::sync::Arc;

use tally_core::counter::Counter;
use tally_core::ids::CounterId;
use tally_core::ports::{Cached, Counts};
use tally_core::served::Served;

use super::NoAnswer;
use super::cache::{Fills, Layer, Right};
use super::negative::Negatives;
use super::standing::View;
use super::table::{Table, no_answer};
use crate::error::Cause;
use crate::metrics::Layers;

/// What reading goes through, nearest first.
pub struct Layered {
    /// The shared cache; none is a supported way to run.
    pub cache: Option<Layer>,
    /// What the cache is given.
    pub fills: Fills,
    /// The table.
    pub table: Arc<Table>,
    /// The counts in it.
    pub counts: Arc<dyn Counts>,
    /// How far a number can be trusted now.
    pub standing: View,
    /// Where counts below zero are reported.
    pub negatives: Negatives,
    /// What is counted.
    pub layers: Layers,
}

impl Layered {
    /// Counts in the order of `ids`, each of them once: the cache is asked once for all, the table once for the rest.
    pub(super) async fn read(&self, ids: &[CounterId]) -> Vec<Result<Served, NoAnswer>> {
        let answer = match &self.cache {
            Some(cache) => cache.get(ids).await,
            None => None,
        };
        // A cache that did not answer is not asked for the right to fill it, either: it would be waited for twice.
        let answers = answer.is_some();
        let cached: Vec<Option<Served>> = match answer {
            Some(answer) => answer.into_iter().map(hit).collect(),
            None => vec![None; ids.len()],
        };
        // What was called inexact for a gap may be exact now that there is none: the table knows.
        let gaps = self.standing.now().open_gaps;
        let settled = |cached: &Option<Served>| cached.filter(|served| served.exact || gaps);
        let wanted: Vec<Wanted<'_>> = ids
            .iter()
            .zip(&cached)
            .filter(|(_, cached)| settled(cached).is_none())
            .map(|(id, cached)| Wanted { id, cached: *cached })
            .collect();
        self.layers.cache.increment((ids.len() - wanted.len()) as u64);
        let mut read = self.read_table(&wanted, answers).await.into_iter();
        let found: Vec<Result<Served, NoAnswer>> = cached
            .iter()
            .map(|cached| match (settled(cached), cached) {
                (Some(served), _) => Ok(served),
                (None, None) => read.next().unwrap_or_else(|| Err(others())),
                // An inexact number that says so is better than none.
                (None, Some(inexact)) => Ok(read.next().and_then(Result::ok).unwrap_or(*inexact)),
            })
            .collect();
        for (id, served) in ids.iter().zip(&found) {
            if let Ok(served) = served {
                self.negatives.report(id, served);
            }
        }
        found
    }

    /// Reads the table. The right to fill the cache is asked for before, and `as_of` read before, so that neither says
    /// more than the value holds.
    async fn read_table(&self, wanted: &[Wanted<'_>], fill: bool) -> Vec<Result<Served, NoAnswer>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let rights = match &self.cache {
            Some(cache) if fill => rights(cache, wanted).await,
            Some(_) | None => vec![None; wanted.len()],
        };
        let standing = self.standing.now();
        let ids: Vec<CounterId> = wanted.iter().map(|wanted| wanted.id.clone()).collect();
        let counters = self.counters(&ids).await;
        let mut read = Vec::with_capacity(ids.len());
        for ((id, right), counter) in ids.iter().zip(rights).zip(counters) {
            read.push(counter.map(|counter| {
                let served = standing.serve(counter.as_ref());
                // One without a counter stays out: ids nobody has would drive out those that are asked for.
                if let (Some(right), Some(_)) = (right, counter) {
                    self.fills.offer(id, right, served);
                }
                self.layers.table.increment(1);
                served
            }));
        }
        read
    }

    async fn counters(&self, ids: &[CounterId]) -> Vec<Result<Option<Counter>, NoAnswer>> {
        if let [id] = ids {
            return vec![self.table.read(self.counts.counter(id)).await];
        }
        match self.table.read(self.counts.counters(ids)).await {
            Ok(counters) if counters.len() == ids.len() => {
                counters.into_iter().map(|counter| counter.map_err(|fault| no_answer(&fault))).collect()
            }
            Ok(_) => vec![Err(others()); ids.len()],
            Err(fault) => vec![Err(fault); ids.len()],
        }
    }
}

/// A counter to be read from the table, and what the cache said of it.
struct Wanted<'a> {
    id: &'a CounterId,
    cached: Option<Served>,
}

/// What may be written to the cache of each: what is missing by whoever takes its token, what is inexact by anybody who
/// knows better.
async fn rights(cache: &Layer, wanted: &[Wanted<'_>]) -> Vec<Option<Right>> {
    let missing: Vec<CounterId> =
        wanted.iter().filter(|wanted| wanted.cached.is_none()).map(|wanted| wanted.id.clone()).collect();
    let mut tokens = cache.begin_fills(&missing).await.into_iter();
    let right = |wanted: &Wanted<'_>| match wanted.cached {
        Some(_) => Some(Right::Settle),
        None => tokens.next().flatten().map(Right::Fill),
    };
    wanted.iter().map(right).collect()
}

fn others() -> NoAnswer {
    NoAnswer::Away(Cause::new("the table answered for other counters than were asked for"))
}

fn hit(cached: Cached) -> Option<Served> {
    match cached {
        Cached::Hit(served) => Some(served),
        Cached::Miss => None,
    }
}
