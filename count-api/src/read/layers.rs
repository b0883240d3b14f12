//! What stands behind this process's memory: the shared cache, then the table. Every number answered was read in one of
//! them.

use std::sync::Arc;

use futures_util::future::join_all;
use tally_core::counter::Counter;
use tally_core::ids::CounterId;
use tally_core::ports::{Cached, Counts};
use tally_core::served::Served;

use super::NoAnswer;
use super::cache::{Fills, Right, SharedCache};
use super::heard::Heard;
use super::local::ReadLead;
use super::negative::Negatives;
use super::standing::Judge;
use super::table::{TableGate, no_answer};
use crate::error::LoggedCause;
use crate::metrics::ReadCounters;

pub struct Layers {
    /// None is a supported way to run.
    pub cache: Option<SharedCache>,
    pub fills: Fills,
    pub table: Arc<TableGate>,
    pub counts: Arc<dyn Counts>,
    pub heard: Arc<Heard>,
    pub judge: Judge,
    pub negatives: Negatives,
    pub counters: ReadCounters,
}

/// A counter to be read, and what is known of it so far.
struct Ask {
    lead: ReadLead,
    /// What the cache has; `None` while it has not answered.
    cached: Option<Cached>,
    /// The right to write to the cache what the table answers.
    right: Option<Right>,
}

impl Ask {
    fn of(lead: ReadLead) -> Self {
        Self { lead, cached: None, right: None }
    }

    fn hit(&self) -> Option<Served> {
        match self.cached {
            Some(Cached::Hit(served)) => Some(served),
            Some(Cached::Miss) | None => None,
        }
    }
}

impl Layers {
    /// Reads what `leads` name: the cache is asked once for all of them, the table once for the rest.
    pub(super) async fn read(&self, leads: Vec<ReadLead>) {
        let mut asks: Vec<Ask> = leads.into_iter().map(Ask::of).collect();
        if let Some(cache) = &self.cache {
            ask_cache(cache, &mut asks).await;
        }
        // The table may know what is cached as inexact to be exact; not while nothing may be called exact.
        let may_be_exact = self.judge.allows_exact();
        let mut left = Vec::new();
        for ask in asks {
            match ask.hit() {
                Some(served) if served.exact || !may_be_exact => {
                    self.counters.cache.increment(1);
                    self.finish(ask.lead, Ok(served));
                }
                _ => left.push(ask),
            }
        }
        if !left.is_empty() {
            if let Some(cache) = &self.cache {
                take_rights(cache, &mut left).await;
            }
            self.ask_table(left).await;
        }
    }

    /// The rights and the reading were had before the table is asked: neither says more than the answer holds.
    async fn ask_table(&self, asks: Vec<Ask>) {
        let reading = self.judge.reading();
        let ids: Vec<CounterId> = asks.iter().map(|ask| ask.lead.id.clone()).collect();
        let answers = self.counters(&ids).await;
        for (ask, answer) in asks.into_iter().zip(answers) {
            let cached = ask.hit();
            let read = answer.map(|counter| {
                let served = self.judge.arrived(&reading, &ask.lead.id, counter.as_ref());
                // A counter that is not there stays out: ids that no post has would drive out those asked for.
                if let (Some(right), Some(_)) = (ask.right, counter)
                    && cached.is_none_or(|cached| served.replaces(&cached))
                {
                    self.fills.offer(&ask.lead.id, right, served);
                }
                self.counters.table.increment(1);
                served
            });
            // An inexact number that says so is better than none.
            self.finish(ask.lead, read.or_else(|fault| cached.ok_or(fault)));
        }
    }

    async fn counters(&self, ids: &[CounterId]) -> Vec<Result<Option<Counter>, NoAnswer>> {
        if let [id] = ids {
            return vec![self.table.read(self.heard.of(self.counts.counter(id))).await];
        }
        match self.table.read(self.heard.of(self.counts.counters(ids))).await {
            Ok(counters) if counters.len() == ids.len() => {
                counters.iter().for_each(|counter| self.heard.note(counter));
                counters.into_iter().map(|counter| counter.map_err(|fault| no_answer(&fault))).collect()
            }
            Ok(_) => {
                let cause = LoggedCause::new("the table answered for other counters than were asked for");
                vec![Err(NoAnswer::Away(cause)); ids.len()]
            }
            Err(fault) => vec![Err(fault); ids.len()],
        }
    }

    fn finish(&self, lead: ReadLead, read: Result<Served, NoAnswer>) {
        if let Ok(served) = &read {
            self.negatives.report(&lead.id, served);
        }
        lead.finish(read);
    }
}

async fn ask_cache(cache: &SharedCache, asks: &mut [Ask]) {
    let ids: Vec<CounterId> = asks.iter().map(|ask| ask.lead.id.clone()).collect();
    let Some(found) = cache.get(&ids).await else { return };
    for (ask, cached) in asks.iter_mut().zip(found) {
        ask.cached = Some(cached);
    }
}

/// Gets the right to write each of `asks` to the cache: a token where nothing is cached; where an inexact count is, the
/// update that an exact one may replace it by. A cache that did not answer is not asked again: it would be waited for twice.
async fn take_rights(cache: &SharedCache, asks: &mut [Ask]) {
    join_all(asks.iter_mut().map(async |ask| {
        ask.right = match ask.cached {
            Some(Cached::Miss) => cache.begin_fill(&ask.lead.id).await.map(Right::Fill),
            Some(Cached::Hit(_)) => Some(Right::Update),
            None => None,
        };
    }))
    .await;
}
