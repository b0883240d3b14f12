//! The tree of stream shards: which may be read now, what number each gets, and where a piece of the stream is lost.
//!
//! A shard is read only when every parent is closed, which means that all its records are in the counters, not that
//! the service stopped writing to it. What the service lists and what the checkpoints say may disagree; the checkpoints
//! decide what is done, the listing what there is.

mod hold;
mod loss;
mod picture;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use hold::Hold;
pub use loss::{HOLD, Loss, OUTAGE_LIMIT, first_sight, outage};
pub use picture::Picture;

use crate::counter::ClosedAncestry;
use crate::ids::{Ordinal, Sequence, StreamShardId};
use crate::ledger::Fed;
use crate::time::UnixMillis;

/// How long a closed shard is remembered at least: a few hours longer than the service keeps a record, so that one
/// listed once more after that has nothing left that could be counted twice.
pub const MEMORY: Duration = Duration::from_secs(30 * 3600);

/// A stream shard as the service lists it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Listed {
    /// Its name.
    pub id: StreamShardId,
    /// The shard it continues.
    pub parent: Option<StreamShardId>,
    /// Whether the service has stopped writing to it.
    pub ended: bool,
}

/// A stream shard as our checkpoint has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// Its name.
    pub id: StreamShardId,
    /// The shard it continues.
    pub parent: Option<StreamShardId>,
    /// Its number.
    pub ordinal: Ordinal,
    /// Every record up to this one is in the counters.
    pub sequence: Option<Sequence>,
    /// All of its records are in the counters, or lost under a gap: it is not read again.
    pub closed: bool,
    /// Everything written to the shard before this time is in the counters.
    pub at: UnixMillis,
}

/// Everything known of one stream's shards at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lineage {
    shards: BTreeMap<StreamShardId, Known>,
    /// Every shard with a number up to this one is closed, also those whose checkpoints are gone.
    floor: Option<Ordinal>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Known {
    parent: Option<StreamShardId>,
    checkpoint: Option<Checkpoint>,
    listed: bool,
    /// Where the deployment has a ledger of changes.
    fed: Option<Fed>,
}

impl Known {
    fn is_closed(&self) -> bool {
        self.checkpoint.as_ref().is_some_and(|shard| shard.closed)
    }

    /// All of it is in the counters, and some of it may not be in the ledger of changes.
    fn is_unfed(&self) -> bool {
        self.is_closed() && self.fed.is_some_and(|fed| !fed.end)
    }
}

impl Lineage {
    /// What checkpoints and a complete listing say together; `floor` is the registry's.
    pub fn new(
        checkpoints: impl IntoIterator<Item = Checkpoint>,
        listing: impl IntoIterator<Item = Listed>,
        floor: Option<Ordinal>,
    ) -> Self {
        let mut shards: BTreeMap<StreamShardId, Known> = BTreeMap::new();
        for checkpoint in checkpoints {
            let known = shards.entry(checkpoint.id.clone()).or_default();
            known.parent.clone_from(&checkpoint.parent);
            known.checkpoint = Some(checkpoint);
        }
        for listed in listing {
            let known = shards.entry(listed.id).or_default();
            known.listed = true;
            known.parent = known.parent.take().or(listed.parent);
        }
        // The parent of a closed shard was closed before it, and may have been forgotten since.
        let unclosed = shards.values().filter(|known| !known.is_closed());
        let unknown: Vec<_> = unclosed.filter_map(|known| known.parent.clone()).collect();
        for parent in unknown {
            shards.entry(parent).or_default();
        }
        Self { shards, floor }
    }

    /// The same, with how far each shard is in the deployment's ledger of changes.
    #[must_use]
    pub fn with_fed(mut self, fed: impl IntoIterator<Item = (StreamShardId, Fed)>) -> Self {
        for (shard, fed) in fed {
            self.shards.entry(shard).or_default().fed = Some(fed);
        }
        self
    }

    /// How far `id` is in the ledger of changes; `None` where the deployment has none.
    pub fn fed(&self, id: &StreamShardId) -> Option<Fed> {
        self.shards.get(id)?.fed
    }

