//! Two consumers on one partition, neither of them its owner: requests are delayed, given up on, and land late; the
//! topic is re-created under its old name and an operator resets the fence.
//!
//! In every state the rows are the fold of the events before the fence.

use std::time::Duration;

use tally_core::batch::{Batch, Events, Limits, Taken};
use tally_core::event::{Action, LikeEvent};
use tally_core::fence::{Advance, Commit, Fence, Load, Log, Next, Offset, Refused, TopicId, load};
use tally_core::ids::{PostId, UserId};
use tally_core::time::UnixMillis;

use crate::explore::{Model, breaks, holds_and_ends_well};

/// A rule of the consumer that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// Every row change carries the fence's condition.
    Condition,
    /// The condition covers `cfg` too.
    CfgInCondition,
    /// After an unknown outcome the fence is loaded again, and reading goes on from there.
    ReloadAfterUnknown,
    /// The fence is read first, then what depends on it.
    FenceFirst,
    /// Reading starts at the fence, not where Kafka was last told.
    StartAtFence,
}

struct Consumers {
    removed: Option<Rule>,
    timeouts: u8,
    /// How many events the topic has before and after it is re-created.
    lengths: [usize; 2],
}

/// What an event does: to which of two users.
type Event = (u8, Action);
/// Who of two users has a row, a bit each.
type Rows = u8;
/// Which of the topic's two lives: the broker knows no topic ids, so both have one name.
type Life = usize;

/// The fence in small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Known {
    cfg: u64,
    offset: u64,
}

impl Known {
    fn fence(self) -> Fence {
        Fence { offset: Offset(self.offset), cfg: self.cfg, topic: topic() }
    }

    fn of(fence: &Fence) -> Self {
        Self { cfg: fence.cfg, offset: fence.offset.0 }
    }
}

fn topic() -> TopicId {
    TopicId("likes".into())
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    events: [Vec<Event>; 2],
    life: Life,
    stored: Option<Known>,
    rows: Rows,
    /// The rows the current life of the topic began with.
    rows_before: Rows,
    consumers: [Consumer; 2],
    network: Vec<Request>,
    timeouts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Consumer {
    /// Starts, or has to load again.
    Down,
    HasFence(Option<Known>),
    /// Only a mutant reads the log before the fence.
    HasLog(Life),
    Ready(Position),
    Waiting,
    /// Only a mutant keeps a batch whose outcome it does not know.
    Keeps {
        life: Life,
        from: u64,
        to: u64,
    },
}

/// The fence a consumer knows, and where it reads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Position {
    fence: Known,
    life: Life,
    from: u64,
}

/// A transaction under way: the events `[from, to)`, if the fence is the one known. A ghost has no sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Request {
    sender: Option<usize>,
    fence: Known,
    life: Life,
    from: u64,
    to: u64,
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    ReadFence { consumer: usize },
    ReadLog { consumer: usize },
    CreateFence { consumer: usize },
    Alarm { consumer: usize },
    Send { consumer: usize, to: u64 },
    SendAgain { consumer: usize },
    Crash { consumer: usize },
    TimeOut { consumer: usize },
    Commit { consumer: usize },
    Refuse { consumer: usize },
    GhostLands { to: u64 },
    GhostDies,
    TopicRecreatedAndFenceReset,
}

impl Consumers {
    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    fn start(&self, state: &State, i: usize, next: &mut Vec<(Step, State)>) {
        if self.obeys(Rule::FenceFirst) {
            next.push((Step::ReadFence { consumer: i }, state.with(i, Consumer::HasFence(state.stored))));
        } else {
            next.push((Step::ReadLog { consumer: i }, state.with(i, Consumer::HasLog(state.life))));
        }
    }

    /// The consumer knows the fence and the log: the core decides.
    fn position(&self, state: &State, i: usize, stored: Option<Known>, life: Life) -> (Step, State) {
        let log = Log { topic: topic(), start: Offset(0), end: Offset(state.events[life].len() as u64) };
        match load(stored.map(Known::fence), &log) {
            Load::Create(fence) => {
                let mut created = state.with(i, Consumer::Down);
                created.stored = state.stored.or(Some(Known::of(&fence)));
                (Step::CreateFence { consumer: i }, created)
            }
            Load::Halt(_) => (Step::Alarm { consumer: i }, state.with(i, Consumer::Down)),
            Load::Resume(fence) => {
                let fence = Known::of(&fence);
                // Kafka is told now and then, so it may never have been told.
                let from = if self.obeys(Rule::StartAtFence) { fence.offset } else { 0 };
                (Step::ReadLog { consumer: i }, state.with(i, Consumer::Ready(Position { fence, life, from })))
            }
        }
    }

