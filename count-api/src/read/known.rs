//! A *standing* says of one partition of the log `changes` up to when all its changes are counted, and which losses are
//! open. This file has the result of one read of all standings, in this AWS Region and in others: `standings.rs` builds
//! it, and readers take it before they read a counter.

use std::collections::BTreeMap;
use std::sync::Arc;

use tally_adapters::dynamodb::Topics;
use tally_adapters::dynamodb::changes::Config;
use tally_adapters::dynamodb::regions::NamedRegions;
use tally_core::cached::StandingAt;
use tally_core::changes::DeploymentId;
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, Region};
use tally_core::served;
use tally_core::time::{Now, UnixMillis};

use super::entries::Entries;
use super::number::Beside;

/// The result of one read of the standings.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// When the read began.
    pub began: Now,
    /// The deployment that the log belongs to.
    pub(super) deployment: Option<DeploymentId>,
    /// The generation of the log's topic, and the last generation that a fold has gone on in. They differ if the same
    /// topic lost its end.
    generations: (u16, u16),
    partitions: Partitions,
    /// Up to when consumers have turned all acknowledged events into rows.
    pub(super) topics: Arc<Topics>,
    /// The name of this Region.
    name: Option<Region>,
    /// The standings of other Regions' entries, in the order of their names.
    pub(super) remotes: Vec<(Region, Partitions)>,
}

/// The standing of each partition; `None` where none is known.
type Partitions = Vec<Option<Arc<StandingAt>>>;

impl Known {
    /// What is known before the first read.
    pub(super) fn nothing(topics: Topics) -> Self {
        Self { topics: Arc::new(topics), ..Self::default() }
    }

    /// Builds it from the standings that were `read`, and drops those outside the generations from that of `log` to
    /// `newest`.
    pub(super) fn new(
        began: Now,
        log: &Config,
        newest: u16,
        mut read: BTreeMap<u32, StandingAt>,
        topics: Topics,
    ) -> Self {
        let generations = (log.generation, newest);
        let deployment = Some(log.deployment.clone());
        let mut known = Self { began, deployment, generations, ..Self::nothing(topics) };
        let mut current = |partition| read.remove(&partition).filter(|stated| known.is_current(stated)).map(Arc::new);
        let partitions = (0..log.partitions).map(&mut current).collect();
        known.partitions = partitions;
        known
    }

    /// Adds the standings of other Regions that were `read`. They may be of any generation, since each Region has a log
    /// of its own.
    pub(super) fn with(mut self, named: NamedRegions, mut read: BTreeMap<(Region, u32), StandingAt>) -> Self {
        self.name = named.own;
        for region in named.remotes {
            let partitions = (0..).take(self.partitions.len());
            let of = partitions.map(|partition| read.remove(&(region.clone(), partition)).map(Arc::new)).collect();
            self.remotes.push((region, of));
        }
        self
    }

    /// Returns the name of this Region; `None` before it has one.
    pub fn name(&self) -> Option<&Region> {
        self.name.as_ref()
    }

    /// Returns the ids of a counter's entries in other Regions.
    pub(super) fn others(&self, id: &CounterId) -> impl Iterator<Item = CounterId> {
        self.remotes.iter().map(|(region, _)| id.in_region(region))
    }

    /// Calls `of` for each entry of a counter, and returns the results.
    pub(super) fn entries<T>(&self, id: &CounterId, mut of: impl FnMut(&CounterId) -> T) -> Entries<T> {
        let own = of(id);
        let others = self.others(id).map(|id| {
            let of = of(&id);
            (id, of)
        });
        Entries { own, others: others.collect() }
    }

    /// A log of one partition that a test sends.
    #[cfg(test)]
    pub fn of_one(stated: StandingAt) -> Self {
        Self { partitions: vec![Some(Arc::new(stated))], topics: Arc::new(Topics::of_one()), ..Self::default() }
    }

    /// Returns whether a standing is of the log that is known. In another log a counter may be in another partition.
    pub fn is_current(&self, stated: &StandingAt) -> bool {
        let (first, newest) = self.generations;
        (first..=newest).contains(&stated.at.generation())
    }

    /// Returns the partition that a counter is in; `None` before the log has begun.
    pub fn partition(&self, id: &CounterId) -> Option<u32> {
        let partitions = u32::try_from(self.partitions.len()).ok().filter(|partitions| *partitions > 0)?;
        Some(partition_of(id.post.as_bytes(), partitions))
    }

    /// Returns the standing of a counter's partition. For an entry of another Region that is the standing there.
    pub fn of(&self, id: &CounterId) -> Option<&Arc<StandingAt>> {
        let partitions = match id.name.region() {
            None => &self.partitions,
            Some(region) => &self.remotes.iter().find(|(name, _)| name.as_str() == region)?.1,
        };
        partitions.get(usize::try_from(self.partition(id)?).ok()?)?.as_ref()
    }

    /// Returns what a counter is read beside, if `standing` was taken before. A standing of another Region already
    /// covers what Kafka had acknowledged there.
    pub fn beside(&self, id: &CounterId, standing: Option<Arc<StandingAt>>) -> Beside {
        if id.name.region().is_some() {
            let as_of = standing.as_ref().and_then(|stated| stated.standing.as_of);
            return Beside { standing, as_of };
        }
        let stated = standing.as_ref().zip(self.topics.of(id));
        let as_of = stated.and_then(|(stated, partitions)| served::as_of(&stated.standing, partitions));
        Beside { standing, as_of }
    }

    /// Returns the earliest `as_of` of all partitions; `None` if one is not known.
    pub(super) fn as_of(&self) -> Option<UnixMillis> {
        let as_of = |stated: &Option<Arc<StandingAt>>| served::as_of(&stated.as_ref()?.standing, self.topics.all());
        let as_ofs: Option<Vec<_>> = self.partitions.iter().map(as_of).collect();
        as_ofs?.into_iter().min()
    }

    /// Returns the earliest `as_of` of each other Region; `None` for one in which a partition's is not known.
    pub(super) fn remote_as_ofs(&self) -> impl Iterator<Item = (&str, Option<UnixMillis>)> {
        let as_of = |stated: &Option<Arc<StandingAt>>| stated.as_ref()?.standing.as_of;
        self.remotes.iter().map(move |(name, partitions)| (name.as_str(), partitions.iter().map(as_of).min().flatten()))
    }

    pub(super) fn is_lossless(&self, id: &CounterId) -> bool {
        self.of(id).is_some_and(|stated| stated.standing.open.is_empty())
    }

    /// Returns how many different losses are open.
    pub(super) fn losses(&self) -> usize {
        let mut open: Vec<_> = self.partitions.iter().flatten().flat_map(|stated| &stated.standing.open).collect();
        open.sort_unstable();
        open.dedup();
        open.len()
    }
}