    /// Closed shards that are still to be read, for the ledger of changes alone; or that are listed no more.
    pub fn unfed(&self, listed: bool) -> impl Iterator<Item = &Checkpoint> {
        let unfed = self.shards.values().filter(move |known| known.is_unfed() && known.listed == listed);
        unfed.filter_map(|known| known.checkpoint.as_ref())
    }

    /// Shards without a number, ancestors before descendants: the order in which to number them.
    pub fn unnumbered(&self) -> Vec<&StreamShardId> {
        let mut ordered = Vec::new();
        let mut placed = BTreeSet::new();
        for id in self.shards.keys() {
            let mut line: Vec<_> = self.line(id).take_while(|id| placed.insert(*id)).collect();
            line.reverse();
            let unnumbered = |id: &&StreamShardId| self.shards.get(*id).is_some_and(|known| known.checkpoint.is_none());
            ordered.extend(line.into_iter().filter(unnumbered));
        }
        ordered
    }

    /// Shards to be read: numbered, still listed, not closed, and every parent closed.
    pub fn readable(&self) -> impl Iterator<Item = &Checkpoint> {
        let parent_is_closed = |known: &Known| known.parent.as_ref().is_none_or(|parent| self.is_closed(parent));
        self.shards
            .values()
            .filter(move |known| known.listed && parent_is_closed(known))
            .filter_map(|known| known.checkpoint.as_ref())
            .filter(|checkpoint| !checkpoint.closed)
    }

    /// Shards that are not closed and that the listing leaves out. One listing may do so by mistake; if the service has no
    /// such shard any more, its unread records are lost.
    pub fn left_out(&self) -> impl Iterator<Item = &StreamShardId> {
        self.shards.iter().filter(|(_, known)| !known.listed && !known.is_closed()).map(|(id, _)| id)
    }

    /// Closed shards whose checkpoints can be dropped: at or below the floor, not listed, with no child that is listed or
    /// still to be closed, and closed for so long that the service cannot list them again. A shard forgotten too early
    /// would get a second number, and be counted a second time.
    pub fn forgettable(&self, now: UnixMillis) -> impl Iterator<Item = &StreamShardId> {
        let asks_for_parent = |known: &&Known| known.listed || !known.is_closed();
        let asked_for: BTreeSet<_> =
            self.shards.values().filter(asks_for_parent).filter_map(|known| known.parent.as_ref()).collect();
        let below = move |shard: &Checkpoint| {
            shard.closed && now.since(shard.at) > MEMORY && self.floor.is_some_and(|floor| shard.ordinal <= floor)
        };
        let done =
            self.shards.iter().filter(move |(_, known)| !known.listed && known.checkpoint.as_ref().is_some_and(below));
        let done = done.filter(|(_, known)| !known.is_unfed());
        done.map(|(id, _)| id).filter(move |id| !asked_for.contains(id))
    }

    /// The registry's floor, as it was given.
    pub fn floor(&self) -> Option<Ordinal> {
        self.floor
    }

    /// `F`: the greatest number such that every shard up to it is closed.
    pub fn closed_through(&self) -> Option<Ordinal> {
        let start = self.floor.map_or(1, |floor| floor.0 + 1);
        let closed: BTreeSet<Ordinal> =
            self.checkpoints().filter(|shard| shard.closed).map(|shard| shard.ordinal).collect();
        (start..).map(Ordinal).take_while(|ordinal| closed.contains(ordinal)).last().or(self.floor)
    }

    /// The closed ancestors of `shard`, nearest first, at most `most`: they may have fed a counter before it.
    pub fn closed_ancestors(&self, shard: &StreamShardId, most: usize) -> Vec<Ordinal> {
        let closed = self.line(shard).skip(1).filter_map(|id| self.shards.get(id)?.checkpoint.as_ref());
        closed.filter(|shard| shard.closed).map(|shard| shard.ordinal).take(most).collect()
    }

    /// The least `at` over the shards that are not closed: what every counter is known to include. `None` while
    /// some shard has no checkpoint, or where there are no open shards.
    pub fn as_of(&self) -> Option<UnixMillis> {
        let open = self.shards.iter().filter(|(id, _)| !self.is_closed(id));
        let at = open.map(|(_, known)| known.checkpoint.as_ref().map(|shard| shard.at));
        at.collect::<Option<Vec<_>>>()?.into_iter().min()
    }