    fn send(&self, state: &State, i: usize, at: Position, next: &mut Vec<(Step, State)>) {
        for to in at.from + 1..=state.events[at.life].len() as u64 {
            let request = Request { sender: Some(i), fence: at.fence, life: at.life, from: at.from, to };
            next.push((Step::Send { consumer: i, to }, state.with(i, Consumer::Waiting).sending(request)));
        }
        next.push((Step::Crash { consumer: i }, state.with(i, Consumer::Down)));
    }

    /// The consumer gives up on a request, which may still land.
    fn time_out(&self, state: &State, request: Request) -> State {
        let Some(i) = request.sender else { return state.clone() };
        let follows = match Commit::Unknown("no answer".into()).next() {
            Next::Reload if self.obeys(Rule::ReloadAfterUnknown) => Consumer::Down,
            _ => Consumer::Keeps { life: request.life, from: request.from, to: request.to },
        };
        let mut late = state.with(i, follows).sending(Request { sender: None, ..request });
        late.timeouts -= 1;
        late
    }

    /// A request reaches the table.
    fn land(&self, state: &mut State, request: Request) -> Commit {
        let batch = batch(&state.events[request.life], request.from, request.to);
        let advance = Advance { from: request.fence.fence(), to: batch.to() };
        if !self.admits(&advance, state.stored) {
            return Commit::Cancelled(vec![Refused::Condition, Refused::Nothing]);
        }
        for change in batch.changes() {
            let user: u8 = change.user.parse().expect("users are numbers here");
            apply(&mut state.rows, (user, change.action));
        }
        state.stored = Some(Known::of(&advance.reached()));
        Commit::Done
    }

    fn admits(&self, advance: &Advance, stored: Option<Known>) -> bool {
        let stored = match stored {
            Some(stored) if !self.obeys(Rule::CfgInCondition) => Some(Known { cfg: advance.from.cfg, ..stored }),
            stored => stored,
        };
        !self.obeys(Rule::Condition) || advance.admitted_by(stored.map(Known::fence).as_ref())
    }

    fn arrive(&self, state: &State, request: Request, next: &mut Vec<(Step, State)>) {
        let mut landed = state.clone();
        let commit = self.land(&mut landed, request);
        let Some(i) = request.sender else {
            next.push((Step::GhostLands { to: request.to }, landed));
            next.push((Step::GhostDies, state.clone()));
            return;
        };
        let (step, follows) = match commit.next() {
            Next::Go => {
                let fence = Known { offset: request.to, ..request.fence };
                let position = Position { fence, life: request.life, from: request.to };
                (Step::Commit { consumer: i }, Consumer::Ready(position))
            }
            Next::Reload => (Step::Refuse { consumer: i }, Consumer::Down),
            other => panic!("a refused condition leads to {other:?}"),
        };
        next.push((step, landed.with(i, follows)));
    }
}

impl State {
    fn with(&self, i: usize, consumer: Consumer) -> Self {
        let mut state = self.clone();
        state.consumers[i] = consumer;
        state
    }

    fn sending(mut self, request: Request) -> Self {
        self.network.push(request);
        self.network.sort_unstable();
        self
    }

    /// The rows as they have to be: the fold of everything before the fence.
    fn folded(&self) -> Rows {
        let before = self.stored.map_or(0, |fence| fence.offset);
        let mut rows = self.rows_before;
        for event in self.events[self.life].iter().take(usize::try_from(before).expect("a log is short")) {
            apply(&mut rows, *event);
        }
        rows
    }

    fn is_recreated(&self) -> bool {
        self.life == 1
    }

    fn recreated(&self, fence: Known) -> Self {
        let stored = Some(Known { cfg: fence.cfg + 1, offset: 0 });
        Self { life: 1, rows_before: self.rows, stored, ..self.clone() }
    }
}

fn apply(rows: &mut Rows, (user, action): Event) {
    match action {
        Action::Like => *rows |= 1 << user,
        Action::Unlike => *rows &= !(1 << user),
    }
}

