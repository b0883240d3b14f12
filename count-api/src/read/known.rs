//! What is known of counters at one time: the standings of their partitions, in this Region and in others.

use std::collections::BTreeMap;
use std::sync::Arc;

use tally_adapters::dynamodb::Topics;
use tally_adapters::dynamodb::changes::Config;
use tally_adapters::dynamodb::regions::NamedRegions;
use tally_core::cached::StandingAt;
use tally_core::event::partition_of;
use tally_core::ids::{CounterId, Region};
use tally_core::served;
use tally_core::time::{Now, UnixMillis};

use super::entries::Entries;
use super::number::Beside;

/// What one read found.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// When the read began.
    pub began: Now,
    /// The generation of the topic whose partitions these are, and the last one that a fold is known to have gone on in, where
    /// the same topic lost its end.
    generations: (u16, u16),
    partitions: Partitions,
    /// By when everything acknowledged was a row.
    pub(super) topics: Arc<Topics>,
    /// What this Region is called.
    name: Option<Region>,
    /// The standings of other Regions' entries, in the order of their names.
    pub(super) remotes: Vec<(Region, Partitions)>,
}

/// The standing of each partition that one is known of.
type Partitions = Vec<Option<Arc<StandingAt>>>;

impl Known {
    /// Nothing yet.
    pub(super) fn nothing(topics: Topics) -> Self {
        Self { topics: Arc::new(topics), ..Self::default() }
    }

    /// The standings that were `read` of the log that `log` describes, up to the generation `newest`.
    pub(super) fn new(
        began: Now,
        log: &Config,
        newest: u16,
        mut read: BTreeMap<u32, StandingAt>,
        topics: Topics,
    ) -> Self {
        let generations = (log.generation, newest);
        let mut known = Self { began, generations, ..Self::nothing(topics) };
        let mut current = |partition| read.remove(&partition).filter(|stated| known.is_current(stated)).map(Arc::new);
        let partitions = (0..log.partitions).map(&mut current).collect();
        known.partitions = partitions;
        known
    }

    /// The same with what was `read` of other Regions. Whatever the generation of their logs is, it is the one of their entries.
    pub(super) fn with(mut self, named: NamedRegions, mut read: BTreeMap<(Region, u32), StandingAt>) -> Self {
        self.name = named.own;
        for region in named.remotes {
            let partitions = (0..).take(self.partitions.len());
            let of = partitions.map(|partition| read.remove(&(region.clone(), partition)).map(Arc::new)).collect();
            self.remotes.push((region, of));
        }
        self
    }

    /// What this Region is called; `None` before it has a name.
    pub fn name(&self) -> Option<&Region> {
        self.name.as_ref()
    }

    /// The ids of a counter's entries in other Regions.
    pub(super) fn others(&self, id: &CounterId) -> impl Iterator<Item = CounterId> {
        self.remotes.iter().map(|(region, _)| id.in_region(region))
    }

    /// What `of` makes of each entry of a counter.
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

    /// Whether a standing is of the topic that is known. In another one a counter may be in another partition.
    pub fn is_current(&self, stated: &StandingAt) -> bool {
        let (first, newest) = self.generations;
        (first..=newest).contains(&stated.at.generation())
    }

    /// The partition that everything about a counter is in; `None` before the log has begun.
    pub fn partition(&self, id: &CounterId) -> Option<u32> {
        let partitions = u32::try_from(self.partitions.len()).ok().filter(|partitions| *partitions > 0)?;
        Some(partition_of(id.post.as_bytes(), partitions))
    }

    /// The standing of a counter's partition; of that Region where it is another one's entry.
    pub fn of(&self, id: &CounterId) -> Option<&Arc<StandingAt>> {
        let partitions = match id.name.region() {
            None => &self.partitions,
            Some(region) => &self.remotes.iter().find(|(name, _)| name.as_str() == region)?.1,
        };
        partitions.get(usize::try_from(self.partition(id)?).ok()?)?.as_ref()
    }

    /// What a counter is read beside that is read after this standing of its partition was taken. The standing of another Region
    /// already is of what was acknowledged there.
    pub fn beside(&self, id: &CounterId, standing: Option<Arc<StandingAt>>) -> Beside {
        if id.name.region().is_some() {
            let as_of = standing.as_ref().and_then(|stated| stated.standing.as_of);
            return Beside { standing, as_of };
        }
        let stated = standing.as_ref().zip(self.topics.of(id));
        let as_of = stated.and_then(|(stated, partitions)| served::as_of(&stated.standing, partitions));
        Beside { standing, as_of }
    }

    /// The least `as_of` that any counter may have.
    pub(super) fn as_of(&self) -> Option<UnixMillis> {
        let as_of = |stated: &Option<Arc<StandingAt>>| served::as_of(&stated.as_ref()?.standing, self.topics.all());
        let as_ofs: Option<Vec<_>> = self.partitions.iter().map(as_of).collect();
        as_ofs?.into_iter().min()
    }

    /// The least `as_of` of each other Region; `None` where one is not known.
    pub(super) fn remote_as_ofs(&self) -> impl Iterator<Item = (&str, Option<UnixMillis>)> {
        let as_of = |stated: &Option<Arc<StandingAt>>| stated.as_ref()?.standing.as_of;
        self.remotes.iter().map(move |(name, partitions)| (name.as_str(), partitions.iter().map(as_of).min().flatten()))
    }

    pub(super) fn is_lossless(&self, id: &CounterId) -> bool {
        self.of(id).is_some_and(|stated| stated.standing.open.is_empty())
    }

    /// How many losses are open in some partition.
    pub(super) fn losses(&self) -> usize {
        let mut open: Vec<_> = self.partitions.iter().flatten().flat_map(|stated| &stated.standing.open).collect();
        open.sort_unstable();
        open.dedup();
        open.len()
    }
}
