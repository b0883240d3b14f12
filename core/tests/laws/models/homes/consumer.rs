//! A consumer of the model: the real machine, and what it has asked for.

use std::sync::Arc;
use std::time::Duration;

use tally_core::batch::BatchLimits;
use tally_core::consume::{Consume, Effect, Input, LanePolicy, Setup};
use tally_core::event::{Action, KeyScheme, LikeEvent};
use tally_core::fence::{Log, Offset, Partition, TopicId};
use tally_core::ids::{CounterId, LaneCount, PostId, UserId};
use tally_core::ports::log::Records;
use tally_core::time::{Now, UnixMillis};

use super::table::{MEMBER, Map, Request, Table, home_of, shards};
use super::{Homes, Rule};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Consumer {
    pub(super) machine: Consume,
    pub(super) ask: Option<Ask>,
    /// How many records it was handed.
    pub(super) at: usize,
    /// What stood when it asked for the fence, for a mutant.
    before: (u64, Option<Map>),
    /// The map that it has seen first, and how often changes were announced then, for a mutant.
    pub(super) kept: Option<(u64, Option<Map>)>,
    /// Under which home the row stood when the transaction before was sent, for a mutant.
    earlier: Option<Option<usize>>,
}

/// What the machine asks of what consumers share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ask {
    Fence,
    Announced,
    Map(CounterId),
    Locate { homes: Vec<usize>, found: Option<usize> },
    Commit(Request),
}

impl Consumer {
    pub(super) fn assigned(table: &Table) -> Self {
        let machine = Consume::new(Setup {
            partition: Partition { topic: "likes".into(), index: 0 },
            limits: BatchLimits { rows: 1, bytes: usize::MAX, age: Duration::ZERO },
            key: KeyScheme::Post,
            shards: shards(0),
            lanes: LanePolicy::Pinned(LaneCount::ONE),
        });
        let mut consumer = Self { machine, ask: None, at: 0, before: (0, None), kept: None, earlier: None };
        // A consumer asks for the fence first, with or without the rules that a mutant leaves out.
        consumer.take(Input::Assigned, table, &Homes { removed: None, log: &[], plan: &[], faults: 0 });
        consumer
    }

    /// How often it is told that changes were announced.
    pub(super) fn announced(&self, table: &Table, rules: &Homes) -> u64 {
        match self.kept.filter(|_| !rules.obeys(Rule::DroppedOnReload)) {
            Some((announced, _)) => announced,
            None if rules.obeys(Rule::MapBehindFence) => table.announced,
            None => self.before.0,
        }
    }

    /// The map that it is told.
    pub(super) fn map(&self, table: &Table, rules: &Homes) -> Option<Map> {
        match self.kept.filter(|_| !rules.obeys(Rule::DroppedOnReload)) {
            Some((_, map)) => map,
            None if rules.obeys(Rule::MapBehindFence) => table.map,
            None => self.before.1,
        }
    }

    /// The machine is told `input`.
    pub(super) fn take(&mut self, input: Input, table: &Table, rules: &Homes) {
        if !matches!(input, Input::Records(_) | Input::Woke | Input::Moved(_)) {
            self.ask = None;
        }
        if !rules.obeys(Rule::DroppedOnReload) && matches!(input, Input::Announced(_)) {
            self.kept.get_or_insert((table.announced, table.map));
        }
        let (mut inputs, mut effects) = (vec![input], Vec::new());
        while let Some(input) = inputs.pop() {
            self.machine.step(Now { at: Duration::ZERO, wall: UnixMillis(0) }, input, &mut effects);
            for effect in effects.drain(..) {
                inputs.extend(self.carry_out(effect, table, rules));
            }
        }
    }

    fn carry_out(&mut self, effect: Effect, table: &Table, rules: &Homes) -> Option<Input> {
        match effect {
            Effect::ReadFence => {
                self.before = (0, None);
                if !rules.obeys(Rule::MapBehindFence) {
                    self.before = (table.announced, table.map);
                }
                self.earlier = None;
                self.ask = Some(Ask::Fence);
            }
            Effect::ReadLog => {
                let log = Log { topic: TopicId("likes".into()), start: Offset(0), end: Offset(9) };
                return Some(Input::Log(Ok(log)));
            }
            Effect::ReadAnnounced => self.ask = Some(Ask::Announced),
            Effect::ReadMaps { counters, .. } => self.ask = counters.into_iter().next().map(Ask::Map),
            Effect::Locate { lane, sought } => {
                if let Some(earlier) = self.earlier.filter(|_| !rules.obeys(Rule::LookedForInTurn)) {
                    return Some(Input::Located(lane, Ok(vec![earlier.map(shards)])));
                }
                let homes = sought[0].homes.iter().map(|home| home_of(*home)).collect();
                self.ask = Some(Ask::Locate { homes, found: None });
            }
            Effect::Commit(transaction) => {
                if !rules.obeys(Rule::LookedForInTurn) {
                    self.earlier = Some((0..3).find(|home| table.rows & (1 << home) != 0));
                }
                self.ask = Some(Ask::Commit(Request::of(&transaction)));
            }
            Effect::CountPartitions => return Some(Input::Partitions(Ok(1))),
            Effect::StartAt(offset) => {
                self.at = usize::try_from(offset.0).expect("a log is short");
                return Some(Input::Started(Ok(())));
            }
            Effect::BackOff { lane, .. } => return Some(Input::Waited(lane)),
            Effect::Rest(_) => return Some(Input::Waited(None)),
            Effect::Note(_) | Effect::TellKafka(_) | Effect::Left { .. } => {}
            other => unreachable!("{other:?}: nothing is rejected, and nothing is defined"),
        }
        None
    }

    /// Reads the next record, which is due at once.
    pub(super) fn read(&mut self, log: &[bool], table: &Table, rules: &Homes) {
        let (post, user) = (PostId::new("p").expect("an id"), UserId::new(MEMBER).expect("an id"));
        let action = if log[self.at] { Action::Like } else { Action::Unlike };
        let value = LikeEvent::new(&post, &user, action, UnixMillis(1)).encode();
        let mut records = Records::default();
        records.push(Offset(self.at as u64), UnixMillis(0), None, Some(&value), []);
        self.at += 1;
        self.take(Input::Records(Ok(Arc::new(records))), table, rules);
    }
}
