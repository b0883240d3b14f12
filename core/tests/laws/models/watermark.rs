//! Two workers on the stream shards of one post, without a lease: updates are delayed, given up on, and land late;
//! workers crash; watermarks of finished stream shards are pruned.
//!
//! No record is counted twice, and once every stream shard is closed each is counted.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use tally_core::Map;
use tally_core::counter::{Refusal, Retry, Update, after_refusal, contains};
use tally_core::ids::{CounterId, MemberKey, Ordinal, RowKey, Sequence, Shard, StreamShardId};
use tally_core::lineage::{Checkpoint, Lineage, Listed};
use tally_core::tally::{CounterRecords, CutRules, Fold, Record, RecordKind, UpdateContext};
use tally_core::time::UnixMillis;
use tally_core::watermark::Watermarks;
use tally_core::weight::Weight;

use super::item::Item;
use crate::explore::{Model, breaks, holds_and_ends_well};

/// A rule of the streamer that a mutant leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// An update requires that none of its records is in the counter.
    Watermark,
    /// The next prefix starts when all of this one is answered.
    OneUnanswered,
    /// A watermark is dropped only for a floor that takes its place.
    FloorReplacesMark,
    /// The floor never moves back.
    FloorForward,
    /// An unknown outcome leads to the same update again.
    RepeatUnknown,
}

/// Which row keys the records are about.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    /// Each its own, so that each record's count is seen by itself.
    Own,
    /// All the same, so that stream shards hand it over to each other.
    Shared,
}

struct Streamers {
    /// How many records each stream shard has. The first is the parent of all others.
    lengths: &'static [u8],
    keys: Keys,
    timeouts: u8,
    removed: Option<Rule>,
    /// By the set of closed stream shards.
    lineages: Vec<Lineage>,
    gathered: Map<Span, CounterRecords>,
}

/// Records of one stream shard, from one to another, both included; counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Span {
    shard: usize,
    from: u8,
    to: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    counter: Item,
    checkpoints: Vec<u8>,
    /// Which stream shards are closed, a bit each.
    closed: usize,
    workers: [Worker; 2],
    network: Vec<Request>,
    timeouts: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    /// Has read records that are not sent.
    Holds(Span),
    /// Has sent them.
    Waits(Span),
    /// Everything is answered; the checkpoint is due.
    Applied(Span),
}

/// An update under way. A ghost has no sender.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    sender: Option<usize>,
    update: Update,
}

fn counter() -> CounterId {
    CounterId::likes("p".parse().expect("an id"))
}

impl Request {
    fn order(&self) -> (Ordinal, Sequence, Sequence, Option<usize>, Option<Ordinal>) {
        let Update { shard, first, last, prune, .. } = &self.update;
        (*shard, *first, *last, self.sender, prune.as_ref().map(|prune| prune.floor))
    }
}

impl Hash for Request {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.order().hash(state);
    }
}

#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "the fields are for the printed trace")]
enum Step {
    Read { worker: usize, span: Span },
    Send { worker: usize, pruning: bool },
    SendNextUnanswered { worker: usize },
    TimeOut { worker: usize },
    Crash { worker: usize },
    Take { worker: usize },
    Refuse { worker: usize },
    GhostLands { shard: Ordinal },
    GhostDies,
    Checkpoint { worker: usize },
    Close { shard: usize },
    DropMark { shard: usize },
}

impl Streamers {
    fn new(lengths: &'static [u8], keys: Keys, timeouts: u8) -> Self {
        let lineages = (0..1 << lengths.len()).map(|closed| lineage(lengths.len(), closed)).collect();
        let mut model = Self { lengths, keys, timeouts, removed: None, lineages, gathered: Map::default() };
        for (shard, from) in model.records().collect::<Vec<_>>() {
            for to in from..=lengths[shard] {
                let span = Span { shard, from, to };
                model.gathered.insert(span, model.gather(span));
            }
        }
        model
    }

    fn without(self, rule: Rule) -> Self {
        Self { removed: Some(rule), ..self }
    }

    fn obeys(&self, rule: Rule) -> bool {
        self.removed != Some(rule)
    }

    /// Every record there is, as its stream shard and its place there.
    fn records(&self) -> impl Iterator<Item = (usize, u8)> {
        self.lengths.iter().enumerate().flat_map(|(shard, length)| (1..=*length).map(move |at| (shard, at)))
    }