/// The events `[from, to)` of a log, as the real batch collapses them.
fn batch(events: &[Event], from: u64, to: u64) -> Events {
    let limits = Limits { rows: Limits::MAX_ROWS, bytes: usize::MAX, age: Duration::MAX };
    let mut batch = Batch::new(limits, Offset(from));
    let post = PostId::new("p").expect("a letter is an id");
    for (offset, (user, action)) in (0..to).zip(events).skip_while(|(offset, _)| *offset < from) {
        let user = UserId::new(&user.to_string()).expect("a digit is an id");
        let event = LikeEvent::new(&post, &user, *action, UnixMillis(offset));
        assert_eq!(batch.accept(Offset(offset), &event, 1, Duration::ZERO), Taken::Taken);
    }
    batch.seal().expect("no record was rejected")
}

/// Every log of `length` events.
fn logs(length: usize) -> Vec<Vec<Event>> {
    let events = [(0, Action::Like), (0, Action::Unlike), (1, Action::Like), (1, Action::Unlike)];
    (0..length).fold(vec![Vec::new()], |logs, _| {
        logs.iter().flat_map(|log| events.map(|event| [log.as_slice(), &[event]].concat())).collect()
    })
}

impl Model for Consumers {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        let state = |first: &Vec<Event>, second| State {
            events: [first.clone(), second],
            life: 0,
            stored: None,
            rows: 0,
            rows_before: 0,
            consumers: [Consumer::Down; 2],
            network: Vec::new(),
            timeouts: self.timeouts,
        };
        let [first, second] = self.lengths.map(logs);
        // The users are alike, so the first event is user 0's.
        let first = first.iter().filter(|log| log.first().is_none_or(|(user, _)| *user == 0));
        first.flat_map(|first| second.iter().map(|second| state(first, second.clone()))).collect()
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (i, consumer) in state.consumers.iter().enumerate() {
            match *consumer {
                Consumer::Down => self.start(state, i, next),
                Consumer::HasFence(stored) => next.push(self.position(state, i, stored, state.life)),
                Consumer::HasLog(life) => next.push(self.position(state, i, state.stored, life)),
                Consumer::Ready(at) => self.send(state, i, at, next),
                Consumer::Waiting => {}
                Consumer::Keeps { life, from, to } => {
                    let Some(fence) = state.stored else { continue };
                    let request = Request { sender: Some(i), fence, life, from, to };
                    next.push((Step::SendAgain { consumer: i }, state.with(i, Consumer::Waiting).sending(request)));
                }
            }
        }
        for at in 0..state.network.len() {
            let mut without = state.clone();
            let request = without.network.remove(at);
            if let (Some(consumer), true) = (request.sender, state.timeouts > 0) {
                next.push((Step::TimeOut { consumer }, self.time_out(&without, request)));
            }
            self.arrive(&without, request, next);
        }
        if let (Some(fence), false) = (state.stored, state.is_recreated()) {
            next.push((Step::TopicRecreatedAndFenceReset, state.recreated(fence)));
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        (state.rows != state.folded()).then(|| ROWS.to_owned())
    }

    fn is_goal(&self, state: &State) -> bool {
        let done = state.stored.is_some_and(|fence| fence.offset == state.events[state.life].len() as u64);
        done && state.is_recreated() && state.network.is_empty()
    }
}

fn without(rule: Rule) -> Consumers {
    Consumers { removed: Some(rule), timeouts: 1, lengths: [1, 2] }
}

const ROWS: &str = "the rows are not the fold of the events before the fence";

#[test]
fn rows_are_the_fold_of_the_events_before_the_fence() {
    let states = holds_and_ends_well(&Consumers { removed: None, timeouts: 1, lengths: [1, 2] });
    println!("{states} states");
}

#[test]
fn without_the_fences_condition_a_late_request_undoes_newer_rows() {
    breaks(&without(Rule::Condition), ROWS);
}

#[test]
fn without_cfg_in_the_condition_a_ghost_passes_a_reset_fence() {
    breaks(&without(Rule::CfgInCondition), ROWS);
}

#[test]
fn a_time_out_taken_for_a_refusal_writes_old_rows_over_newer_ones() {
    breaks(&without(Rule::ReloadAfterUnknown), ROWS);
}

#[test]
fn records_read_before_the_fence_may_be_those_of_another_topic() {
    breaks(&without(Rule::FenceFirst), ROWS);
}

#[test]
fn reading_on_from_kafkas_committed_offset_repeats_what_the_fence_has_passed() {
    breaks(&without(Rule::StartAtFence), ROWS);
}
