//! The machine that applies a stream shard, against rows counted by hand: three workers on one stream shard take answers
//! in any order, late, twice or never, and crash.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use tally_core::Map;
use tally_core::apply::{Answer, Apply, Effect, Input, Request, RequestId, Rules};
use tally_core::counter::{Counter, Update, contains};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, MemberKey, Ordinal, PostId, RowKey, Shard};
use tally_core::lineage::{Checkpoint, Picture};
use tally_core::ports::Applied;
use tally_core::tally::{CutRules, Record, RecordKind};
use tally_core::time::{Now, UnixMillis};
use tally_core::weight::Weight;
use tally_core::window::{CaptureLimits, Marker, Report};

use super::cases;

const SHARD: Ordinal = Ordinal(1);
const AGE: Duration = Duration::from_millis(100);

/// One change of the table: a user of a row key likes or does not, or a window on that row key opens or closes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Row { post: u8, shard: u16, user: u8, likes: bool },
    Opens { post: u8, shard: u16 },
    Closes { post: u8, shard: u16 },
}

fn change() -> impl Strategy<Value = Change> {
    let key = || (0..3u8, 0..2u16);
    proptest::prop_oneof![
        8 => (key(), 0..3u8, any::<bool>())
            .prop_map(|((post, shard), user, likes)| Change::Row { post, shard, user, likes }),
        1 => key().prop_map(|(post, shard)| Change::Opens { post, shard }),
        1 => key().prop_map(|(post, shard)| Change::Closes { post, shard }),
    ]
}

/// What happens next. An index chooses among what there is.
#[derive(Clone, Debug)]
enum Happening {
    /// The reader passes so many records on.
    Read(usize),
    /// What is gathered grows old enough.
    Age,
    /// A request is carried out and answered.
    Answer(Index),
    /// The same, and the answer comes twice.
    AnswerTwice(Index),
    /// An update is carried out, and the answer is lost.
    LoseAnswer(Index),
    /// An update is given up on, and may still be carried out.
    GiveUp(Index),
    /// An update that was given up on is carried out.
    GhostLands(Index),
    /// The worker dies, and another begins at the checkpoint.
    Crash,
}

fn happening() -> impl Strategy<Value = (usize, Happening)> {
    let index = any::<Index>;
    let happening = proptest::prop_oneof![
        4 => (1..6usize).prop_map(Happening::Read),
        3 => proptest::prelude::Just(Happening::Age),
        8 => index().prop_map(Happening::Answer),
        2 => index().prop_map(Happening::AnswerTwice),
        1 => index().prop_map(Happening::LoseAnswer),
        1 => index().prop_map(Happening::GiveUp),
        1 => index().prop_map(Happening::GhostLands),
        1 => proptest::prelude::Just(Happening::Crash),
    ];
    (0..3usize, happening)
}

/// What a stream shard says, and what follows from it: rows at its end, and the report of every window.
struct Told {
    records: Vec<Record>,
    rows: BTreeMap<(u8, u16, u8), bool>,
    reports: Vec<Report>,
}

fn key(post: u8, shard: u16) -> RowKey {
    RowKey { counter: CounterId::likes(PostId::new(&post.to_string()).unwrap()), shard: Shard::new(shard).unwrap() }
}

fn told(history: &[Change]) -> Told {
    let mut told = Told { records: Vec::new(), rows: BTreeMap::new(), reports: Vec::new() };
    let mut open: BTreeMap<RowKey, (u128, Map<MemberKey, Weight>)> = BTreeMap::new();
    for (at, change) in history.iter().enumerate() {
        let run = at as u128;
        let kind = match *change {
            Change::Row { post, shard, user, likes } => {
                let before = told.rows.insert((post, shard, user), likes).unwrap_or(false);
                let (key, member) = (key(post, shard), MemberKey::new(&user.to_string()).unwrap());
                let (before, after) = (Weight::of_presence(before), Weight::of_presence(likes));
                if let Some((_, touched)) = open.get_mut(&key) {
                    touched.insert(member.clone(), after);
                }
                RecordKind::Row { key, member, before, after, span: None, regions: None }
            }
            Change::Opens { post, shard } => {
                open.insert(key(post, shard), (run, Map::default()));
                RecordKind::Marker { key: key(post, shard), marker: Marker::low(run.into()) }
            }
            Change::Closes { post, shard } => {
                let key = key(post, shard);
                let closed = open.remove(&key);
                let run = closed.as_ref().map_or(run, |(run, _)| *run).into();
                told.reports.extend(closed.map(|(_, touched)| Report { key: key.clone(), run, touched }));
                RecordKind::Marker { key, marker: Marker::high(run) }
            }
        };
        told.records.push(Record { sequence: (at as u64 + 1).into(), written: UnixMillis(0), kind });
    }
    told
}

