//! Part of the model of the relay: one of the processes that copy a stream shard into the log of changes. It consists
//! of the production state machine and the answers that this waits for.

use std::time::Duration;

use tally_core::changes::{Body, Closed, LossNumber, Lost, Message};
use tally_core::relay::{Announcement, Effect, Input, Relay, Rules};
use tally_core::time::{Now, UnixMillis};

use super::super::{sequence, time};
use super::{Letter, PARTITIONS, Reached, Relays, Rule, Sender, State, Step, Stepped, of, stream_shard};
use crate::intern::Number;

/// With these rules, the machine has few timers: nothing is due at `NOW`, a statement is due at `STATING`, and
/// positions are stored as soon as they change.
const RULES: Rules = Rules {
    linger: Duration::from_secs(1),
    bytes: usize::MAX,
    state: Duration::ZERO,
    store: Duration::ZERO,
    patience: Duration::from_secs(3600),
};
const READ: Now = Now { at: Duration::ZERO, wall: UnixMillis(0) };
const NOW: Now = Now { at: RULES.linger, ..READ };
const STATING: Now = Now { at: Duration::from_secs(2), ..READ };

/// An input of a state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Happening {
    /// It begins with a stream shard.
    Begin(u8, Reached),
    /// It gets a stream shard's records from one to another, and they have lingered.
    Read(u8, u8, u8),
    /// It learns that everything before this time was passed on.
    UpTo(u8, u8),
    /// The first stream shard has ended.
    EndOfShard,
    Announce,
    State,
    Sent(u32, Result<(), ()>),
    Stored(u8, Reached),
    Leave(u8),
}

/// An effect of a state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Send(Number),
    Store(Store),
    /// The announcement is in every partition, so the lost part may be skipped.
    Pass,
    End,
}

/// What a state machine stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Store {
    Fed(u8, Reached),
    /// All of the first stream shard is in the log.
    Closed(Reached),
}

/// A process that relays a stream shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Process {
    machine: Number,
    shard: u8,
    /// The last record that it read or skipped.
    read: u8,
    /// Whether it has reached the end.
    at_end: bool,
    announcing: bool,
    leaving: bool,
    storing: Option<Store>,
}

impl Relays {
    /// Returns a state machine that relays nothing yet.
    fn fresh(&self) -> Number {
        self.machines.number(Relay::new(of(), PARTITIONS, RULES, STATING))
    }

    fn happens(&self, machine: Number, happening: Happening) -> Stepped {
        self.known.get((machine, happening), || {
            let (mut after, mut effects) = (machine, Vec::new());
            self.machines.update(&mut after, |after| {
                let inputs = self.inputs(machine, happening);
                inputs.into_iter().for_each(|(now, input)| after.step(now, input, &mut effects));
            });
            (after, effects.into_iter().map(|effect| self.wanted(effect)).collect())
        })
    }

    fn inputs(&self, machine: Number, happening: Happening) -> Vec<(Now, Input)> {
        let input = match happening {
            Happening::Begin(shard, Reached { to, at }) => {
                let to = if self.obeys(Rule::LinkAtTakeOver) { to } else { 0 };
                let begin = Input::Begin(stream_shard(shard), Reached { to, at }.into());
                let state = (machine == self.fresh()).then_some((STATING, Input::Woke));
                return [(NOW, begin)].into_iter().chain(state).collect();
            }
            Happening::Read(shard, from, to) => {
                let entries = (from..=to).map(|at| self.entry(at)).collect();
                let shard = stream_shard(shard);
                let up_to = Input::UpTo(shard.clone(), time(to + 1));
                let page = Input::Page { shard, entries, to: sequence(to), read: READ.wall };
                return vec![(READ, page), (READ, up_to), (NOW, Input::Woke)];
            }
            Happening::State => return vec![(STATING, Input::Woke)],
            Happening::UpTo(shard, at) => Input::UpTo(stream_shard(shard), time(at)),
            Happening::EndOfShard => {
                let end = Input::End(stream_shard(0), vec![stream_shard(1)]);
                if self.obeys(Rule::TimeWhileOpen) {
                    end
                } else {
                    return vec![(NOW, Input::UpTo(stream_shard(0), time(self.last(1) + 1))), (NOW, end)];
                }
            }
            Happening::Announce => {
                let next = self.trimmed.map(|at| (stream_shard(0), sequence(at + 1)));
                Input::Announce(Announcement(1), Body::Lost(Lost { number: LossNumber(1), next }))
            }
            Happening::Sent(partition, outcome) => Input::Sent(partition, outcome),
            Happening::Stored(shard, fed) => Input::Stored(stream_shard(shard), fed.into()),
            Happening::Leave(shard) => Input::Leave(stream_shard(shard)),
        };
        vec![(NOW, input)]
    }

