//! The sets of a partition whose row keys are hot, or that are spread over more shards than need be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Setup;
use super::effect::{Effect, Transaction};
use super::places::Maps;
use crate::batch::{Change, SealedBatch};
use crate::event::KeyScheme;
use crate::fence::{Commit, Refused};
use crate::heat::{Heat, Spread};
use crate::homes::CounterMap;
use crate::ids::CounterId;

/// How many sets are watched.
const MOST: usize = 10_000;

/// What is watched; it outlives a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Heats {
    watched: BTreeMap<CounterId, Heat>,
    /// When they are looked at next.
    due: Duration,
}

impl Heats {
    /// When the sets are looked at, while there are any.
    pub(super) fn due_at(&self) -> Option<Duration> {
        (!self.watched.is_empty()).then_some(self.due)
    }

    fn watch(&mut self, counter: &CounterId, now: Duration) -> Option<&mut Heat> {
        if !self.watched.contains_key(counter) {
            if self.watched.len() >= MOST {
                return None;
            }
            self.watched.insert(counter.clone(), Heat::new(now));
        }
        self.watched.get_mut(counter)
    }

    /// These maps are known: what is spread over more shards than need be is watched.
    pub(super) fn met(&mut self, maps: &[(CounterId, Option<CounterMap>)], setup: &Setup, now: Duration) {
        for (counter, map) in maps {
            if map.is_some_and(|map| map.newest() > map.least(setup.shards)) {
                self.watch(counter, now);
            }
        }
    }

    /// The events of `part` were sent to the store.
    pub(super) fn offered(&mut self, part: &SealedBatch, now: Duration) {
        for (counter, heat) in &mut self.watched {
            heat.offered(part.events_of(counter) as u64, now);
        }
    }

    /// `sent` was refused. Where every row of several counters is, the table takes no more, and it is no counter's heat.
    pub(super) fn refused(&mut self, sent: &Transaction, commit: &Commit, now: Duration) {
        let Commit::Cancelled(reasons) = commit else { return };
        let changes = sent.changes();
        let counters: BTreeSet<_> = changes.iter().map(Change::counter).collect();
        let rows = reasons.iter().skip(1).zip(&changes).filter(|(reason, _)| **reason == Refused::Throttled);
        let throttled: Vec<_> = rows.map(|(_, change)| change).collect();
        if throttled.len() == changes.len() && counters.len() > 1 {
            return;
        }
        let members = throttled.iter().filter(|change| change.user().is_some());
        for counter in members.map(|change| change.counter()).collect::<BTreeSet<_>>() {
            if let Some(heat) = self.watch(counter, now) {
                heat.throttled(now);
            }
        }
        self.offered(&sent.batch, now);
    }

    /// Asks for more shards or fewer where it is time to, once a second.
    pub(super) fn look(
        &mut self,
        maps: &Maps,
        setup: &Setup,
        partitions: u32,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        if self.watched.is_empty() || now < self.due {
            return;
        }
        self.due = now.saturating_add(Duration::from_secs(1));
        let partitions = match setup.key {
            KeyScheme::Post => 1,
            KeyScheme::PostShard => u64::from(setup.shards.get()).min(u64::from(partitions)),
        };
        self.watched.retain(|counter, heat| {
            let map = maps.of(counter);
            let (newest, least) =
                map.map_or((setup.shards, setup.shards), |map| (map.newest(), map.least(setup.shards)));
            if let Some(to) = heat.wanted(Spread { newest, least, partitions }, now) {
                effects.push(Effect::Spread { counter: counter.clone(), from: newest, to });
            }
            newest > least || !heat.is_cool(now)
        });
    }
}
