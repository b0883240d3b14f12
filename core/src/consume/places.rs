//! Under which home the row of each member is written: where it stands already, and otherwise where the counter's map says.
//!
//! A member's row is under one home of its counter, and stays there while it stands. So before each part of a batch the machine
//! asks where the part's members are. It asks after the lane's transaction before was answered, and the fence's condition refuses
//! the part where another writer came in between.

use std::collections::{BTreeMap, BTreeSet};

use super::chain::Stage;
use super::effect::{Effect, Halt, Note};
use super::reading::{Context, Reading, Then};
use super::write::Again;
use crate::batch::SealedBatch;
use crate::fault::Fault;
use crate::homes::{CounterMap, Sought};
use crate::ids::{CounterId, Lane, ShardCount};
use crate::ports::Outcome;

/// How many counters' maps are held.
const MOST: usize = 50_000;

/// The maps of sets that were read since the fences were. None outlives a reload: the writer before this one may have put rows
/// under homes that an older map lacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Maps {
    /// How often changes were announced. While none was, no counter has a map, and none is asked for.
    announced: u64,
    /// How often maps were dropped since.
    drops: u64,
    /// `None` of a counter that has no map.
    known: BTreeMap<CounterId, Option<CounterMap>>,
}

/// Under which homes the rows of a part are, as far as maps tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Places {
    /// By the number of the row; `None` and those past the end: under the deployment's shards.
    pub(super) homes: Vec<Option<ShardCount>>,
    /// The numbers of the rows that may be somewhere else.
    pub(super) sought: Vec<usize>,
}

impl Maps {
    pub(super) fn new(announced: u64) -> Self {
        Self { announced, drops: 0, known: BTreeMap::new() }
    }

    /// The map of `counter`, if it is known to have one.
    pub(super) fn of(&self, counter: &CounterId) -> Option<&CounterMap> {
        self.known.get(counter)?.as_ref()
    }

    /// Changes were announced so often: what is known may be old. Fewer than are known of is an old answer.
    pub(super) fn announced(&mut self, announced: u64) {
        if announced > self.announced {
            self.announced = announced;
            self.drops += 1;
            self.known.clear();
        }
    }

    fn learn(&mut self, maps: Vec<(CounterId, Option<CounterMap>)>) {
        if self.known.len() + maps.len() > MOST {
            self.known.clear();
        }
        self.known.extend(maps);
    }

    /// The counters of `part` whose map has to be read.
    fn unknown(&self, part: &SealedBatch) -> Vec<CounterId> {
        if self.announced == 0 {
            return Vec::new();
        }
        let counters = part.members().map(|(_, counter, _)| counter);
        let unknown: BTreeSet<_> = counters.filter(|counter| !self.known.contains_key(counter)).collect();
        unknown.into_iter().cloned().collect()
    }

    /// Where maps put the rows of `part`, and whose rows may be somewhere else.
    fn places(&self, part: &SealedBatch) -> (Places, Vec<Sought>) {
        let (mut places, mut sought) = (Places::default(), Vec::new());
        if self.announced == 0 {
            return (places, sought);
        }
        for (row, counter, member) in part.members() {
            let Some(Some(map)) = self.known.get(counter) else { continue };
            places.homes.resize(places.homes.len().max(row + 1), None);
            places.homes[row] = Some(map.newest());
            let homes: Vec<_> = map.elsewhere(member).collect();
            if !homes.is_empty() {
                places.sought.push(row);
                sought.push(Sought { counter: counter.clone(), member: member.clone(), homes });
            }
        }
        (places, sought)
    }
}

impl Reading {
    /// Sends the part that `lane` is to write, or asks first for what has to be known of it.
    pub(super) fn send(&mut self, lane: Lane, context: &mut Context<'_>) {
        let chain = &mut self.chains[lane.index()];
        let Stage::Writing(writing) = &mut chain.stage else { return };
        let counters = self.maps.unknown(writing.part());
        if !counters.is_empty() {
            writing.asks(self.maps.drops);
            context.effects.push(Effect::ReadMaps { lane, counters });
            return;
        }
        let (places, sought) = self.maps.places(writing.part());
        writing.places(places, self.maps.drops);
        let effect = if sought.is_empty() {
            writing.send(&chain.fence)
        } else {
            writing.asks(self.maps.drops);
            Effect::Locate { lane, sought }
        };
        context.effects.push(effect);
    }

    /// The maps that `lane` asked for. Those that were dropped meanwhile are asked for once more.
    pub(super) fn maps_read(
        &mut self,
        lane: Lane,
        maps: Outcome<Vec<(CounterId, Option<CounterMap>)>>,
        context: &mut Context<'_>,
    ) -> Then {
        let drops = self.maps.drops;
        if self.over.is_some() || !self.is_asking(lane) {
            return Then::GoOn;
        }
        match maps {
            Ok(maps) => {
                if self.asked_at(lane) == Some(drops) {
                    context.heats.met(&maps, context.setup, context.now);
                    self.maps.learn(maps);
                }
                self.send(lane, context);
                Then::GoOn
            }
            Err(fault) if fault.is_retryable() => self.asks_again(lane, "maps", &fault, context),
            Err(fault) => self.ends(lane, Then::Halt(Halt::Refused(format!("maps: {fault}")))),
        }
    }

    /// Where the rows stand that `lane` asked for.
    pub(super) fn located(
        &mut self,
        lane: Lane,
        found: Outcome<Vec<Option<ShardCount>>>,
        context: &mut Context<'_>,
    ) -> Then {
        if self.over.is_some() || !self.is_asking(lane) {
            return Then::GoOn;
        }
        match found {
            Ok(found) => {
                let chain = &mut self.chains[lane.index()];
                if let Stage::Writing(writing) = &mut chain.stage {
                    writing.found(found);
                    context.effects.push(writing.send(&chain.fence));
                }
                Then::GoOn
            }
            Err(fault) if fault.is_retryable() => self.asks_again(lane, "locate", &fault, context),
            Err(fault) => self.ends(lane, Then::Halt(Halt::Refused(format!("locate: {fault}")))),
        }
    }

    fn is_asking(&mut self, lane: Lane) -> bool {
        self.asked_at(lane).is_some()
    }

    /// How often maps had been dropped when `lane` asked for what it waits for.
    fn asked_at(&mut self, lane: Lane) -> Option<u64> {
        let chain = self.chain(lane)?;
        if let Stage::Writing(writing) = &chain.stage { writing.asked_at() } else { None }
    }

    fn asks_again(&mut self, lane: Lane, call: &'static str, fault: &Fault, context: &mut Context<'_>) -> Then {
        let chain = &mut self.chains[lane.index()];
        let Stage::Writing(writing) = &mut chain.stage else { return Then::GoOn };
        let tries = writing.asks_later();
        context.note(Note::Retrying { call, class: fault.class(), tries, why: fault.to_string() });
        context.effects.push(Effect::BackOff { lane: Some(lane), attempt: tries - 1 });
        Then::GoOn
    }

    /// A wait of `lane` is over. A transaction that was refused for now certainly did not happen: it is sent again as it was,
    /// unless maps were dropped meanwhile.
    pub(super) fn waited_in(&mut self, lane: Lane, context: &mut Context<'_>) -> Then {
        let drops = self.maps.drops;
        if self.over.is_none()
            && let Some(chain) = self.chain(lane)
            && let Stage::Writing(writing) = &mut chain.stage
        {
            match writing.again(&chain.fence, drops) {
                Again::Nothing => {}
                Again::Ask(effect) => context.effects.push(effect),
                Again::Place => self.send(lane, context),
            }
        }
        Then::GoOn
    }
}
