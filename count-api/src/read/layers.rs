//! What stands behind this process's memory: the shared cache, then the table. Every number answered was read in one of
//! them, beside a standing that was taken before.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tally_core::cached::{FillToken, Got, StandingAt, Value};
use tally_core::ids::CounterId;
use tokio::time::Instant;

use super::NoAnswer;
use super::cache::{Fill, SharedCache};
use super::gate::no_answer;
use super::known::Known;
use super::local::ReadLead;
use super::negative::Negatives;
use super::number::Number;
use super::standings::Standings;
use super::table::Table;
use super::timing::Timing;
use crate::metrics::ReadCounters;

/// The cache, the table, and what numbers are judged by.
pub struct Layers {
    /// None is a supported way to run.
    pub cache: Option<SharedCache>,
    /// The counters.
    pub table: Table,
    /// What numbers are judged by.
    pub standings: Standings,
    /// Where counts below zero are reported.
    pub negatives: Negatives,
    /// How many counts each layer had.
    pub counters: ReadCounters,
}

/// A counter to be read, and what is known of it so far.
struct Ask {
    lead: ReadLead,
    /// What the cache says of the counter's partition; `None` where it has no answer.
    stated: Option<Stated>,
    /// What the cache has.
    cached: Option<Number>,
    /// The right to fill the cache with what the table answers.
    token: Option<FillToken>,
}

/// The standing of a partition, as the cache has it.
#[derive(Clone)]
struct Stated {
    partition: u32,
    standing: Arc<StandingAt>,
}

impl Ask {
    fn of(lead: ReadLead) -> Self {
        Self { lead, stated: None, cached: None, token: None }
    }

    /// The later of two standings that were taken before the counter is read in the table. That of the cache is one of those:
    /// what is before it was in the table when it came to the cache.
    fn standing(&self, known: &Known) -> Option<Arc<StandingAt>> {
        let (of_table, of_cache) = (known.of(&self.lead.id), self.stated.as_ref().map(|stated| &stated.standing));
        of_table.into_iter().chain(of_cache).max_by_key(|stated| stated.at).cloned()
    }

    /// The value as the cache is to have it. A counter that is not there stays out: ids that no post has would drive out those
    /// asked for.
    fn fill(&self, value: Value) -> Option<Fill> {
        let is_there = value.version > Value::default().version;
        let (Some(token), Some(Stated { partition, .. }), true) = (self.token, &self.stated, is_there) else {
            return None;
        };
        Some(Fill { partition: *partition, id: self.lead.id.clone(), token, value })
    }
}

impl Layers {
    /// Reads what `leads` name: the cache is asked once for each partition, all at the same time, and the table once for the
    /// rest.
    pub(super) async fn read(&self, leads: Vec<ReadLead>) {
        let (mut asks, mut timing) = (leads.into_iter().map(Ask::of).collect::<Vec<_>>(), Timing::default());
        if let Some(cache) = &self.cache {
            let began = Instant::now();
            self.ask_cache(cache, &mut asks).await;
            timing.redis = Some(began.elapsed());
        }
        let mut left = Vec::new();
        for mut ask in asks {
            match ask.cached.take_if(|cached| !self.standings.is_outdone(&ask.lead.id, cached)) {
                Some(cached) => {
                    self.counters.cache.increment(1);
                    self.finish(ask.lead, Ok(cached), timing);
                }
                None => left.push(ask),
            }
        }
        if !left.is_empty() {
            if let Some(cache) = &self.cache {
                take_tokens(cache, &mut left).await;
            }
            let fills = self.ask_table(left, timing).await;
            if let Some(cache) = &self.cache {
                // Every request has its answer by now.
                join_all(fills.into_iter().map(|fill| cache.fill(fill))).await;
            }
        }
    }

    async fn ask_cache(&self, cache: &SharedCache, asks: &mut [Ask]) {
        let known = self.standings.known();
        let mut partitions: BTreeMap<u32, Vec<&mut Ask>> = BTreeMap::new();
        for ask in asks {
            // The cache has no entries of other Regions.
            let is_own = ask.lead.id.name.region().is_none();
            if let Some(partition) = known.partition(&ask.lead.id).filter(|_| is_own) {
                partitions.entry(partition).or_default().push(ask);
            }
        }
        let ask_partition = async |(partition, asks): (u32, Vec<&mut Ask>)| {
            let ids: Vec<CounterId> = asks.iter().map(|ask| ask.lead.id.clone()).collect();
            let Some(Got { stated: Some(stated), values }) = cache.get(partition, &ids).await else { return };
            if !known.is_current(&stated) {
                return;
            }
            let (stated, now) = (Stated { partition, standing: Arc::new(stated) }, self.standings.now().wall);
            for (ask, value) in asks.into_iter().zip(values) {
                let beside = known.beside(&ask.lead.id, Some(Arc::clone(&stated.standing)));
                ask.cached = value.map(|value| Number::new(value, beside, now));
                ask.stated = Some(stated.clone());
            }
        };
        join_all(partitions.into_iter().map(ask_partition)).await;
    }

    /// Tokens and standings were had before the table is asked: neither says more than the answer holds. Returns what the cache
    /// is to have of it.
    async fn ask_table(&self, asks: Vec<Ask>, mut timing: Timing) -> Vec<Fill> {
        let began = Instant::now();
        let known = self.standings.known();
        let ids: Vec<CounterId> = asks.iter().map(|ask| ask.lead.id.clone()).collect();
        let mut read = self.table.read(&ids).await;
        timing.table = Some(began.elapsed());
        let (now, mut fills) = (self.standings.now().wall, Vec::new());
        for ask in asks {
            let number = read.as_mut().map_err(|fault| fault.clone()).and_then(|read| {
                let beside = known.beside(&ask.lead.id, ask.standing(&known));
                let counter = read.counters.remove(&ask.lead.id).transpose().map_err(|fault| no_answer(&fault))?;
                let number = Number::read(counter.as_ref(), read, beside, now);
                self.counters.table.increment(1);
                fills.extend(ask.fill(number.value));
                Ok(number)
            });
            // An older number that says so is better than none.
            self.finish(ask.lead, number.or_else(|fault| ask.cached.ok_or(fault)), timing);
        }
        fills
    }

    fn finish(&self, lead: ReadLead, read: Result<Number, NoAnswer>, timing: Timing) {
        // What another Region's entry needs is for that Region to find.
        if let Ok(number) = &read
            && lead.id.name.region().is_none()
        {
            self.negatives.report(&lead.id, &number.value);
        }
        lead.finish(read, timing);
    }
}

/// Asks for the right to fill the cache with each value that it does not have. A cache that did not answer is not asked again:
/// it would be waited for twice.
async fn take_tokens(cache: &SharedCache, asks: &mut [Ask]) {
    join_all(asks.iter_mut().map(async |ask| {
        if let (None, Some(Stated { partition, .. })) = (&ask.cached, &ask.stated) {
            ask.token = cache.begin_fill(*partition, &ask.lead.id).await;
        }
    }))
    .await;
}
