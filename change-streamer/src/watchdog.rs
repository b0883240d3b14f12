//! That no stream shard is forgotten: every known one is closed, read by a worker, waiting for its parent, or reported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tally_core::ids::StreamShardId;
use tally_core::lineage::Lineage;

/// What becomes of a known stream shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// All of it is in the counters.
    Closed,
    /// Read by this process.
    Here,
    /// Read by another.
    Elsewhere,
    /// Not to be read yet: a parent is not closed, or it is listed no more.
    Waiting,
    /// To be read, and read by no worker; or gone when a worker tries to read it.
    Orphaned,
}

impl State {
    const ALL: [Self; 5] = [Self::Closed, Self::Here, Self::Elsewhere, Self::Waiting, Self::Orphaned];

    fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Here => "here",
            Self::Elsewhere => "elsewhere",
            Self::Waiting => "waiting",
            Self::Orphaned => "orphaned",
        }
    }
}

/// Every known stream shard's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census(BTreeMap<StreamShardId, State>);

impl Census {
    /// Counts `lineage`, of which `here` are read by this process and `elsewhere` by others.
    pub(crate) fn of(
        lineage: &Lineage,
        here: impl Fn(&StreamShardId) -> bool,
        elsewhere: impl Fn(&StreamShardId) -> bool,
    ) -> Self {
        let readable: BTreeSet<_> = lineage.readable().map(|shard| &shard.id).collect();
        let numbered = lineage.checkpoints().map(|shard| {
            let state = match &shard.id {
                _ if shard.closed => State::Closed,
                id if here(id) => State::Here,
                id if elsewhere(id) => State::Elsewhere,
                id if readable.contains(id) => State::Orphaned,
                _ => State::Waiting,
            };
            (shard.id.clone(), state)
        });
        let unnumbered = lineage.unnumbered().into_iter().map(|id| (id.clone(), State::Waiting));
        Self(numbered.chain(unnumbered).collect())
    }

    /// How many shards are in each state, as a metric label.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, usize)> {
        State::ALL.into_iter().map(|state| (state.label(), self.0.values().filter(|other| **other == state).count()))
    }

    /// Whether anything is there to be read, now or later.
    pub(crate) fn has_open(&self) -> bool {
        self.0.values().any(|state| *state != State::Closed)
    }

    fn orphans(&self) -> impl Iterator<Item = &StreamShardId> {
        self.0.iter().filter(|(_, state)| **state == State::Orphaned).map(|(id, _)| id)
    }
}

/// Remembers since when a shard has had no reader.
#[derive(Debug)]
pub(crate) struct Watchdog {
    patience: Duration,
    since: BTreeMap<StreamShardId, Duration>,
}

impl Watchdog {
    /// Reports shards that have had no reader for longer than `patience`.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, since: BTreeMap::new() }
    }

    /// The shards that have had no reader for too long.
    pub(crate) fn forgotten(&mut self, census: &Census, now: Duration) -> Vec<StreamShardId> {
        self.since = census.orphans().map(|id| (id.clone(), self.since.get(id).copied().unwrap_or(now))).collect();
        let forgotten = self.since.iter().filter(|(_, since)| now.saturating_sub(**since) > self.patience);
        forgotten.map(|(id, _)| id.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::Ordinal;
    use tally_core::lineage::{Checkpoint, Listed};
    use tally_core::time::UnixMillis;

    use super::*;

    fn lineage() -> Lineage {
        let shard = |name: &str, parent: Option<&str>, ordinal, closed| Checkpoint {
            id: name.into(),
            parent: parent.map(StreamShardId::from),
            ordinal: Ordinal(ordinal),
            sequence: None,
            closed,
            at: UnixMillis(0),
        };
        let shards = [
            shard("a", None, 1, true),
            shard("b", Some("a"), 2, false),
            shard("c", Some("b"), 3, false),
            shard("d", None, 4, false),
            shard("e", None, 5, false),
        ];
        let listing = ["a", "b", "c", "d", "e", "new"].map(|id| {
            let parent = shards.iter().find(|shard| shard.id.as_str() == id).and_then(|shard| shard.parent.clone());
            Listed { id: id.into(), parent, ended: false }
        });
        Lineage::new(shards, listing, None)
    }

    #[test]
    fn every_known_shard_is_closed_read_waiting_or_reported() {
        let census = Census::of(&lineage(), |id| id.as_str() == "b", |id| id.as_str() == "d");
        let counts: BTreeMap<_, _> = census.counts().collect();
        assert_eq!(counts, [("closed", 1), ("here", 1), ("elsewhere", 1), ("waiting", 2), ("orphaned", 1)].into());
        assert_eq!(census.orphans().map(StreamShardId::as_str).collect::<Vec<_>>(), ["e"]);
    }

    #[test]
    fn a_shard_is_reported_once_it_was_nobodys_for_too_long_in_one_go() {
        let mut watchdog = Watchdog::new(Duration::from_secs(10));
        let orphaned = Census::of(&lineage(), |id| id.as_str() == "b", |id| id.as_str() == "d");
        let read = Census::of(&lineage(), |_| true, |_| false);
        let at = Duration::from_secs;
        assert!(watchdog.forgotten(&orphaned, at(0)).is_empty());
        assert!(watchdog.forgotten(&read, at(8)).is_empty());
        assert!(watchdog.forgotten(&orphaned, at(11)).is_empty(), "it was read in between");
        assert_eq!(watchdog.forgotten(&orphaned, at(22)), ["e".into()]);
    }
}
