//! A ledger of two partitions, the machines that read it, the topic that they write, and a reader of that. What is on its way
//! arrives when the schedule says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tally_core::fence::{Log, Offset, TopicId};
use tally_core::ids::{CounterName, PostId, Region};
use tally_core::ledger::{Change, Seconds, Side};
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;
use tally_trends::partition::{Effect, Input, Publication, Setup};
use tally_trends::saved::Disk;
use tally_trends::{BoardRules, Claim, Partition, Place, Published, Ranked, Shelf, Standing, Window, Writer};

pub(crate) const PARTITIONS: usize = 2;
pub(crate) const BEGAN: u64 = 100_000;
pub(crate) const LISTED: usize = 3;

const RULES: BoardRules = BoardRules { most: 7, keep: 4, least: 3, list: LISTED, min_count: 1 };

pub(crate) fn window(text: &str) -> Window {
    text.parse().unwrap()
}

pub(crate) fn windows() -> Vec<Window> {
    ["1m", "10m"].map(window).to_vec()
}

pub(crate) fn likes(region: Option<&str>) -> Place {
    Place { counter: CounterName::LIKES, region: region.map(|region| Region::new(region).unwrap()) }
}

/// One machine and what is under way for it.
pub(crate) struct Reader {
    pub(crate) machine: Partition,
    looks: VecDeque<(u64, Log)>,
    pub(crate) publishing: Option<Publication>,
    pub(crate) claims: Vec<(u64, Vec<(Window, Claim)>)>,
    pub(crate) halted: bool,
}

#[derive(Default)]
pub(crate) struct Partitioned {
    pub(crate) topic: u64,
    pub(crate) start: usize,
    /// When each was written, and what it says.
    pub(crate) log: Vec<(u64, Vec<u8>)>,
    pending: Vec<Vec<u8>>,
}

pub(crate) struct World {
    pub(crate) now: u64,
    as_of: u64,
    /// Every change there was.
    pub(crate) changes: Vec<Change>,
    pub(crate) partitions: Vec<Partitioned>,
    pub(crate) lapses: Vec<Seconds>,
    pub(crate) readers: Vec<Reader>,
    writers: u64,
    /// Whether the broker can look for a time.
    pub(crate) finds: bool,
    /// The topic of boards.
    pub(crate) topic: Vec<(String, Option<Vec<u8>>)>,
    pub(crate) shelf: Shelf,
    /// Lists that were called exact, and were.
    pub(crate) exact: usize,
    pub(crate) windows: Vec<Window>,
    /// That of the first partition, and of how many milliseconds what it keeps is.
    disk: Option<(Disk, u64)>,
}

impl World {
    pub(crate) fn new() -> Self {
        let mut world = Self {
            now: BEGAN,
            as_of: BEGAN,
            changes: Vec::new(),
            partitions: (0..PARTITIONS).map(|_| Partitioned::default()).collect(),
            lapses: Vec::new(),
            readers: Vec::new(),
            writers: 0,
            finds: true,
            topic: Vec::new(),
            shelf: Shelf::default(),
            exact: 0,
            windows: windows(),
            disk: None,
        };
        world.readers = (0..PARTITIONS).map(|index| world.reader(index)).collect();
        world.shelf.read_whole();
        world
    }

    /// One whose first partition has a disk.
    pub(crate) fn keeping(disk: Disk, every: u64) -> Self {
        let mut world = Self::new();
        world.disk = Some((disk, every));
        world.replace(0);
        world
    }

    pub(crate) fn setup(&self, index: usize, writer: &str) -> Setup {
        Setup {
            partition: u32::try_from(index).unwrap(),
            of: u32::try_from(PARTITIONS).unwrap(),
            writer: Writer(writer.into()),
            windows: self.windows.clone(),
            boards: RULES,
            regions: 2,
            keys: usize::MAX,
        }
    }

    fn reader(&mut self, index: usize) -> Reader {
        self.writers += 1;
        let mut machine = Partition::new(self.setup(index, &format!("w{}", self.writers)));
        if let Some((disk, every)) = self.disk.as_ref().filter(|_| index == 0) {
            machine = machine.keeping(disk.saved(), *every);
        }
        Reader { machine, looks: VecDeque::new(), publishing: None, claims: vec![], halted: false }
    }

    /// Another process has the partition from here on.
    pub(crate) fn replace(&mut self, index: usize) {
        self.readers[index] = self.reader(index);
    }

