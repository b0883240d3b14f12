//! A consumer of the model: the real machine, and what of its effects is under way. Each load is a machine of its own.

use std::sync::Arc;
use std::time::Duration;

use tally_core::batch::{BatchLimits, Change};
use tally_core::consume::{Consume, Effect, Input, LanePolicy, Leave, Setup};
use tally_core::event::{Action, KeyScheme, LikeEvent};
use tally_core::fence::{Commit, Fences, Log, Offset, Partition};
use tally_core::ids::{Lane, LaneCount, PostId, ShardCount, UserId};
use tally_core::ports::log::Records;
use tally_core::time::{Now, UnixMillis};

use super::table::{Known, MOST, Request, USERS, fences, known, lane_of, topic};
use super::{Lanes, Rule, Said};

const AGE: Duration = Duration::from_millis(20);

/// When a lane that has nothing to write follows, and a change that has not come about is given up.
const LATE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Consumer {
    /// `None` until the fences are read.
    pub(super) machine: Option<Consume>,
    /// It is told to have another number of lanes.
    pub(super) wishes: bool,
    /// Fences that were read one by one so far, where they are not read together.
    pub(super) pieces: Vec<Known>,
    /// What is under way.
    pub(super) requests: Vec<Request>,
    /// The next record to read.
    pub(super) at: u64,
    /// The fences as it knows them, for mutants.
    pub(super) known: [Option<Known>; MOST],
    /// Users go by their other names, which a mutant draws at each load.
    swapped: bool,
}

impl Consumer {
    pub(super) fn assigned(wishes: bool) -> Self {
        let (machine, pieces, requests) = (None, Vec::new(), Vec::new());
        Self { machine, wishes, pieces, requests, at: 0, known: [None; MOST], swapped: false }
    }

    /// Begins to read where the fences stand. `target`: how many lanes there should be.
    pub(super) fn load(&mut self, stored: &[Known], target: usize, swapped: bool, end: u64, rules: &Lanes) {
        let lanes = LaneCount::new(target as u64).expect("a number of lanes");
        let partition = Partition { topic: topic().0, index: 0 };
        let limits = BatchLimits { rows: 1, bytes: usize::MAX, age: AGE };
        let (key, shards, lanes) = (KeyScheme::Post, ShardCount::DEFAULT, LanePolicy::Pinned(lanes));
        self.machine = Some(Consume::new(Setup { partition, limits, key, shards, lanes }));
        self.pieces.clear();
        self.swapped = swapped;
        // A mutant takes fences for ones that stand together, and sends each under its own configuration.
        let cfg = stored[0].cfg;
        let together = stored.iter().map(|lane| Known { cfg, ..*lane }).collect::<Vec<_>>();
        let together = Fences::together(fences(&together)).expect("one configuration");
        self.known = known(&together);
        for (known, stored) in self.known.iter_mut().zip(stored) {
            *known = Some(*stored);
        }
        if let Some(machine) = &mut self.machine {
            machine.step(Now { at: Duration::ZERO, wall: UnixMillis(0) }, Input::Assigned, &mut Vec::new());
        }
        self.take(Duration::ZERO, Input::Fence(Ok(Some(together))), rules);
        let log = Log { topic: topic(), start: Offset(0), end: Offset(end) };
        self.take(Duration::ZERO, Input::Log(Ok(log)), rules);
    }