    /// The checkpoint of `id`, if it has one.
    pub fn checkpoint(&self, id: &StreamShardId) -> Option<&Checkpoint> {
        self.shards.get(id)?.checkpoint.as_ref()
    }

    /// Every checkpoint.
    pub fn checkpoints(&self) -> impl Iterator<Item = &Checkpoint> {
        self.shards.values().filter_map(|known| known.checkpoint.as_ref())
    }

    /// The shard that `id` continues, where known.
    pub fn parent(&self, id: &StreamShardId) -> Option<&StreamShardId> {
        self.shards.get(id)?.parent.as_ref()
    }

    /// `id` and its ancestors as far as they are known, nearest first. Ends where a faulty listing runs in a circle.
    pub fn line<'a>(&'a self, id: &'a StreamShardId) -> impl Iterator<Item = &'a StreamShardId> {
        let mut seen = BTreeSet::new();
        std::iter::successors(Some(id), |id| self.shards.get(*id)?.parent.as_ref())
            .take_while(move |id| seen.insert(*id))
    }

    fn is_closed(&self, id: &StreamShardId) -> bool {
        self.shards.get(id).is_some_and(Known::is_closed)
    }

    fn by_ordinal(&self, ordinal: Ordinal) -> Option<&Checkpoint> {
        self.checkpoints().find(|shard| shard.ordinal == ordinal)
    }
}

impl ClosedAncestry for Lineage {
    fn is_closed_ancestor(&self, shard: Ordinal, of: Ordinal) -> bool {
        let (Some(shard), Some(of)) = (self.by_ordinal(shard), self.by_ordinal(of)) else { return false };
        shard.closed && self.line(&of.id).skip(1).any(|ancestor| *ancestor == shard.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> StreamShardId {
        name.into()
    }

    fn listed(name: &str, parent: Option<&str>) -> Listed {
        Listed { id: id(name), parent: parent.map(id), ended: false }
    }

    fn numbered(name: &str, parent: Option<&str>, ordinal: u64, closed: bool) -> Checkpoint {
        let at = UnixMillis(1000 * ordinal);
        Checkpoint { id: id(name), parent: parent.map(id), ordinal: Ordinal(ordinal), sequence: None, closed, at }
    }

    fn names<'a>(ids: impl IntoIterator<Item = &'a StreamShardId>) -> Vec<&'a str> {
        ids.into_iter().map(StreamShardId::as_str).collect()
    }

    #[test]
    fn shards_are_numbered_ancestors_first_whatever_their_names() {
        let listing = [listed("a", Some("m")), listed("b", Some("a")), listed("m", Some("z")), listed("z", None)];
        assert_eq!(names(Lineage::new([], listing.clone(), None).unnumbered()), ["z", "m", "a", "b"]);
        let partly = Lineage::new([numbered("z", None, 1, false)], listing, None);
        assert_eq!(names(partly.unnumbered()), ["m", "a", "b"]);
    }

    #[test]
    fn a_parent_that_was_never_listed_is_numbered_too() {
        let lineage = Lineage::new([], [listed("child", Some("gone"))], None);
        assert_eq!(names(lineage.unnumbered()), ["gone", "child"]);
    }

