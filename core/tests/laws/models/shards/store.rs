//! The stream and the checkpoints of the model: what they answer, and the laws that a write may break.

use std::time::Duration;

use tally_core::ids::{Ordinal, Sequence, StreamShardId};
use tally_core::ledger::Fed;
use tally_core::lineage::{Checkpoint, Listed, Loss};
use tally_core::ports::{Lease, LeaseTaken, Registry, ShardState, Worker};
use tally_core::shards::{Answer, Behind, Input, Request};
use tally_core::time::UnixMillis;

use super::{BEGAN, CHILDLESS, DAY, Entry, HASTE, Kind, ORDER, Rule, State, TWICE, World, bit, bits, index, name};

impl World {
    /// What the service lists; `leaving_out` a bit for each shard that it does not.
    pub(super) fn listing(&self, state: &State, leaving_out: u8) -> Vec<Listed> {
        let shards = state.shards.iter().enumerate();
        let listed = shards.filter(|(n, shard)| shard.exists && !shard.gone && leaving_out >> n & 1 == 0);
        listed.map(|(n, shard)| Listed { id: name(n), parent: self.told_parent(n), ended: shard.ended }).collect()
    }

    pub(super) fn told_parent(&self, shard: usize) -> Option<StreamShardId> {
        self.parents[shard].filter(|_| !self.is_removed(Rule::ParentsFirst)).map(name)
    }

    pub(super) fn states(&self, state: &State) -> Vec<ShardState> {
        let entries = state.entries.iter().enumerate().filter_map(|(n, entry)| Some((n, entry.as_ref()?)));
        let found = entries.map(|(n, entry)| ShardState {
            checkpoint: Checkpoint {
                id: name(n),
                parent: self.told_parent(n),
                ordinal: Ordinal(entry.ordinal.into()),
                sequence: (entry.position > 0).then(|| Sequence::from(u64::from(entry.position))),
                closed: entry.closed,
                at: UnixMillis(BEGAN + if entry.closed_late { DAY } else { 0 }),
            },
            fed: Fed::default(),
            lease: entry.lease.clone().map(|(holder, beat)| Lease { holder, beat: beat.into() }),
        });
        found.collect()
    }

    /// Registry, checkpoints and gaps in one go: what happens between them is another model's business.
    pub(super) fn readings(&self, state: &State) -> Vec<(Request, Answer)> {
        let floor = (state.floor > 0).then(|| Ordinal(state.floor.into()));
        let registry = (state.next > 0).then(|| Registry { next: Ordinal(state.next.into()), floor });
        vec![
            (Request::Registry, Answer::Registry(registry)),
            (Request::States, Answer::States(self.states(state))),
            (Request::Gaps, Answer::Gaps(state.gap)),
        ]
    }

    pub(super) fn read(&self, state: &State, worker: usize) -> State {
        let mut next = state.clone();
        for (request, answer) in self.readings(state) {
            self.feed(&mut next, worker, Duration::ZERO, Input::Answered(request, answer));
        }
        next
    }

    /// Carries out the request under way and answers it.
    pub(super) fn carry_out(&self, state: &State, worker: usize, request: &Request) -> State {
        let mut state = state.clone();
        let process = &mut state.workers[worker];
        let (me, held) = (process.name.clone(), process.held.clone());
        let answer = match request {
            Request::Number { shard, parent, .. } => {
                let dropped = self.is_removed(Rule::AncestorsFirst) && !std::mem::replace(&mut process.dropped, true);
                if !dropped {
                    self.number(&mut state, index(shard), parent.as_ref(), held.contains(&Behind::Stream));
                }
                Answer::Done
            }
            Request::Close { shard, .. } => {
                self.close(&mut state, index(shard), held.contains(&Behind::Shard(shard.clone())));
                Answer::Done
            }
            Request::Probe(shard) => {
                Answer::Readable(!state.shards[index(shard)].gone && !self.is_removed(Rule::ProbeByName))
            }
            Request::RaiseFloor(Ordinal(floor)) => {
                state.floor = state.floor.max(u8::try_from(*floor).expect("few numbers"));
                Answer::Done
            }
            Request::Forget(shard) => {
                let entry = &mut state.entries[index(shard)];
                if entry.as_ref().is_some_and(|entry| entry.closed) {
                    *entry = None;
                }
                Answer::Done
            }
            Request::Lease { shard, seen, .. } => Answer::Leased(lease(&mut state, index(shard), &me, seen.as_ref())),
            Request::Release(_) => Answer::Done,
            other => panic!("{other:?} is answered elsewhere"),
        };
        self.feed(&mut state, worker, Duration::ZERO, Input::Answered(request.clone(), answer));
        state
    }