    /// The shard of the post that a record is about.
    fn key(&self, shard: usize, at: u8) -> Shard {
        let own = self.records().position(|record| record == (shard, at)).expect("the record exists");
        let index = if self.keys == Keys::Own { own } else { 0 };
        Shard::new(u16::try_from(index).expect("records are few")).expect("records are few")
    }

    /// The records of `span` as the real fold gathers them.
    fn gather(&self, span: Span) -> CounterRecords {
        let mut fold = Fold::new(CutRules { records: usize::MAX, age: Duration::MAX });
        for at in span.from..=span.to {
            let key = RowKey { counter: counter(), shard: self.key(span.shard, at) };
            let member = MemberKey::new("u").expect("an id");
            let kind = RecordKind::Row { key, member, before: Weight::ABSENT, after: Weight::ONE };
            let record = Record { sequence: sequence(at), written: UnixMillis(0), kind };
            fold.push(&record, Duration::ZERO).expect("nothing cuts so few records");
        }
        fold.take().counters.remove(&counter()).expect("all records are of one counter")
    }

    fn read(&self, state: &State, worker: usize, next: &mut Vec<(Step, State)>) {
        for checkpoint in self.lineages[state.closed].readable() {
            let shard = index(checkpoint.ordinal);
            let done = state.checkpoints[shard];
            if done == self.lengths[shard] {
                next.push((Step::Close { shard }, State { closed: state.closed | 1 << shard, ..state.clone() }));
            }
            for to in done + 1..=self.lengths[shard] {
                let span = Span { shard, from: done + 1, to };
                next.push((Step::Read { worker, span }, state.with(worker, Worker::Holds(span))));
            }
        }
    }

    /// What `span` amounts to, by a sender who has seen the counter's watermarks or has not.
    fn update(&self, state: &State, span: Span, seen: Option<&Watermarks>) -> Update {
        let lineage = &self.lineages[state.closed];
        let ancestors = lineage.closed_ancestors(&name(span.shard), 1);
        let shard = ordinal(span.shard);
        let closed_through = lineage.closed_through();
        let context = UpdateContext { shard, now: UnixMillis(0), ancestors: &ancestors, closed_through, seen };
        self.gathered[&span].update(&context).expect("a span has records")
    }

    fn send(&self, state: &State, worker: usize, span: Span, next: &mut Vec<(Step, State)>) {
        let waiting = state.with(worker, Worker::Waits(span));
        let plain = self.update(state, span, None);
        let pruning = self.update(state, span, Some(&state.counter.watermarks));
        if pruning.prune.is_some() && self.obeys(Rule::FloorReplacesMark) {
            next.push((Step::Send { worker, pruning: true }, waiting.clone().sending(Some(worker), pruning)));
        }
        next.push((Step::Send { worker, pruning: false }, waiting.sending(Some(worker), plain)));
    }

    /// What a worker may do while its request is under way.
    fn wait(&self, state: &State, worker: usize, span: Span, next: &mut Vec<(Step, State)>) {
        if state.timeouts > 0 {
            let repeated = if self.obeys(Rule::RepeatUnknown) { Worker::Holds(span) } else { Worker::Applied(span) };
            next.push((Step::TimeOut { worker }, state.abandoned_by(worker, repeated)));
            next.push((Step::Crash { worker }, state.abandoned_by(worker, Worker::Idle)));
        }
        if !self.obeys(Rule::OneUnanswered) && span.to < self.lengths[span.shard] {
            let following = Span { from: span.to + 1, to: self.lengths[span.shard], ..span };
            let update = self.update(state, following, None);
            let sent = state.with(worker, Worker::Waits(following)).sending(Some(worker), update);
            next.push((Step::SendNextUnanswered { worker }, sent));
        }
    }

    /// A request reaches the counter, which takes it or refuses.
    fn land(&self, state: &mut State, update: &Update) -> Option<Refusal> {
        let refusal = state.counter.refusal(update).filter(|refusal| match refusal {
            Refusal::Applied => self.obeys(Rule::Watermark),
            Refusal::Floor => self.obeys(Rule::FloorForward),
            Refusal::Feeder => true,
        });
        if refusal.is_none() {
            state.counter = state.counter.after(update);
        }
        refusal
    }

