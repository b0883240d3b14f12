//! What a look gives reason to do about the stream shards, by any worker: number, give up, close, forget.

use std::collections::BTreeSet;

use super::{Answer, Behind, Effect, Event, Request, Search, Shards};
use crate::ids::StreamShardId;
use crate::lineage::{Listed, Loss, first_sight};
use crate::ports::StreamInfo;
use crate::time::{Now, UnixMillis};

impl Shards {
    /// Decides what to do about what was seen. What changes the checkpoints is looked at again before leases are shared.
    pub(super) fn set_right(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if !self.may_follow(now, effects) {
            return;
        }
        self.number();
        self.close_ends();
        self.close_lost();
        let changes = !self.todo.is_empty();
        if self.look.listed {
            self.probe_left_out();
            self.end_unfed();
        }
        // A shard that is gone or overlooked holds others up: list again soon.
        self.listing.wanted |= self.picture.lineage.left_out().next().is_some();
        if !changes {
            self.tidy(now);
            self.share(effects);
        }
    }

    /// Whether the stream's shards may get numbers, without which nothing of them is applied. A stream first seen that may
    /// lack records is held for that.
    fn may_follow(&mut self, now: Now, effects: &mut Vec<Effect>) -> bool {
        if self.look.registry.is_some() {
            self.losses.forget(&Behind::Stream);
            return true;
        }
        if let Some(over) = self.losses.may_pass(&Behind::Stream) {
            return over;
        }
        let StreamInfo { label, created, table_created } = &self.info;
        let loss = first_sight(label, *created, *table_created, now.wall);
        let complete = loss.is_none();
        loss.into_iter().for_each(|loss| self.meet(Behind::Stream, loss, effects));
        complete
    }

    /// Numbers the shards that have no number, ancestors first.
    fn number(&mut self) {
        let lineage = &self.picture.lineage;
        for shard in lineage.unnumbered() {
            let parent = lineage.parent(shard);
            // A child's first record is younger than everything that its parent's checkpoint covers, so what holds for the
            // nearest ancestor with a number holds for it, too.
            let at = self.applied_before(shard);
            self.todo.push_back(Request::Number { shard: shard.clone(), parent: parent.cloned(), at });
        }
    }

    /// The time before which everything written to `shard` is known to be applied.
    fn applied_before(&self, shard: &StreamShardId) -> UnixMillis {
        let lineage = &self.picture.lineage;
        let nearest = lineage.line(shard).find_map(|shard| lineage.checkpoint(shard));
        nearest.map_or(self.info.created, |known| known.at)
    }

    /// Closes shards that are applied to their end. Their children have numbers by then, so that at no moment records that
    /// are not read yet stand behind no open shard.
    fn close_ends(&mut self) {
        let lineage = &self.picture.lineage;
        self.ends.retain(|shard, _| lineage.checkpoint(shard).is_some_and(|known| !known.closed));
        let unnumbered = lineage.unnumbered();
        let is_waited_for = |shard| unnumbered.iter().any(|child| lineage.parent(child) == Some(shard));
        let found = self.ends.iter().filter(|(shard, end)| end.children == Search::Over && !is_waited_for(shard));
        let close = found.map(|(shard, end)| Request::Close { shard: shard.clone(), at: end.at });
        self.todo.extend(close);
    }

    /// Closes shards that are gone, each once the hold behind its loss is over.
    fn close_lost(&mut self) {
        let lineage = &self.picture.lineage;
        self.losses.keep_shards(|shard| lineage.left_out().any(|left_out| left_out == shard));
        for shard in lineage.left_out() {
            let is_numbered = lineage.checkpoint(shard).is_some();
            if is_numbered && self.losses.may_pass(&Behind::Shard(shard.clone())) == Some(true) {
                self.todo.push_back(Request::Close { shard: shard.clone(), at: self.applied_before(shard) });
            }
        }
    }

    /// Asks by name for shards that two listings in a row leave out, and for overlooked ones with every listing: closing a
    /// living shard would lose all it is yet to get, and one overlooked yesterday may be gone today.
    fn probe_left_out(&mut self) {
        let lineage = &self.picture.lineage;
        let left_out = lineage.left_out().cloned().collect();
        let before = std::mem::replace(&mut self.listing.left_out, left_out);
        let overlooked = self.listing.overlooked.keys();
        let overlooked = overlooked.filter(|shard| lineage.checkpoint(shard).is_none_or(|known| !known.closed));
        let missing = self.listing.left_out.intersection(&before).chain(overlooked);
        let is_met = |shard: &&StreamShardId| self.losses.may_pass(&Behind::Shard((*shard).clone())).is_none();
        self.todo.extend(missing.filter(is_met).cloned().map(Request::Probe));
    }

    /// Gives up, for the ledger of changes, what two listings in a row leave out: what is not fed of it is missing there.
    fn end_unfed(&mut self) {
        let unfed: BTreeSet<_> = self.picture.lineage.unfed(false).map(|shard| shard.id.clone()).collect();
        let before = std::mem::replace(&mut self.unfed, unfed);
        let gone = self.unfed.intersection(&before).filter(|shard| !self.reading.contains_key(*shard));
        self.todo.extend(gone.filter_map(|shard| {
            let ordinal = self.picture.lineage.checkpoint(shard)?.ordinal;
            let from = self.picture.lineage.fed(shard).and_then(|fed| fed.at).unwrap_or_default();
            Some(Request::EndFed { shard: shard.clone(), ordinal, from })
        }));
    }

    /// Raises the floor, and drops checkpoints that nothing asks for any more.
    fn tidy(&mut self, now: Now) {
        let lineage = &self.picture.lineage;
        let raised = self.picture.closed_through.filter(|through| Some(*through) > lineage.floor());
        self.todo.extend(raised.map(Request::RaiseFloor));
        self.todo.extend(lineage.forgettable(now.wall).cloned().map(Request::Forget));
    }

    /// What follows from the answer to something done.
    pub(super) fn done(&mut self, request: Request, answer: Answer, effects: &mut Vec<Effect>) {
        match (request, answer) {
            (Request::Number { .. }, Answer::Done) => self.look.changed = true,
            (Request::Close { shard, .. }, _) => {
                self.look.changed = true;
                self.ends.remove(&shard);
                self.listing.overlooked.remove(&shard);
                self.losses.forget(&Behind::Shard(shard));
            }
            (Request::Probe(shard), Answer::Readable(true)) => {
                let parent = self.picture.lineage.parent(&shard).cloned();
                let listed = Listed { id: shard.clone(), parent, ended: false };
                if self.listing.overlooked.insert(shard.clone(), listed).is_none() {
                    self.look.changed = true;
                    effects.push(Effect::Tell(Event::Overlooked(shard)));
                }
            }
            (Request::Probe(shard), Answer::Readable(false)) => {
                self.listing.overlooked.remove(&shard);
                self.meet(Behind::Shard(shard.clone()), Loss::Vanished(shard), effects);
            }
            (Request::Lease { shard, .. }, answer) => self.leased(shard, &answer, effects),
            _ => {}
        }
    }
}
