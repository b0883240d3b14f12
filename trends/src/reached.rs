//! How far the ledger as a whole is written: what every stream shard's part of it says together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tally_core::ids::StreamShardId;
use tally_core::ledger::Seconds;
use tally_core::ports::ShardState;
use tally_core::time::UnixMillis;

/// What is known of the ledger. Everything in it was read after `as_of` was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Everything written before this time is in the log or in a lapse; `None` where that is not known.
    pub as_of: Option<UnixMillis>,
    /// Since when the ledger is complete; `None` where it is not.
    pub since: Option<UnixMillis>,
    /// What is missing in it.
    pub lapses: Arc<[Seconds]>,
}

/// Finds `as_of`, reading by reading.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    /// What had ended by the reading before: it is no bound any more.
    ended: Option<BTreeSet<StreamShardId>>,
}

impl Reached {
    /// Everything written before this time is in the log or in a stored lapse, given what is stored of each stream shard. `None`
    /// where that is not known.
    ///
    /// A reading is no picture of one moment: it may have met a stream shard before it ended and was continued, and the end of
    /// another one after that. So what has ended is left out from the reading behind the one that found it, and by then the one
    /// that continues it is met. The first reading alone says nothing.
    pub fn read(&mut self, shards: &[ShardState]) -> Option<UnixMillis> {
        let known: BTreeMap<&StreamShardId, &ShardState> =
            shards.iter().map(|state| (&state.checkpoint.id, state)).collect();
        let (mut as_of, mut is_known, mut ended) = (None, true, BTreeSet::new());
        for state in shards {
            let id = &state.checkpoint.id;
            // It is closed once what continues it has numbers.
            if state.fed.end && state.checkpoint.closed {
                ended.insert(id.clone());
                if self.ended.as_ref().is_some_and(|before| before.contains(id)) {
                    continue;
                }
            }
            let parent = state.checkpoint.parent.as_ref();
            let before = parent.map(|parent| known.get(parent).and_then(|parent| parent.fed.at));
            let follows_what_is_known = state.checkpoint.closed || before.is_none_or(|before| before.is_some());
            // What continues another stream shard has nothing that was written before that ended.
            let at = state.fed.at.or(before.flatten()).filter(|_| follows_what_is_known);
            is_known &= at.is_some();
            as_of = [as_of, at].into_iter().flatten().min();
        }
        let is_first = self.ended.replace(ended).is_none();
        as_of.filter(|_| is_known && !is_first)
    }
}

#[cfg(test)]
mod tests {
    use tally_core::ids::Ordinal;
    use tally_core::ledger::Fed;
    use tally_core::lineage::Checkpoint;

    use super::*;

    fn shard(id: &str, parent: Option<&str>, at: Option<u64>, ended: bool) -> ShardState {
        let checkpoint = Checkpoint {
            id: id.into(),
            parent: parent.map(StreamShardId::from),
            ordinal: Ordinal(1),
            sequence: None,
            closed: ended,
            at: UnixMillis(9_999),
        };
        ShardState { checkpoint, fed: Fed { sequence: None, at: at.map(UnixMillis), end: ended }, lease: None }
    }

    /// What the last of these readings says.
    fn read(readings: &[&[ShardState]]) -> Option<u64> {
        let mut reached = Reached::default();
        readings.iter().map(|shards| reached.read(shards)).last().flatten().map(|at| at.0)
    }

    fn twice(shards: &[ShardState]) -> Option<u64> {
        read(&[shards, shards])
    }

    #[test]
    fn it_is_the_least_of_those_that_go_on_and_the_first_reading_says_nothing() {
        let shards =
            [shard("a", None, Some(3), true), shard("b", Some("a"), Some(9), false), shard("c", None, Some(7), false)];
        assert_eq!((read(&[&shards]), twice(&shards)), (None, Some(7)));
        assert_eq!(twice(&[]), None);
    }

    #[test]
    fn a_parent_that_is_not_fed_to_its_end_bounds_its_children() {
        let unfed = ShardState {
            fed: Fed { end: false, ..shard("a", None, Some(3), true).fed },
            ..shard("a", None, None, true)
        };
        assert_eq!(twice(&[unfed, shard("b", Some("a"), Some(9), false)]), Some(3));
        let not_closed = ShardState { fed: shard("a", None, Some(3), true).fed, ..shard("a", None, None, false) };
        assert_eq!(
            twice(&[not_closed, shard("c", None, Some(7), false)]),
            Some(3),
            "its children may have no numbers yet"
        );
    }

    #[test]
    fn what_is_numbered_and_not_fed_yet_is_known_as_far_as_its_parent_was() {
        assert_eq!(twice(&[shard("a", None, Some(3), true), shard("b", Some("a"), None, false)]), Some(3));
        assert_eq!(twice(&[shard("b", None, None, false), shard("c", None, Some(7), false)]), None);
        assert_eq!(twice(&[shard("b", Some("gone"), Some(5), false)]), None, "an ancestor without a number");
    }

    #[test]
    fn what_has_ended_bounds_the_reading_that_finds_it() {
        let (open, other) = (shard("a", None, Some(3), false), shard("c", None, Some(7), false));
        let ended = shard("a", None, Some(4), true);
        // The reading met the place of b before b was there, and the end of a.
        let torn = [ended.clone(), other.clone()];
        let whole = [ended, shard("b", Some("a"), Some(5), false), other.clone()];
        let before = [open, other];
        assert_eq!(read(&[&before, &before, &torn]), Some(4));
        assert_eq!(read(&[&before, &before, &torn, &whole]), Some(5));
    }
}