    fn arrive(&self, state: &State, request: &Request, next: &mut Vec<(Step, State)>) {
        let mut landed = state.clone();
        let refusal = self.land(&mut landed, &request.update);
        let Some(worker) = request.sender else {
            next.push((Step::GhostLands { shard: request.update.shard }, landed));
            next.push((Step::GhostDies, state.clone()));
            return;
        };
        let step = if refusal.is_none() { Step::Take { worker } } else { Step::Refuse { worker } };
        let answered = match state.workers[worker] {
            Worker::Waits(span) if sequence(span.to) == request.update.last => {
                self.answered(landed, worker, span, &request.update, refusal)
            }
            // Only the mutant that does not wait has another request unanswered, and no use for this answer.
            _ => landed,
        };
        next.push((step, answered));
    }

    /// What the worker makes of the answer.
    fn answered(&self, state: State, worker: usize, span: Span, sent: &Update, refusal: Option<Refusal>) -> State {
        if refusal.is_none() {
            return state.with(worker, Worker::Applied(span));
        }
        match after_refusal(sent, Some(&state.counter), &self.lineages[state.closed]) {
            Retry::After(mark) => match u8::try_from(self.gathered[&span].after(mark).len()) {
                Ok(0) => state.with(worker, Worker::Applied(span)),
                left => {
                    let from = span.to + 1 - left.expect("records are few");
                    state.with(worker, Worker::Holds(Span { from, ..span }))
                }
            },
            Retry::Finished => state.with(worker, Worker::Idle),
            Retry::Changed(update) => state.sending(Some(worker), update),
            Retry::Unexplained => state.with(worker, Worker::Holds(span)),
        }
    }

    fn checkpoint(&self, state: &State, worker: usize, span: Span, next: &mut Vec<(Step, State)>) {
        let crashed = state.with(worker, Worker::Idle);
        let mut done = crashed.clone();
        done.checkpoints[span.shard] = done.checkpoints[span.shard].max(span.to);
        next.push((Step::Checkpoint { worker }, done));
        next.push((Step::Crash { worker }, crashed));
    }

    /// The mutant's way to prune: a closed stream shard's watermark goes, and nothing takes its place.
    fn drop_marks(&self, state: &State, next: &mut Vec<(Step, State)>) {
        let marks = state.counter.watermarks.marks();
        for shard in (0..self.lengths.len()).filter(|shard| state.closed >> shard & 1 == 1) {
            let mut left = marks.clone();
            if left.remove(&ordinal(shard)).is_some() {
                let mut counter = (*state.counter).clone();
                counter.watermarks = Watermarks::new(left, state.counter.watermarks.floor());
                next.push((Step::DropMark { shard }, State { counter: Item::new(counter), ..state.clone() }));
            }
        }
    }

    fn all_closed(&self, state: &State) -> bool {
        state.closed + 1 == self.lineages.len()
    }
}

impl State {
    fn with(&self, worker: usize, now: Worker) -> Self {
        let mut state = self.clone();
        state.workers[worker] = now;
        state
    }

    fn sending(mut self, sender: Option<usize>, update: Update) -> Self {
        self.network.push(Request { sender, update });
        self.network.sort_by_key(Request::order);
        self
    }

    /// The worker's requests become ghosts.
    fn abandoned_by(&self, worker: usize, now: Worker) -> Self {
        let mut state = self.with(worker, now);
        for request in state.network.iter_mut().filter(|request| request.sender == Some(worker)) {
            request.sender = None;
        }
        state.network.sort_by_key(Request::order);
        state.timeouts -= 1;
        state
    }
}

fn sequence(at: u8) -> Sequence {
    Sequence::from(u64::from(at))
}

fn ordinal(shard: usize) -> Ordinal {
    Ordinal(shard as u64 + 1)
}

fn index(ordinal: Ordinal) -> usize {
    usize::try_from(ordinal.0).expect("shards are few") - 1
}

fn name(shard: usize) -> StreamShardId {
    format!("shard-{shard}").as_str().into()
}

fn lineage(shards: usize, closed: usize) -> Lineage {
    let parent = |shard| (shard > 0).then(|| name(0));
    let checkpoint = |shard: usize| Checkpoint {
        id: name(shard),
        parent: parent(shard),
        ordinal: ordinal(shard),
        sequence: None,
        closed: closed >> shard & 1 == 1,
        at: UnixMillis(0),
    };
    let listed = |shard: usize| Listed { id: name(shard), parent: parent(shard), ended: true };
    Lineage::new((0..shards).map(checkpoint), (0..shards).map(listed), None)
}