struct Worker {
    machine: Apply,
    /// How many records it was given.
    read: usize,
    unanswered: Vec<(RequestId, Request)>,
}

/// A store, the workers on it, and updates that were given up on.
struct World {
    told: Told,
    rules: Rules,
    counters: BTreeMap<CounterId, Counter>,
    checkpoint: usize,
    workers: Vec<Worker>,
    ghosts: Vec<(CounterId, Arc<Update>)>,
}

impl World {
    fn new(told: Told, rules: Rules) -> Self {
        let (counters, ghosts) = (BTreeMap::new(), Vec::new());
        let mut world = Self { told, rules, counters, checkpoint: 0, workers: Vec::new(), ghosts };
        world.workers = (0..3).map(|_| world.worker()).collect();
        world
    }

    /// A worker that begins at the checkpoint.
    fn worker(&self) -> Worker {
        let checkpoint = Checkpoint {
            id: "shard-1".into(),
            parent: None,
            ordinal: SHARD,
            sequence: (self.checkpoint > 0).then(|| (self.checkpoint as u64).into()),
            closed: false,
            at: UnixMillis(0),
        };
        let machine = Apply::new(&checkpoint, self.rules, Arc::new(Picture::default()), Now::default());
        Worker { machine, read: self.checkpoint, unanswered: Vec::new() }
    }

    fn step(&mut self, worker: usize, at: Duration, input: Input) -> Result<(), TestCaseError> {
        let mut effects = Vec::new();
        let worker = &mut self.workers[worker];
        worker.machine.step(Now { at, wall: UnixMillis(0) }, input, &mut effects);
        for effect in effects {
            if let Effect::Ask(id, request) = effect {
                worker.unanswered.push((id, request));
            }
        }
        let mut updated: Vec<_> = worker.unanswered.iter().filter_map(|(_, request)| counter_of(request)).collect();
        updated.sort();
        prop_assert!(updated.windows(2).all(|pair| pair[0] != pair[1]), "two unanswered updates of one counter");
        prop_assert!(updated.len() <= self.rules.concurrency);
        Ok(())
    }

    fn read(&mut self, worker: usize, count: usize) -> Result<(), TestCaseError> {
        let Worker { machine, read, .. } = &mut self.workers[worker];
        if !machine.wants_more() || *read == self.told.records.len() {
            return Ok(());
        }
        let to = (*read + count).min(self.told.records.len());
        let records = self.told.records[*read..to].to_vec();
        *read = to;
        self.step(worker, Duration::ZERO, Input::Records(records))
    }

    /// An update reaches its counter.
    fn land(&mut self, counter: &CounterId, update: &Update) -> Applied {
        let found = self.counters.get(counter).cloned();
        let before = found.clone().unwrap_or_default();
        if before.refusal(update).is_some() {
            return Applied::Refused(found);
        }
        let after = before.updated(update).unwrap();
        self.counters.insert(counter.clone(), after.clone());
        Applied::Taken(after)
    }

    fn carry_out(&mut self, request: &Request) -> Result<Answer, TestCaseError> {
        match request {
            Request::Update { counter, update, .. } => Ok(Answer::Updated(Ok(self.land(counter, update)))),
            Request::PutReport { report, .. } => {
                prop_assert!(self.told.reports.contains(report), "a wrong report: {report:?}");
                Ok(Answer::Reported(Ok(())))
            }
            Request::MoveCheckpoint { to, .. } => {
                let to: usize = to.as_str().parse().unwrap();
                for record in self.told.records[..to].iter().filter(|record| record.delta() != 0) {
                    let RecordKind::Row { key, .. } = &record.kind else { continue };
                    let counter = self.counters.get(&key.counter).cloned().unwrap_or_default();
                    prop_assert!(contains(&counter, SHARD, record.sequence), "the checkpoint passes {record:?}");
                }
                self.checkpoint = self.checkpoint.max(to);
                Ok(Answer::Done)
            }
            Request::Queue(..) => Ok(Answer::Done),
            other => panic!("likes alone lead to {other:?}"),
        }
    }