    /// A row comes, goes, or moves; it waits to be fed.
    pub(crate) fn happen(&mut self, subject: u8, before: Option<u8>, after: Option<u8>) {
        let change = self.change(subject, before, after, self.now);
        let value = message(&change);
        self.changes.push(change);
        self.partitions[usize::from(subject) % PARTITIONS].pending.push(value);
    }

    pub(crate) fn change(&self, subject: u8, before: Option<u8>, after: Option<u8>, second: u64) -> Change {
        let side = |region: Option<u8>| Side {
            region: region.filter(|region| *region > 0).and_then(|region| Region::new(&format!("r{region}"))),
            weight: i64::from(region.is_some()),
        };
        let subject = PostId::new(&format!("p{subject}")).unwrap();
        let sequence = (self.changes.len() as u64 + 1).into();
        Change { subject, counter: CounterName::LIKES, before: side(before), after: side(after), second, sequence }
    }

    /// What waits is written to the log, or lost with a lapse, and it is stored that it is.
    pub(crate) fn feed(&mut self, lost: bool) {
        for partition in &mut self.partitions {
            let pending = std::mem::take(&mut partition.pending);
            if lost && !pending.is_empty() {
                self.lapses.push(Seconds { first: self.as_of, last: self.now });
            } else {
                partition.log.extend(pending.into_iter().map(|value| (self.now, value)));
            }
        }
        self.as_of = self.now;
    }

    /// A message of the log is written once more.
    pub(crate) fn again(&mut self, nth: usize) {
        for partition in &mut self.partitions {
            if let Some((_, value)) = partition.log.get(nth % partition.log.len().max(1)).cloned() {
                partition.log.push((self.now, value));
            }
        }
    }

    /// What is stored of the ledger reaches a machine.
    pub(crate) fn learn(&mut self, index: usize) {
        let lapses = self.lapses.iter().copied().collect();
        let as_of = Some(UnixMillis(self.as_of * 1000));
        self.input(index, Input::Standing(Standing { as_of, since: Some(UnixMillis(0)), lapses }));
    }

    /// The broker's answer reaches a machine: of when it was asked.
    pub(crate) fn answer(&mut self, index: usize) {
        if let Some((look, log)) = self.readers[index].looks.pop_front() {
            self.input(index, Input::Log(look, log));
        }
    }

    pub(crate) fn deliver(&mut self, index: usize, most: usize) {
        let from = usize::try_from(self.readers[index].machine.position().0).unwrap();
        let mut records = Records::default();
        for (nth, (at, value)) in self.partitions[index].log.iter().enumerate().skip(from).take(most) {
            records.push(Offset(nth as u64), UnixMillis(at * 1000), None, Some(value), []);
        }
        if self.readers[index].machine.reads() && !records.is_empty() {
            self.input(index, Input::Records(Arc::new(records)));
        }
    }

    pub(crate) fn acknowledge(&mut self, index: usize) {
        let Some(Publication { boards, gone, tick }) = self.readers[index].publishing.take() else { return };
        self.readers[index].claims.push((tick.moment, tick.claims.clone()));
        let boards = boards.iter().map(|board| (board.key(), Some(board.value())));
        let messages: Vec<_> = boards.chain(gone.into_iter().map(|key| (key, None))).collect();
        for (key, value) in messages.into_iter().chain([(tick.key(), Some(tick.value()))]) {
            give(&mut self.shelf, &key, value.as_deref());
            self.topic.push((key, value));
        }
        self.input(index, Input::Published);
        self.shelf.settle();
        let told = self.shelf.moment();
        self.exact += self.right(&self.shelf);
        assert!(self.shelf.moment() >= told, "it never goes back");
    }