impl Model for Streamers {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        vec![State {
            counter: Item::default(),
            checkpoints: vec![0; self.lengths.len()],
            closed: 0,
            workers: [Worker::Idle; 2],
            network: Vec::new(),
            timeouts: self.timeouts,
        }]
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        for (worker, doing) in state.workers.iter().enumerate() {
            match *doing {
                Worker::Idle => self.read(state, worker, next),
                Worker::Holds(span) => self.send(state, worker, span, next),
                Worker::Waits(span) => self.wait(state, worker, span, next),
                Worker::Applied(span) => self.checkpoint(state, worker, span, next),
            }
        }
        for at in 0..state.network.len() {
            let mut without = state.clone();
            let request = without.network.remove(at);
            self.arrive(&without, &request, next);
        }
        if !self.obeys(Rule::FloorReplacesMark) {
            self.drop_marks(state, next);
        }
    }

    fn violation(&self, state: &State) -> Option<String> {
        let (mut all, mut contained) = ([0; 8], [0; 8]);
        for (shard, at) in self.records() {
            let key = usize::from(self.key(shard, at).index());
            all[key] += 1;
            contained[key] += i64::from(contains(&state.counter, ordinal(shard), sequence(at)));
        }
        let mut rows = [0; 8];
        for (key, tally) in &state.counter.shards {
            rows[usize::from(key.index())] = tally.rows;
        }
        let any = |wrong: fn(i64, i64) -> bool, right: [i64; 8]| {
            rows.iter().zip(right).any(|(rows, right)| wrong(*rows, right))
        };
        if any(|rows, all| rows > all, all) {
            Some(TWICE.to_owned())
        } else if any(|rows, contained| rows < contained, contained) || self.all_closed(state) && rows != all {
            Some(LOST.to_owned())
        } else if state.counter.sum() != Ok(state.counter.likes) {
            Some("the total is not the sum".to_owned())
        } else {
            let suspect = self.keys == Keys::Shared && self.lengths.len() == 2 && !state.counter.is_sound();
            suspect.then(|| "a closed parent's row key raises suspicion".to_owned())
        }
    }

    fn is_goal(&self, state: &State) -> bool {
        self.all_closed(state) && state.network.is_empty() && state.workers == [Worker::Idle; 2]
    }
}

const TWICE: &str = "a record is counted twice";
const LOST: &str = "a record is lost";

/// A parent and its child, two records each.
const FAMILY: &[u8] = &[2, 2];
/// A parent and three children, a record each.
const SIBLINGS: &[u8] = &[1, 1, 1, 1];

#[test]
fn every_record_is_counted_once_whoever_sends_it_and_however_often() {
    let states = holds_and_ends_well(&Streamers::new(FAMILY, Keys::Own, 1));
    println!("{states} states");
}

#[test]
fn every_record_of_many_shards_is_counted_once_while_watermarks_are_pruned() {
    let states = holds_and_ends_well(&Streamers::new(SIBLINGS, Keys::Own, 1));
    println!("{states} states");
}

#[test]
fn a_row_key_handed_from_a_closed_parent_to_its_child_stays_exact_and_unsuspected() {
    let states = holds_and_ends_well(&Streamers::new(FAMILY, Keys::Shared, 1));
    println!("{states} states");
}

#[test]
fn without_the_watermark_condition_a_repeated_update_counts_twice() {
    breaks(&Streamers::new(FAMILY, Keys::Own, 1).without(Rule::Watermark), TWICE);
}

#[test]
fn a_prefix_sent_before_the_last_is_answered_can_overtake_it() {
    breaks(&Streamers::new(FAMILY, Keys::Own, 0).without(Rule::OneUnanswered), LOST);
}

#[test]
fn a_watermark_dropped_without_a_floor_lets_a_sleeper_count_again() {
    breaks(&Streamers::new(FAMILY, Keys::Own, 0).without(Rule::FloorReplacesMark), TWICE);
}

#[test]
fn a_floor_that_moves_back_readmits_a_finished_shard() {
    breaks(&Streamers::new(SIBLINGS, Keys::Own, 1).without(Rule::FloorForward), TWICE);
}

#[test]
fn an_unknown_outcome_taken_for_success_loses_records() {
    breaks(&Streamers::new(FAMILY, Keys::Own, 1).without(Rule::RepeatUnknown), LOST);
}
