//! What the service lists, and when it may be asked: seldom enough for all readers of the stream together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Effect, Event, Request, Search, Shards, Wait};
use crate::ids::StreamShardId;
use crate::lineage::Listed;
use crate::ports::StreamInfo;

/// The shortest time between two descriptions by one process: the service allows ten a second to all readers together.
const SPACING: Duration = Duration::from_millis(500);

/// The wait between two searches for a shard's children.
const CHILDREN_AGAIN: Duration = Duration::from_secs(1);

/// How long children are looked for: a stream that was switched off has none, and a listing may lag behind.
pub(super) const CHILDREN_PATIENCE: Duration = Duration::from_secs(10);

/// The shards as last listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Listing {
    pub(super) shards: Vec<Listed>,
    /// Shards that listings leave out although they can be read.
    pub(super) overlooked: BTreeMap<StreamShardId, Listed>,
    /// Shards that the listing left out and that were not closed.
    pub(super) left_out: BTreeSet<StreamShardId>,
    /// There is a listing of this stream.
    pub(super) is_complete: bool,
    /// Its time is over.
    pub(super) is_old: bool,
    /// There is reason for another one.
    pub(super) wanted: bool,
    /// The service was asked a moment ago.
    pub(super) asked_lately: bool,
    /// The engine cannot list the children of one shard.
    pub(super) only_whole: bool,
    /// Why the table's stream cannot be listed, where waiting may not help.
    pub(super) refused: Option<String>,
}

impl Listing {
    /// Every shard that is listed or can be read all the same.
    pub(super) fn all(&self) -> impl Iterator<Item = Listed> {
        self.shards.iter().chain(self.overlooked.values()).cloned()
    }

    fn has_children_of(&self, parent: &StreamShardId) -> bool {
        self.shards.iter().any(|shard| shard.parent.as_ref() == Some(parent))
    }
}

impl Shards {
    /// What to ask the service at the beginning of a look, if anything: the children of one shard if that is all there is
    /// to know, all shards otherwise.
    pub(super) fn what_to_list(&mut self, effects: &mut Vec<Effect>) -> Option<Request> {
        let listing = &mut self.listing;
        let whole = !listing.is_complete || listing.is_old || listing.wanted;
        let mut searched = self.ends.iter_mut().filter(|(_, end)| end.children == Search::Due).peekable();
        if listing.asked_lately || !whole && searched.peek().is_none() {
            return None;
        }
        listing.asked_lately = true;
        effects.push(Effect::Wait(Wait::Spacing, SPACING));
        let mut parents = Vec::new();
        for (parent, end) in searched {
            end.children = Search::Asked;
            parents.push(parent.clone());
        }
        match <[_; 1]>::try_from(parents) {
            Ok([parent]) if !whole && !listing.only_whole => Some(Request::Children(parent)),
            _ => {
                (listing.is_old, listing.wanted) = (false, false);
                effects.push(Effect::Wait(Wait::Listing, self.rules.listing));
                Some(Request::List)
            }
        }
    }

    /// A listing of the whole stream: the table's own, whichever it has now.
    pub(super) fn listed(&mut self, info: StreamInfo, shards: Vec<Listed>, effects: &mut Vec<Effect>) {
        if info.label != self.info.label {
            effects.push(Effect::Tell(Event::NewStream(info.label.clone())));
            let Listing { asked_lately, only_whole, .. } = self.listing;
            self.listing = Listing { asked_lately, only_whole, ..Listing::default() };
            self.losses.forget_stream();
            self.ends.clear();
            self.gone.clear();
        }
        self.info = info;
        for shard in &shards {
            self.listing.overlooked.remove(&shard.id);
        }
        self.listing.shards = shards;
        self.listing.refused = None;
        self.listing.is_complete = true;
        self.search_ended(effects);
    }

    /// The children of one shard; `None` where only all shards can be listed.
    pub(super) fn children_listed(&mut self, children: Option<Vec<Listed>>, effects: &mut Vec<Effect>) {
        match children {
            None => {
                self.listing.only_whole = true;
                self.search_failed();
            }
            Some(children) => {
                for child in children {
                    if self.listing.shards.iter().all(|known| known.id != child.id) {
                        self.listing.shards.push(child);
                    }
                }
                self.search_ended(effects);
            }
        }
    }

    /// Nothing could be listed: the children that were asked for are asked for again.
    pub(super) fn search_failed(&mut self) {
        let asked = self.ends.values_mut().filter(|end| end.children == Search::Asked);
        asked.for_each(|end| end.children = Search::Due);
    }

    /// A listing asked for after some shards had ended: their children are in it, or not known yet.
    fn search_ended(&mut self, effects: &mut Vec<Effect>) {
        for (parent, end) in self.ends.iter_mut().filter(|(_, end)| end.children == Search::Asked) {
            end.children = if self.listing.has_children_of(parent) {
                Search::Over
            } else if end.patient {
                effects.push(Effect::Wait(Wait::Children, CHILDREN_AGAIN));
                Search::Paused
            } else {
                effects.push(Effect::Tell(Event::Childless(parent.clone())));
                self.listing.wanted = true;
                Search::Over
            };
        }
    }
}