    pub(crate) fn input(&mut self, index: usize, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut effects = Vec::new();
            self.readers[index].machine.step(input, &mut effects);
            for effect in effects {
                let partition = &self.partitions[index];
                let reader = &mut self.readers[index];
                match effect {
                    Effect::Look(look) => reader.looks.push_back((look, partition.log())),
                    Effect::Find(at) => {
                        let needed = partition.log.iter().skip(partition.start);
                        let found = needed.clone().position(|(written, _)| *written * 1000 >= at.0);
                        let found = found.filter(|_| self.finds);
                        inputs.push(Input::Found(found.map(|nth| Offset((partition.start + nth) as u64))));
                    }
                    Effect::Load(about) => {
                        let (disk, _) = self.disk.as_ref().unwrap();
                        inputs.push(Input::Loaded(disk.stretch(&about).map(Arc::new)));
                    }
                    Effect::Keep(keep) => self.disk.as_ref().unwrap().0.keep(&keep).unwrap(),
                    Effect::Open(_) => inputs.push(Input::Opened),
                    Effect::Publish(publication) => {
                        assert!(reader.publishing.is_none(), "one moment at a time");
                        reader.publishing = Some(publication);
                    }
                    Effect::Halt(_) => reader.halted = true,
                    Effect::Tell(_) => {}
                }
            }
        }
    }

    /// Everything that is under way arrives, for so many seconds.
    pub(crate) fn settle(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1;
            self.feed(false);
            for index in 0..PARTITIONS {
                self.learn(index);
                self.answer(index);
                for _ in 0..20 {
                    self.deliver(index, usize::MAX);
                    self.acknowledge(index);
                }
            }
        }
    }

    /// The same until no partition is more than a moment behind another.
    pub(crate) fn settle_until_level(&mut self) {
        for _ in 0..300 {
            let published: BTreeSet<_> = self.readers.iter().map(|reader| reader.machine.published()).collect();
            if published.last().zip(published.first()).is_some_and(|(last, first)| last - first <= 1) {
                return;
            }
            self.settle(1);
        }
        panic!("partitions stay apart");
    }

    /// Each list that `shelf` calls exact is what rows gained; how many there are.
    pub(crate) fn right(&self, shelf: &Shelf) -> usize {
        let mut exact = 0;
        for place in [likes(None), likes(Some("r1")), likes(Some("r2"))] {
            for window in self.windows.clone() {
                let Some(top) = shelf.top(&place, window, LISTED) else { continue };
                if top.claim == Claim::Exact {
                    let expected = gained(&self.changes, &place, top.list.from, top.list.moment);
                    assert_eq!(top.list.items, expected, "{place:?} over {window} at {}", top.list.moment);
                    exact += 1;
                }
            }
        }
        exact
    }

    /// A reader that has the topic up to `read` reads the rest of it.
    pub(crate) fn go_on(&self, shelf: &mut Shelf, read: usize) {
        self.topic[read..].iter().for_each(|(key, value)| give(shelf, key, value.as_deref()));
        shelf.settle();
    }

    /// A reader that begins with the topic as compaction leaves it.
    pub(crate) fn fresh_shelf(&self) -> Shelf {
        let latest: BTreeMap<&str, usize> =
            self.topic.iter().enumerate().map(|(nth, (key, _))| (key.as_str(), nth)).collect();
        let kept: BTreeSet<usize> = latest.into_values().collect();
        let mut shelf = Shelf::default();
        kept.into_iter().for_each(|nth| give(&mut shelf, &self.topic[nth].0, self.topic[nth].1.as_deref()));
        shelf.read_whole();
        shelf.settle();
        shelf
    }
}

impl Partitioned {
    pub(crate) fn log(&self) -> Log {
        let topic = TopicId(format!("t{}", self.topic).into());
        Log { topic, start: Offset(self.start as u64), end: Offset(self.log.len() as u64) }
    }
}

fn give(shelf: &mut Shelf, key: &str, value: Option<&[u8]>) {
    if let Some(value) = value {
        shelf.take(Published::read(key.as_bytes(), value).unwrap());
    }
}

pub(crate) fn message(change: &Change) -> Vec<u8> {
    let region = |side: &Side| side.region.as_ref().map(ToString::to_string);
    let Change { subject, counter, before, after, second, sequence } = change;
    let entry = serde_json::json!([
        subject.as_str(),
        counter.marked(),
        region(before),
        before.weight,
        region(after),
        after.weight,
        second,
        sequence.as_str()
    ]);
    serde_json::to_vec(&serde_json::json!({"v": 1, "g": 1, "changes": [entry]})).unwrap()
}

/// The first of what rows gained from behind `from` up to `moment`.
fn gained(changes: &[Change], place: &Place, from: u64, moment: u64) -> Vec<Ranked> {
    let mut sums: BTreeMap<&PostId, i64> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.second > from && change.second <= moment) {
        let weight = |side: &Side| if place.region.is_none() || side.region == place.region { side.weight } else { 0 };
        *sums.entry(&change.subject).or_default() += weight(&change.after) - weight(&change.before);
    }
    let worth = sums.into_iter().filter(|(_, sum)| *sum >= 1);
    let mut ranked: Vec<Ranked> = worth.map(|(subject, sum)| Ranked::new(subject.clone(), sum)).collect();
    ranked.sort_unstable();
    ranked.truncate(LISTED);
    ranked
}