    fn wanted(&self, effect: Effect) -> Wanted {
        let number = |shard| (0..2).find(|of| stream_shard(*of) == shard).expect("a stream shard");
        match effect {
            Effect::Send { partition, value, .. } => {
                let message = Message::read(&value, &of()).expect("the machine writes messages");
                Wanted::Send(self.messages.number((partition, message)))
            }
            Effect::Store(shard, fed) => Wanted::Store(Store::Fed(number(shard), fed.into())),
            Effect::Closed(_, fed) => Wanted::Store(Store::Closed(fed.into())),
            Effect::Announced(_) => Wanted::Pass,
            Effect::Left(_) => Wanted::End,
            Effect::Restart => panic!("nothing waits for so long"),
        }
    }

    /// Lets a process begin at the stored position of the stream shard.
    pub(super) fn begin(&self, step: Step, mut state: State, at: usize, next: &mut Vec<(Step, State)>) {
        state.processes[at] = Some(Process::new(u8::from(state.closed), self.fresh()));
        self.begins(step, state, at, next);
    }

    /// Lets a process begin, or begin again, with its stream shard.
    fn begins(&self, step: Step, mut state: State, at: usize, next: &mut Vec<(Step, State)>) {
        let process = state.processes[at].as_mut().expect("it begins");
        let fed = state.fed[usize::from(process.shard)];
        *process = Process {
            read: fed.to.max(self.first(process.shard) - 1),
            storing: process.storing,
            ..Process::new(process.shard, process.machine)
        };
        let happening = Happening::Begin(process.shard, fed);
        self.follows(step, state, at, happening, next);
    }

    pub(super) fn work(&self, state: &State, at: usize, process: Process, next: &mut Vec<(Step, State)>) {
        let Process { shard, at_end, announcing, leaving, storing, .. } = process;
        if !(leaving || announcing || at_end) {
            self.read_on(state, at, process, next);
        }
        let sends = state.network.iter().any(|letter| letter.sender.is(at));
        if !sends || state.busy > 0 {
            let stated = State { busy: state.busy - u8::from(sends), ..state.clone() };
            self.follows(Step("states", at), stated, at, Happening::State, next);
        }
        if let Some(store) = storing {
            self.store(state, at, store, next);
        }
        for (nth, letter) in state.network.iter().enumerate().filter(|(_, letter)| letter.sender == Sender::Waits(at)) {
            self.unanswered(state, at, nth, *letter, next);
        }
        if leaving && u8::from(state.closed) <= shard && !matches!(storing, Some(Store::Closed(_))) {
            self.begins(Step("begins again", at), state.clone(), at, next);
        }
        if state.leaves > 0 && !leaving {
            let mut left = State { leaves: state.leaves - 1, ..state.clone() };
            left.processes[at] = Some(Process { leaving: true, ..process });
            self.follows(Step("is asked to leave", at), left, at, Happening::Leave(shard), next);
        }
        if sends && state.timeouts > 0 {
            self.restart(state, at, next);
        }
        // Its messages are still under way, unless they were given up before.
        if !sends || state.timeouts > 0 {
            let mut crashed = state.clone();
            crashed.timeouts -= u8::from(sends);
            crashed.leave(at);
            next.push((Step("crashes", at), crashed.sorted()));
        }
    }

    /// Restarts a process: Kafka has accepted nothing for too long, so the state machine drops everything, and begins
    /// again.
    fn restart(&self, state: &State, at: usize, next: &mut Vec<(Step, State)>) {
        let mut restarted = State { timeouts: state.timeouts - 1, ..state.clone() };
        if self.obeys(Rule::AnswersDropped) {
            restarted.leave(at);
        }
        self.begin(Step("restarts", at), restarted, at, next);
    }

    /// Lets a process read all or some of the next records, or the end of the stream shard, or a loss.
    fn read_on(&self, state: &State, at: usize, process: Process, next: &mut Vec<(Step, State)>) {
        let Process { shard, read, .. } = process;
        let last = self.last(shard);
        let trimmed = self.trimmed.filter(|trimmed| state.trimmed && *trimmed > read);
        for to in read + 1..=trimmed.map_or(last, |trimmed| trimmed - 1) {
            let mut state = state.clone();
            if !self.obeys(Rule::FedBehindAnswers) {
                let fed = &mut state.fed[usize::from(shard)];
                *fed = fed.later(Reached { to, at: to + 1 });
            }
            let happening = Happening::Read(shard, read + 1, to);
            self.follows(Step("reads", at), state, at, happening, next);
        }
        if trimmed == Some(read + 1) {
            self.follows(Step("announces", at), state.clone(), at, Happening::Announce, next);
        }
        if read == last && shard == 0 && self.ends() {
            let mut state = state.clone();
            if !self.obeys(Rule::ClosingBehindEntries) {
                state.network.extend(self.early_closing());
            }
            self.follows(Step("reads the end", at), state, at, Happening::EndOfShard, next);
        }
        if !self.obeys(Rule::TimeBehindRecords) {
            let step = Step("states a time early", at);
            self.follows(step, state.clone(), at, Happening::UpTo(shard, last + 1), next);
        }
    }

