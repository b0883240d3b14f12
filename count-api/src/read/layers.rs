//! Reads counters that are not in this process's memory: first in the shared cache, then in the table.
//! [`Reader`](super::Reader) calls [`Layers::read`] for them. Each number is kept with a *standing* that was taken
//! before it, which says up to when all changes are counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tally_core::cached::{FillToken, Got, StandingAt, TakeOverNumber, Value};
use tally_core::ids::CounterId;
use tokio::time::Instant;

use super::cache::{Fill, SharedCache};
use super::gate::no_answer;
use super::known::Known;
use super::local::ReadLead;
use super::negative::Negatives;
use super::number::Number;
use super::standings::Standings;
use super::table::Table;
use super::timing::Timing;
use crate::error::Result;
use crate::metrics::ReadCounters;

/// The cache, the table and the standings that a read needs.
pub struct Layers {
    /// The shared cache, if the process has one.
    pub cache: Option<SharedCache>,
    /// The table of counters.
    pub table: Table,
    /// The standings, and which numbers they outdo.
    pub standings: Standings,
    /// The queue of counters that a recount may set right.
    pub negatives: Negatives,
    /// Counts how many numbers came from each layer.
    pub counters: ReadCounters,
}

/// A counter to be read, and what the cache has answered about it.
struct Ask {
    lead: ReadLead,
    /// The standing that the cache has of the counter's partition, if it answered.
    stated: Option<Stated>,
    /// The number that the cache has.
    cached: Option<Number>,
    /// The right to fill the cache with what the table answers.
    token: Option<FillToken>,
}

/// The standing of a partition in the cache.
#[derive(Clone)]
struct Stated {
    partition: u32,
    number: TakeOverNumber,
    standing: Arc<StandingAt>,
}

impl Ask {
    /// Returns the later of the standings from the table and the cache. Both were taken before the counter is read in
    /// the table: the cache gets a standing only after everything before it is in the table.
    fn standing(&self, known: &Known) -> Option<Arc<StandingAt>> {
        let (of_table, of_cache) = (known.of(&self.lead.id), self.stated.as_ref().map(|stated| &stated.standing));
        of_table.into_iter().chain(of_cache).max_by_key(|stated| stated.at).cloned()
    }

    /// Returns what to write to the cache. A counter that does not exist is not cached: ids that no post has would
    /// drive out those that are asked for.
    fn fill(&self, value: Value) -> Option<Fill> {
        let is_there = value.version > Value::default().version;
        let (Some(token), Some(Stated { partition, .. }), true) = (self.token, &self.stated, is_there) else {
            return None;
        };
        Some(Fill { partition: *partition, id: self.lead.id.clone(), token, value })
    }
}

impl Layers {
    /// Reads the counters of `leads` and finishes each lead. Asks the cache once for each partition, all at the same
    /// time, and the table once for the rest.
    pub(super) async fn read(&self, leads: Vec<ReadLead>) {
        let asks = leads.into_iter().map(|lead| Ask { lead, stated: None, cached: None, token: None });
        let (mut asks, mut timing) = (Vec::from_iter(asks), Timing::default());
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
                // All waiting requests have been answered by now.
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
            let Some(of) = &known.deployment else { return };
            let got = cache.get(partition, of, &ids).await;
            let Some(Got { taken: Some(taken), stated: Some(stated), values }) = got else { return };
            if !known.is_current(&stated) {
                return;
            }
            let (number, standing, now) = (taken.number, Arc::new(stated), self.standings.now().wall);
            let stated = Stated { partition, number, standing };
            for (ask, value) in asks.into_iter().zip(values) {
                let beside = known.beside(&ask.lead.id, Some(Arc::clone(&stated.standing)));
                ask.cached = value.map(|value| Number::new(value, beside, now));
                ask.stated = Some(stated.clone());
            }
        };
        join_all(partitions.into_iter().map(ask_partition)).await;
    }

    /// Reads the table and finishes the leads. Returns what to write to the cache. Tokens and standings were taken
    /// before, so neither promises more than the table's answer holds.
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
            // If the table fails, an older number from the cache, with its older `as_of`, is better than none.
            self.finish(ask.lead, number.or_else(|fault| ask.cached.ok_or(fault)), timing);
        }
        fills
    }

    fn finish(&self, lead: ReadLead, read: Result<Number>, timing: Timing) {
        // The other Region queues recounts of its own counters.
        if let Ok(number) = &read
            && lead.id.name.region().is_none()
        {
            self.negatives.report(&lead.id, &number.value);
        }
        lead.finish(read, timing);
    }
}

/// Asks for the right to fill the cache with each value that it lacks. A cache that did not answer is not asked again,
/// since the request would wait for it twice.
async fn take_tokens(cache: &SharedCache, asks: &mut [Ask]) {
    join_all(asks.iter_mut().map(async |ask| {
        if let (None, Some(Stated { partition, number, .. })) = (&ask.cached, &ask.stated) {
            ask.token = cache.begin_fill(*partition, *number, &ask.lead.id).await;
        }
    }))
    .await;
}
