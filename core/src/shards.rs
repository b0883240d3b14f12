//! Decides which relay copies which stream shard. The leases only share the work: two relays of one stream shard send
//! everything twice and every reader accepts it once, so the counts do not depend on this.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::ids::StreamShardId;

/// A worker's name, drawn at its start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Worker(pub String);

/// A worker's hold on a stream shard, which saves double work and is trusted for nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The worker that holds it.
    pub holder: Worker,
    /// Changes with every renewal. A lease whose beat does not change is stale.
    pub beat: u64,
}

/// What a worker does with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It renews its own.
    Renewed,
    /// It takes one that no living worker holds.
    Taken,
    /// It takes one from a worker that holds more.
    Stolen,
}

impl Change {
    /// Returns the change as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Renewed => "renewed",
            Self::Taken => "taken",
            Self::Stolen => "stolen",
        }
    }
}

/// A stream shard to relay, with its lease.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'a> {
    pub shard: &'a StreamShardId,
    pub lease: Option<&'a Lease>,
    /// The lease has not changed for too long: its holder is gone.
    pub is_stale: bool,
}

impl Offer<'_> {
    fn holder(&self) -> Option<&Worker> {
        self.lease.filter(|_| !self.is_stale).map(|lease| &lease.holder)
    }
}

/// What a worker does with leases in one round.
pub type Plan = Vec<(StreamShardId, Change)>;

/// Decides for `me`. All workers have equal shares. A worker below its share takes free shards; if there are too few,
/// it steals from the worker with most, half of what it lacks at a time, since others may do the same.
pub fn plan(me: &Worker, offers: &[Offer<'_>]) -> Plan {
    let is_mine = |offer: &&Offer<'_>| offer.lease.is_some_and(|lease| lease.holder == *me);
    let mut plan: Plan = offers.iter().filter(is_mine).map(|offer| (offer.shard.clone(), Change::Renewed)).collect();
    let mut loads: BTreeMap<&Worker, usize> = BTreeMap::from([(me, 0)]);
    offers.iter().filter(|offer| !is_mine(offer)).filter_map(Offer::holder).for_each(|holder| {
        *loads.entry(holder).or_default() += 1;
    });
    let share = offers.len().div_ceil(loads.len());

    // Each worker goes through the others' shards in its own order, so that not all want the same one.
    let mut others: Vec<_> = offers.iter().filter(|offer| !is_mine(offer)).collect();
    others.sort_by_key(|offer| FixedState::default().hash_one((&me.0, offer.shard.as_str())));
    let free = others.iter().filter(|offer| offer.holder().is_none());
    let taken: Vec<_> = free.take(share.saturating_sub(plan.len())).map(|offer| offer.shard.clone()).collect();
    plan.extend(taken.into_iter().map(|shard| (shard, Change::Taken)));

    for _ in 0..share.saturating_sub(plan.len()).div_ceil(2) {
        let Some((richest, load)) = loads.iter().max_by_key(|(_, load)| **load).map(|(who, load)| (*who, *load)) else {
            break;
        };
        let is_planned = |shard| plan.iter().any(|(planned, _)| planned == shard);
        let prey = others.iter().find(|offer| offer.holder() == Some(richest) && !is_planned(offer.shard));
        let Some(prey) = prey.filter(|_| load >= plan.len() + 2) else { break };
        plan.push((prey.shard.clone(), Change::Stolen));
        loads.insert(richest, load - 1);
    }
    plan
}

#[cfg(test)]
mod tests;
