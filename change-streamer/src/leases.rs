//! Who reads which stream shard: shares the work, and guards nothing. Two workers on one shard do the work twice and
//! count it once, so nothing here has to be right for the counts to be.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::FixedState;
use tally_core::ids::StreamShardId;
use tally_core::ports::{Lease, Worker};

/// When each lease was last seen to move, by this process's own monotonic time: clocks are not compared.
#[derive(Debug, Default)]
pub(crate) struct Beats(BTreeMap<StreamShardId, (Lease, Duration)>);

impl Beats {
    /// Takes note of the leases as they stand now.
    pub(crate) fn observe<'a>(
        &mut self,
        leases: impl IntoIterator<Item = (&'a StreamShardId, &'a Lease)>,
        now: Duration,
    ) {
        let seen = leases.into_iter().map(|(id, lease)| {
            let since = self.0.get(id).filter(|(before, _)| before == lease).map_or(now, |(_, since)| *since);
            (id.clone(), (lease.clone(), since))
        });
        self.0 = seen.collect();
    }

    /// Whether the lease of `id` has stood still for `limit`.
    pub(crate) fn is_stale(&self, id: &StreamShardId, now: Duration, limit: Duration) -> bool {
        self.0.get(id).is_some_and(|(_, since)| now.saturating_sub(*since) >= limit)
    }

    /// How long until a lease that is not stale yet would be, if it stands still. One that no worker wants counts as well, once.
    pub(crate) fn until_stale(&self, now: Duration, limit: Duration) -> Option<Duration> {
        let left = self.0.values().filter_map(|(_, since)| (*since + limit).checked_sub(now));
        left.filter(|left| !left.is_zero()).min()
    }
}

/// A stream shard to be read, and who says to do it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer<'a> {
    pub(crate) id: &'a StreamShardId,
    pub(crate) lease: Option<&'a Lease>,
    /// The lease has stood still: its holder is gone.
    pub(crate) is_stale: bool,
}

impl Offer<'_> {
    fn holder(&self) -> Option<&Worker> {
        self.lease.filter(|_| !self.is_stale).map(|lease| &lease.holder)
    }
}

/// What to do about the leases now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Ours: to be renewed.
    pub(crate) renew: Vec<StreamShardId>,
    /// Without a holder.
    pub(crate) take: Vec<StreamShardId>,
    /// Held by a worker that has more than this one.
    pub(crate) steal: Vec<StreamShardId>,
}

/// Decides for `me`: all shares are equal, shards without a holder are taken by workers below their share, and only then does a
/// worker with less take from the one with most; half of what it lacks at a time, for others may do the same.
pub(crate) fn plan(me: &Worker, offers: &[Offer<'_>]) -> Plan {
    let is_mine = |offer: &&Offer<'_>| offer.lease.is_some_and(|lease| lease.holder == *me);
    let renew: Vec<_> = offers.iter().filter(is_mine).map(|offer| offer.id.clone()).collect();
    let mut loads: BTreeMap<&Worker, usize> = BTreeMap::from([(me, 0)]);
    offers.iter().filter(|offer| !is_mine(offer)).filter_map(Offer::holder).for_each(|holder| {
        *loads.entry(holder).or_default() += 1;
    });
    let share = offers.len().div_ceil(loads.len());

    // Each worker goes through the others' shards in an order of its own, so that not all want the same one.
    let mut others: Vec<_> = offers.iter().filter(|offer| !is_mine(offer)).collect();
    others.sort_by_key(|offer| FixedState::default().hash_one((&me.0, offer.id.as_str())));
    let free = others.iter().filter(|offer| offer.holder().is_none());
    let take: Vec<_> = free.take(share.saturating_sub(renew.len())).map(|offer| offer.id.clone()).collect();

    let mut mine = renew.len() + take.len();
    let most_steals = share.saturating_sub(mine).div_ceil(2);
    let mut steal = Vec::new();
    while steal.len() < most_steals {
        let Some((richest, load)) = loads.iter().max_by_key(|(_, load)| **load).map(|(who, load)| (*who, *load)) else {
            break;
        };
        let prey = others.iter().find(|offer| offer.holder() == Some(richest) && !steal.contains(offer.id));
        let Some(prey) = prey.filter(|_| load >= mine + 2) else { break };
        steal.push(prey.id.clone());
        loads.insert(richest, load - 1);
        mine += 1;
    }
    Plan { renew, take, steal }
}

#[cfg(test)]
mod tests;