    #[test]
    fn a_shard_is_readable_once_its_parent_is_closed() {
        let listing = [listed("p", None), listed("c", Some("p")), listed("q", None)];
        let readable = |p_closed, c_closed| {
            let checkpoints =
                [numbered("p", None, 1, p_closed), numbered("c", Some("p"), 2, c_closed), numbered("q", None, 3, true)];
            let lineage = Lineage::new(checkpoints, listing.clone(), None);
            lineage.readable().map(|shard| shard.id.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(readable(false, false), ["p"], "also when the listing already has children");
        assert_eq!(readable(true, false), ["c"]);
        assert!(readable(true, true).is_empty());
    }

    #[test]
    fn a_listing_leaves_out_what_is_known_and_not_closed() {
        let checkpoints = [numbered("p", None, 1, false), numbered("q", None, 2, true), numbered("r", None, 3, false)];
        let lineage = Lineage::new(checkpoints, [listed("r", None), listed("s", Some("unheard of"))], None);
        assert_eq!(names(lineage.left_out()), ["p", "unheard of"]);
    }

    #[test]
    fn a_checkpoint_is_forgotten_once_it_and_its_children_are_gone_from_the_listing_and_never_asked_for_again() {
        let checkpoints = [
            numbered("g", None, 1, true),
            numbered("p", Some("g"), 2, true),
            numbered("c", Some("p"), 3, false),
            numbered("x", None, 4, true),
        ];
        let at = |floor| Lineage::new(checkpoints.clone(), [listed("c", Some("p"))], floor);
        let (soon, late) = (UnixMillis(1000).plus(MEMORY), UnixMillis(9000).plus(MEMORY));
        assert!(names(at(None).forgettable(late)).is_empty(), "the floor was not raised yet");
        assert!(names(at(Some(Ordinal(2))).forgettable(soon)).is_empty(), "a faulty listing may still leave it out");
        assert_eq!(names(at(Some(Ordinal(2))).forgettable(late)), ["g"], "p has a child, x is above the floor");
        let without = Lineage::new(checkpoints[1..].to_vec(), [listed("c", Some("p"))], Some(Ordinal(2)));
        assert!(without.unnumbered().is_empty());
        assert_eq!(without.closed_ancestors(&id("c"), 9), [Ordinal(2)]);
        assert_eq!(names(without.readable().map(|shard| &shard.id)), ["c"]);
    }

    #[test]
    fn a_parent_is_remembered_while_a_child_that_has_vanished_is_not_closed() {
        let checkpoints = |closed| [numbered("p", None, 1, true), numbered("c", Some("p"), 2, closed)];
        let late = UnixMillis(9000).plus(MEMORY);
        let at = |closed| Lineage::new(checkpoints(closed), [], Some(Ordinal(1)));
        assert!(names(at(false).forgettable(late)).is_empty(), "its child would ask for it by name again");
        assert_eq!(names(at(true).forgettable(late)), ["p"]);
    }

    #[test]
    fn the_floor_is_the_unbroken_run_of_closed_shards() {
        let through = |closed: &[u64], floor: Option<u64>| {
            let checkpoints = (1..=4).map(|n| numbered(&n.to_string(), None, n, closed.contains(&n)));
            Lineage::new(checkpoints, [], floor.map(Ordinal)).closed_through()
        };
        assert_eq!(through(&[], None), None);
        assert_eq!(through(&[2, 3], None), None);
        assert_eq!(through(&[1, 2, 4], None), Some(Ordinal(2)));
        assert_eq!(through(&[3], Some(2)), Some(Ordinal(3)));
        assert_eq!(through(&[], Some(2)), Some(Ordinal(2)));
    }

    #[test]
    fn kin_are_closed_ancestors_at_any_distance() {
        let checkpoints = [
            numbered("a", None, 1, true),
            numbered("b", Some("a"), 2, true),
            numbered("c", Some("b"), 3, false),
            numbered("d", Some("b"), 4, true),
        ];
        let lineage = Lineage::new(checkpoints, [], None);
        assert_eq!(lineage.closed_ancestors(&id("c"), 9), [Ordinal(2), Ordinal(1)]);
        assert_eq!(lineage.closed_ancestors(&id("c"), 1), [Ordinal(2)]);
        assert!(lineage.is_closed_ancestor(Ordinal(1), Ordinal(3)));
        assert!(!lineage.is_closed_ancestor(Ordinal(4), Ordinal(3)), "a sibling");
        assert!(!lineage.is_closed_ancestor(Ordinal(3), Ordinal(3)), "itself");
    }

    #[test]
    fn counters_include_what_the_slowest_open_shard_includes() {
        let at = |checkpoints: Vec<Checkpoint>, listing: Vec<Listed>| Lineage::new(checkpoints, listing, None).as_of();
        let open = vec![numbered("a", None, 1, true), numbered("b", None, 5, false), numbered("c", None, 7, false)];
        assert_eq!(at(open.clone(), vec![]), Some(UnixMillis(5000)));
        assert_eq!(at(open, vec![listed("new", None)]), None, "the new shard is not read yet");
    }

    #[test]
    fn a_listing_that_runs_in_a_circle_ends() {
        let lineage = Lineage::new([], [listed("a", Some("b")), listed("b", Some("a"))], None);
        assert_eq!(lineage.unnumbered().len(), 2);
        assert_eq!(lineage.readable().count(), 0);
    }
}