    /// Returns what a mutant sends to every partition in addition to its entries.
    fn early_closing(&self) -> impl Iterator<Item = Letter> {
        let closed = Closed { shard: stream_shard(0), back: None, fed: time(0), children: vec![stream_shard(1)] };
        let message = Message { read: READ.wall, body: Body::Closed(closed) };
        let letter = move |partition| self.messages.number((partition, message.clone()));
        (0..PARTITIONS).map(move |partition| Letter { message: letter(partition), sender: Sender::Gone })
    }

    /// Adds what may happen while a message of this process is unanswered.
    fn unanswered(&self, state: &State, at: usize, nth: usize, letter: Letter, next: &mut Vec<(Step, State)>) {
        let partition = self.messages.get(letter.message).0;
        if state.timeouts > 0 {
            let mut late = State { timeouts: state.timeouts - 1, ..state.clone() };
            late.network[nth].sender = Sender::Gone;
            self.follows(Step("times out", at), late, at, Happening::Sent(partition, Err(())), next);
        }
        if !self.obeys(Rule::OneUnderWay) && !state.insists(at) {
            let mut early = state.clone();
            early.network[nth].sender = Sender::Insists(at);
            self.follows(Step("goes on unanswered", at), early, at, Happening::Sent(partition, Ok(())), next);
        }
    }

    fn store(&self, state: &State, at: usize, store: Store, next: &mut Vec<(Step, State)>) {
        if state.insists(at) {
            return;
        }
        let mut stored = state.clone();
        let process = stored.processes[at].as_mut().expect("it stores");
        process.storing = None;
        let step = Step("stores", at);
        match store {
            Store::Fed(shard, to) => {
                let fed = &mut stored.fed[usize::from(shard)];
                *fed = fed.later(to);
                let fed = *fed;
                self.follows(step, stored, at, Happening::Stored(shard, fed), next);
            }
            Store::Closed(to) => {
                stored.closed = true;
                stored.fed[0] = stored.fed[0].later(to);
                stored.fed[1] = stored.fed[1].later(Reached { to: 0, at: to.at });
                process.shard = 1;
                if process.leaving {
                    stored.leave(at);
                    next.push((step, stored.sorted()));
                } else {
                    self.begins(step, stored, at, next);
                }
            }
        }
    }

    /// Hands an input to the machine, and adds the states after its effects.
    pub(super) fn follows(
        &self,
        step: Step,
        mut state: State,
        at: usize,
        happening: Happening,
        next: &mut Vec<(Step, State)>,
    ) {
        let mut process = state.processes[at].expect("it happens to a process");
        let (machine, wanted) = self.happens(process.machine, happening);
        process.machine = machine;
        match happening {
            Happening::Read(_, _, to) => process.read = to,
            Happening::EndOfShard => process.at_end = true,
            Happening::Announce => {
                process.announcing = self.obeys(Rule::AnnouncedFirst);
                process.read += u8::from(!process.announcing);
            }
            _ => {}
        }
        let mut ends = false;
        for wanted in &*wanted {
            match *wanted {
                Wanted::Send(message) => state.network.push(Letter { message, sender: Sender::Waits(at) }),
                Wanted::Store(store) => process.storing = Some(store),
                Wanted::Pass => {
                    process.read += u8::from(process.announcing);
                    process.announcing = false;
                }
                Wanted::End => ends = true,
            }
        }
        state.processes[at] = Some(process);
        if ends {
            state.leave(at);
        }
        next.push((step, state.sorted()));
    }
}

impl Process {
    fn new(shard: u8, machine: Number) -> Self {
        Self { machine, shard, read: 0, at_end: false, announcing: false, leaving: false, storing: None }
    }
}

impl Sender {
    fn is(self, at: usize) -> bool {
        matches!(self, Self::Waits(of) | Self::Insists(of) if of == at)
    }
}

impl State {
    /// Messages of a process that has ended have no sender any more.
    fn leave(&mut self, at: usize) {
        self.processes[at] = None;
        for letter in self.network.iter_mut().filter(|letter| letter.sender.is(at)) {
            letter.sender = Sender::Gone;
        }
    }

    fn insists(&self, at: usize) -> bool {
        self.network.iter().any(|letter| letter.sender == Sender::Insists(at))
    }
}