    fn happen(&mut self, worker: usize, happening: &Happening) -> Result<(), TestCaseError> {
        let choose = |index: &Index, len: usize| (len > 0).then(|| index.index(len));
        let unanswered = self.workers[worker].unanswered.len();
        match happening {
            Happening::Read(count) => self.read(worker, *count)?,
            Happening::Age => self.step(worker, AGE, Input::Woke)?,
            Happening::Answer(index) | Happening::AnswerTwice(index) => {
                let Some(at) = choose(index, unanswered) else { return Ok(()) };
                let (id, request) = self.workers[worker].unanswered.remove(at);
                let answer = self.carry_out(&request)?;
                self.step(worker, Duration::ZERO, Input::Answered(id, answer.clone()))?;
                if matches!(happening, Happening::AnswerTwice(_)) {
                    let before = self.workers[worker].machine.clone();
                    self.step(worker, Duration::ZERO, Input::Answered(id, answer))?;
                    prop_assert_eq!(&before, &self.workers[worker].machine);
                }
            }
            Happening::LoseAnswer(index) | Happening::GiveUp(index) => {
                let Some(at) = choose(index, unanswered) else { return Ok(()) };
                let (id, Request::Update { counter, update, .. }) = self.workers[worker].unanswered[at].clone() else {
                    return Ok(());
                };
                self.workers[worker].unanswered.remove(at);
                if matches!(happening, Happening::LoseAnswer(_)) {
                    self.land(&counter, &update);
                } else {
                    self.ghosts.push((counter, update));
                }
                let lost = Answer::Updated(Err(Fault::Transient("no answer".to_owned())));
                self.step(worker, Duration::ZERO, Input::Answered(id, lost))?;
            }
            Happening::GhostLands(index) => {
                let Some(at) = choose(index, self.ghosts.len()) else { return Ok(()) };
                let (counter, update) = self.ghosts.swap_remove(at);
                self.land(&counter, &update);
            }
            Happening::Crash => {
                let fresh = self.worker();
                let dead = std::mem::replace(&mut self.workers[worker], fresh);
                for (_, request) in dead.unanswered {
                    if let Request::Update { counter, update, .. } = request {
                        self.ghosts.push((counter, update));
                    }
                }
            }
        }
        Ok(())
    }

    /// One worker applies everything; then every update that was given up on is carried out.
    fn quiesce(&mut self) -> Result<(), TestCaseError> {
        // Each round reads or writes something, or nothing will.
        for _ in 0..=2 * self.told.records.len() {
            self.read(0, 3)?;
            self.step(0, AGE, Input::Woke)?;
            while let Some((id, request)) = self.workers[0].unanswered.pop() {
                let answer = self.carry_out(&request)?;
                self.step(0, Duration::ZERO, Input::Answered(id, answer))?;
            }
        }
        prop_assert_eq!(self.checkpoint, self.told.records.len(), "the worker stands still");
        for (counter, update) in std::mem::take(&mut self.ghosts) {
            self.land(&counter, &update);
        }
        Ok(())
    }

    fn rows(&self, post: u8, shard: u16) -> i64 {
        let RowKey { counter, shard } = key(post, shard);
        self.counters.get(&counter).and_then(|counter| counter.shards.get(&shard)).map_or(0, |tally| tally.rows)
    }
}

fn counter_of(request: &Request) -> Option<CounterId> {
    match request {
        Request::Update { counter, .. } => Some(counter.clone()),
        _ => None,
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn counts_depend_neither_on_cuts_nor_on_replays_nor_on_which_worker_sends(
        history in proptest::collection::vec(change(), 1..40),
        records in 1..8usize,
        concurrency in 1..4usize,
        schedule in proptest::collection::vec(happening(), 0..160),
    ) {
        let window = CaptureLimits { members: usize::MAX, age: Duration::MAX };
        let rules = Rules { cut: CutRules { records, age: AGE }, window, concurrency };
        let mut world = World::new(told(&history), rules);
        for (worker, happening) in &schedule {
            world.happen(*worker, happening)?;
        }
        world.quiesce()?;
        for post in 0..3 {
            for shard in 0..2 {
                let rows = world.told.rows.iter().filter(|((p, s, _), likes)| (*p, *s) == (post, shard) && **likes);
                prop_assert_eq!(world.rows(post, shard), i64::try_from(rows.count()).unwrap());
            }
        }
        for counter in world.counters.values() {
            prop_assert!(counter.is_sound());
        }
    }
}