    pub(super) fn number(&self, state: &mut State, shard: usize, parent: Option<&StreamShardId>, held: bool) {
        if state.entries[shard].is_some() {
            return;
        }
        if state.numbered & bit(shard) != 0 {
            state.broken = Some(TWICE);
        } else if parent.is_some_and(|parent| state.numbered & bit(index(parent)) == 0) {
            state.broken = Some(ORDER);
        } else if state.next == 0 && self.late && !held {
            state.broken = Some(HASTE);
        }
        state.next = state.next.max(1);
        state.numbered |= bit(shard);
        state.entries[shard] =
            Some(Entry { ordinal: state.next, position: 0, closed: false, closed_late: false, lease: None });
        state.next += 1;
    }

    pub(super) fn close(&self, state: &mut State, shard: usize, held: bool) {
        let Some(entry) = &mut state.entries[shard] else { return };
        (entry.closed, entry.closed_late) = (true, entry.closed_late || self.days > state.days);
        state.closed |= bit(shard);
        let real = &state.shards[shard];
        let numbered = state.numbered;
        if bits(real.records) & !bits(entry.position) & !real.applied != 0 && real.gone && !held {
            state.broken = Some(HASTE);
        }
        // A listing that shows one child and leaves out the other cannot be told from a shard with one child.
        let is_numbered = |child: usize| numbered & bit(child) != 0;
        let mut living = self.children(shard).filter(|child| !state.shards[*child].gone).peekable();
        if !real.gone && living.peek().is_some() && !living.any(is_numbered) {
            state.broken = Some(CHILDLESS);
        }
    }

    /// A loss is stored as a gap, which covers what is lost by then.
    pub(super) fn record(&self, state: &State, worker: usize, behind: &Behind) -> State {
        let mut state = state.clone();
        let process = &mut state.workers[worker];
        process.records.remove(behind);
        let kind = process.losses[behind];
        let rule = match kind {
            Kind::FirstSight => Rule::RecordFirstSight,
            Kind::Vanished(_) => Rule::RecordVanished,
            Kind::Trimmed(_) => Rule::RecordTrim,
        };
        let loss = match kind {
            Kind::FirstSight => Loss::Unfollowed("l".into()),
            Kind::Vanished(shard) => Loss::Vanished(name(shard)),
            Kind::Trimmed(shard) => Loss::Trimmed(name(shard)),
        };
        if !self.is_removed(rule) {
            state.gap = true;
            for (n, shard) in state.shards.iter_mut().enumerate() {
                let is_lost = match kind {
                    Kind::FirstSight => true,
                    Kind::Vanished(shard) | Kind::Trimmed(shard) => shard == n,
                };
                shard.covered |= if is_lost { bits(shard.trimmed) } else { 0 };
            }
        }
        let request = Request::Record(behind.clone(), loss);
        self.feed(&mut state, worker, Duration::ZERO, Input::Answered(request, Answer::Done));
        state
    }
}

fn lease(state: &mut State, shard: usize, me: &Worker, seen: Option<&Lease>) -> LeaseTaken {
    let Some(entry) = &mut state.entries[shard] else { return LeaseTaken::Lost };
    let stands = entry.lease.clone().map(|(holder, beat)| Lease { holder, beat: beat.into() });
    if stands.as_ref() == seen {
        let beat = entry.lease.as_ref().is_some_and(|(_, beat)| !beat);
        entry.lease = Some((me.clone(), beat));
    }
    match &entry.lease {
        Some((holder, beat)) if holder == me => LeaseTaken::Taken(Lease { holder: me.clone(), beat: u64::from(*beat) }),
        _ => LeaseTaken::Lost,
    }
}