    /// The machine is told `input`; one that reads its fences again is done with.
    pub(super) fn take(&mut self, at: Duration, input: Input, rules: &Lanes) {
        let (mut inputs, mut effects) = (vec![input], Vec::new());
        while let Some(input) = inputs.pop() {
            let Some(machine) = &mut self.machine else { return };
            machine.step(Now { at, wall: UnixMillis(0) }, input, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::ReadLog => {}
                    Effect::ReadFence | Effect::Left { .. } | Effect::Rest(_) => return self.starts_anew(),
                    Effect::BackOff { lane: None, .. } => return self.starts_anew(),
                    Effect::BackOff { lane, .. } => inputs.push(Input::Waited(lane)),
                    Effect::ReadAnnounced => inputs.push(Input::Announced(Ok(0))),
                    Effect::CountPartitions => inputs.push(Input::Partitions(Ok(1))),
                    Effect::StartAt(offset) => {
                        let first = self.known[0].map_or(0, |known| known.offset);
                        self.at = if rules.obeys(Rule::StartAtLeast) { offset.0 } else { first };
                        inputs.push(Input::Started(Ok(())));
                    }
                    Effect::Commit(transaction) => {
                        let lane = transaction.lane().index();
                        let from = self.known[lane].expect("a lane that it has");
                        let (mut users, mut liked) = (0, 0);
                        for change in transaction.changes() {
                            let Change::Member { user, present, .. } = change else { continue };
                            let user = self.who(user);
                            users |= 1 << user;
                            liked |= u8::from(present) << user;
                        }
                        let read = if rules.obeys(Rule::EndAtWaiting) { 0 } else { self.at };
                        let to = transaction.advance.to.0.max(read);
                        self.requests.push(Request::Commit { lane, from, to, users, liked });
                    }
                    Effect::ReplaceFences { by, .. } => {
                        let (lanes, at) = (by.lanes().get(), by.least().offset.0);
                        self.requests.push(Request::Replace { seen: self.known, lanes, at });
                    }
                    Effect::Note(_) | Effect::TellKafka(_) => {}
                    other => unreachable!("{other:?}: nothing is rejected, and nothing is defined"),
                }
            }
        }
    }

    /// The fences have to be read again.
    fn starts_anew(&mut self) {
        *self = Self { requests: std::mem::take(&mut self.requests), ..Self::assigned(self.wishes) };
    }

    /// The request `nth` is answered: how, if that is known.
    pub(super) fn answered(&mut self, nth: usize, commit: Commit, rules: &Lanes) {
        let request = self.requests.remove(nth);
        let input = match request {
            Request::Commit { lane, to, .. } => {
                if commit == Commit::Done
                    && let Some(known) = &mut self.known[lane]
                {
                    known.offset = to;
                }
                let lane = Lane::new(u8::try_from(lane).expect("a few lanes")).expect("a lane");
                Input::Committed(lane, commit)
            }
            Request::Replace { .. } => Input::FenceStored(Ok(())),
        };
        self.take(Duration::ZERO, input, rules);
    }

    /// Reads the records of `log` up to `to`, and wakes up.
    pub(super) fn read(&mut self, log: &[Said], to: u64, rules: &Lanes) {
        let mut records = Records::default();
        let from = std::mem::replace(&mut self.at, to);
        for (offset, said) in (0..to).zip(log).skip_while(|(offset, _)| *offset < from) {
            records.push(Offset(offset), UnixMillis(0), None, Some(&self.value(*said)), []);
        }
        self.take(Duration::ZERO, Input::Records(Ok(Arc::new(records))), rules);
    }

    /// Time passes.
    pub(super) fn wakes(&mut self, rules: &Lanes) {
        self.take(LATE, Input::Woke, rules);
    }

    /// The process is stopped in order.
    pub(super) fn stops(&mut self, rules: &Lanes) {
        self.take(Duration::ZERO, Input::Leave(Leave::Stopping), rules);
    }

    fn value(&self, (user, like): Said) -> Vec<u8> {
        let name = if self.swapped { other_name(user) } else { USERS[user].to_owned() };
        let (post, user) = (PostId::new("p").expect("an id"), UserId::new(&name).expect("an id"));
        let action = if like { Action::Like } else { Action::Unlike };
        LikeEvent::new(&post, &user, action, UnixMillis(1)).encode()
    }

    /// The user of that name.
    fn who(&self, name: &UserId) -> usize {
        let name = name.as_str();
        let user = (0..MOST).find(|user| USERS[*user] == name || (self.swapped && other_name(*user) == name));
        user.expect("one of the users")
    }
}

/// A name of a user whose lane is another one.
fn other_name(user: usize) -> String {
    let two = LaneCount::new(2).expect("a number of lanes");
    let mut names = (0..).map(|nth| format!("{}-{nth}", USERS[user]));
    names.find(|name| two.lane_of_member(name).index() != lane_of(user, 2)).expect("every second one is")
}
