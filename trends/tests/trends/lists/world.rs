//! The world in which the tests of trending lists run, without I/O: a log of changes with two partitions, the states
//! that read it, the topic that they write, and a reader of that topic. Each message arrives when the schedule says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::ready;

use futures_util::FutureExt;
use tally_core::changes::{
    Body, DeploymentId, Effect as Change, Entry, Filter, LossNumber, Lost, Message, Opened, Opening, Place as LogPlace,
    Section, Side,
};
use tally_core::fold::{Mark, Position};
use tally_core::ids::{CounterId, CounterName, MemberKey, PostId, Region, RowKey, Sequence, Shard, StreamShard};
use tally_core::ports::log::Records;
use tally_core::time::UnixMillis;
use tally_core::topic::{Log, Offset, TopicId};
use tally_trends::partition::{Looked, Note, Publication, Setup};
use tally_trends::{BoardRules, Claim, Partition, Place, Published, Ranked, Rules, Shelf, Window, Writer};

pub(crate) const PARTITIONS: usize = 2;
pub(crate) const BEGAN: u64 = 100_000;
pub(crate) const LISTED: usize = 3;

/// The boards are so small that they are cut and refilled all the time.
pub(crate) const RULES: BoardRules = BoardRules { most: 7, keep: 4, least: 3, list: LISTED, min_count: 1 };

pub(crate) fn window(text: &str) -> Window {
    text.parse().unwrap()
}

pub(crate) fn windows() -> Vec<Window> {
    ["1m", "10m"].map(window).to_vec()
}

pub(crate) fn likes(region: Option<&str>) -> Place {
    Place { counter: CounterName::LIKES, region: region.map(|region| Region::new(region).unwrap()) }
}

pub(crate) fn deployment() -> DeploymentId {
    DeploymentId("test".into())
}

pub(crate) fn shard() -> StreamShard {
    StreamShard::from("label/s-1")
}

/// The `nth` change of the stream shard: a row of a post.
pub(crate) fn entry(nth: u64, post: &str, [before, after]: [Side; 2], second: u64) -> Entry {
    let counter = CounterId { post: PostId::new(post).unwrap(), name: CounterName::LIKES };
    let member = MemberKey::new("u").unwrap();
    let effect = Change::Weighed { member, before, after };
    Entry { key: RowKey { counter, shard: Shard::new(0).unwrap() }, effect, second, sequence: nth.into() }
}

/// A row that is absent, has no region, or is in the region `r<n>`.
pub(crate) fn side(region: Option<u8>) -> Side {
    let named = region.filter(|region| *region > 0).map(|region| Region::new(&format!("r{region}")).unwrap());
    Side { weight: i64::from(region.is_some()), region: named, v: None }
}

fn sides(entry: &Entry) -> (&Side, &Side) {
    let Change::Weighed { before, after, .. } = &entry.effect else { panic!("{entry:?} has none") };
    (before, after)
}

/// One state and its calls under way.
pub(crate) struct Reader {
    pub(crate) machine: Partition,
    /// The stored position at the time of each look.
    looks: VecDeque<Option<Position>>,
    pub(crate) publishing: Option<Publication>,
    pub(crate) claims: Vec<(u64, Vec<(Window, Claim)>)>,
    pub(crate) halted: bool,
    /// How often the log was opened, and how often everything was read again.
    pub(crate) opened: usize,
    pub(crate) anew: usize,
}

#[derive(Default)]
pub(crate) struct Partitioned {
    generation: u16,
    pub(crate) start: usize,
    /// Each message, with the time at which it was appended.
    pub(crate) log: Vec<(u64, Vec<u8>)>,
    pending: Vec<Entry>,
    /// The last sequence number of the stream shard in the log.
    sent: Option<Sequence>,
    /// The filter of the counters' fold.
    fold: Filter,
    folded: usize,
    stored: Option<Position>,
}

pub(crate) struct World {
    pub(crate) now: u64,
    /// All changes.
    pub(crate) changes: Vec<Entry>,
    pub(crate) partitions: Vec<Partitioned>,
    /// The losses that are open.
    losses: Vec<LossNumber>,
    pub(crate) readers: Vec<Reader>,
    writers: u64,
    /// Whether the broker can search by time.
    pub(crate) finds: bool,
    /// The topic of boards.
    pub(crate) topic: Vec<(String, Option<Vec<u8>>)>,
    pub(crate) shelf: Shelf,
    /// The number of lists that were called exact and were right.
    pub(crate) exact: usize,
    pub(crate) windows: Vec<Window>,
}

impl World {
    /// A deployment whose stream is as old as its table.
    pub(crate) fn new() -> Self {
        let mut world = Self::without_log();
        world.announce(None);
        world
    }

    /// The same, once everything has been idle for a while.
    pub(crate) fn settled() -> Self {
        let mut world = Self::new();
        world.settle(20);
        world
    }

    /// The same with one like.
    pub(crate) fn liked() -> Self {
        let mut world = Self::new();
        world.happen(0, None, Some(0));
        world.settle(20);
        world
    }

    pub(crate) fn without_log() -> Self {
        let mut world = Self {
            now: BEGAN,
            changes: Vec::new(),
            partitions: (0..PARTITIONS).map(|_| Partitioned { generation: 1, ..Partitioned::default() }).collect(),
            losses: Vec::new(),
            readers: Vec::new(),
            writers: 0,
            finds: true,
            topic: Vec::new(),
            shelf: Shelf::default(),
            exact: 0,
            windows: windows(),
        };
        (0..PARTITIONS).for_each(|index| {
            let reader = world.reader(index);
            world.readers.push(reader);
            world.ask(index);
        });
        world.shelf.read_whole();
        world
    }

    pub(crate) fn setup(&self, index: usize, writer: &str) -> Setup {
        Setup {
            deployment: deployment(),
            partition: u32::try_from(index).unwrap(),
            of: u32::try_from(PARTITIONS).unwrap(),
            writer: Writer(writer.into()),
            rules: Rules { windows: self.windows.clone(), boards: RULES, regions: 2, keys: usize::MAX },
        }
    }

    fn reader(&mut self, index: usize) -> Reader {
        self.writers += 1;
        let machine = Partition::new(self.setup(index, &format!("w{}", self.writers)));
        let (looks, claims) = (VecDeque::new(), Vec::new());
        Reader { machine, looks, publishing: None, claims, halted: false, opened: 0, anew: 0 }
    }

    /// Another process takes over the partition.
    pub(crate) fn replace(&mut self, index: usize) {
        self.readers[index] = self.reader(index);
        self.ask(index);
    }

    fn ask(&mut self, index: usize) {
        let stored = self.partitions[index].stored.clone();
        self.readers[index].looks.push_back(stored);
    }

    /// A row is added, removed or moved, and waits for the relay.
    pub(crate) fn happen(&mut self, subject: u8, before: Option<u8>, after: Option<u8>) {
        self.happen_at(subject, before, after, self.now);
    }

    pub(crate) fn happen_at(&mut self, subject: u8, before: Option<u8>, after: Option<u8>, second: u64) {
        let (nth, sides) = (self.changes.len() as u64 + 1, [side(before), side(after)]);
        let entry = entry(nth, &format!("p{subject}"), sides, second);
        self.changes.push(entry.clone());
        self.partitions[usize::from(subject) % PARTITIONS].pending.push(entry);
    }

    /// The weight of a row becomes a value that is not an integer.
    pub(crate) fn unreadable(&mut self) {
        self.happen(0, None, None);
        let (last, partition) = (self.changes.last().expect("it just happened"), &mut self.partitions[0]);
        let effect = Change::Unreadable { member: MemberKey::new("u").unwrap() };
        *partition.pending.last_mut().unwrap() = Entry { effect, ..last.clone() };
    }

    fn newest(&self) -> Option<Sequence> {
        (!self.changes.is_empty()).then(|| (self.changes.len() as u64).into())
    }

    pub(crate) fn append(&mut self, index: usize, body: Body) {
        let message = Message { read: UnixMillis(self.now * 1000), body };
        self.partitions[index].log.push((self.now, message.write(&deployment())));
    }

    /// Announces the stream shard in every partition, at its current position or from its beginning on.
    pub(crate) fn announce(&mut self, at: Option<Sequence>) {
        let fed = UnixMillis(self.now * 1000);
        for index in 0..PARTITIONS {
            let shards = vec![Opening { shard: shard(), at, fed }];
            self.append(index, Body::Opened(Opened { shards, ended: Vec::new() }));
        }
    }

    /// Announces a loss.
    pub(crate) fn lose(&mut self, next: Option<Sequence>) {
        let number = LossNumber(self.now * 1000 + self.losses.len() as u64);
        self.losses.push(number);
        for index in 0..PARTITIONS {
            self.append(index, Body::Lost(Lost { number, next: next.map(|next| (shard(), next)) }));
        }
    }

    /// Appends the waiting changes to the log, or loses them. The log then states up to when it is complete.
    pub(crate) fn feed(&mut self, lost: bool) {
        let to = self.newest();
        if lost && self.partitions.iter().any(|partition| !partition.pending.is_empty()) {
            self.partitions.iter_mut().for_each(|partition| partition.pending.clear());
            self.lose(Some((self.changes.len() as u64 + 1).into()));
            self.partitions.iter_mut().for_each(|partition| partition.sent = to);
        }
        let (fed, losses) = (Some(UnixMillis(self.now * 1000)), self.losses.clone());
        for index in 0..PARTITIONS {
            let partition = &mut self.partitions[index];
            let entries = std::mem::take(&mut partition.pending);
            let back = std::mem::replace(&mut partition.sent, to);
            let sections = vec![Section { shard: shard(), back, to, fed, entries }];
            self.append(index, Body::Sections { sections, losses: losses.clone() });
        }
    }

    /// Appends a copy of a message to the log.
    pub(crate) fn again(&mut self, nth: usize) {
        for partition in &mut self.partitions {
            if let Some((_, value)) = partition.log.get(nth % partition.log.len().max(1)).cloned() {
                partition.log.push((self.now, value));
            }
        }
    }

    /// The fold of the counters stores its position.
    pub(crate) fn store(&mut self, index: usize) {
        let Partitioned { generation, log, fold, folded, stored, .. } = &mut self.partitions[index];
        for (nth, (at, value)) in log.iter().enumerate().skip(*folded) {
            if let Ok(message) = Message::read(value, &deployment()) {
                fold.take(LogPlace::new(*generation, Offset(nth as u64)), UnixMillis(at * 1000), &message, |_, _| {});
            }
        }
        *folded = log.len();
        let at = LogPlace::new(*generation, Offset(*folded as u64));
        let last = log.last().map(|(at, value)| Mark::of(UnixMillis(at * 1000), value));
        *stored = Some(Position { at, last, filter: fold.clone(), ..Position::default() });
    }

    /// A partition loses its last messages, and others are appended at their offsets.
    pub(crate) fn lose_end(&mut self, index: usize, messages: usize) {
        let partition = &mut self.partitions[index];
        partition.log.truncate(partition.log.len() - messages);
        for _ in 0..messages {
            self.append(index, Body::Sections { sections: Vec::new(), losses: Vec::new() });
        }
    }

    /// The log keeps only this many seconds.
    pub(crate) fn trim(&mut self, index: usize, keeps: u64) {
        self.store(index);
        let (now, partition) = (self.now, &mut self.partitions[index]);
        let start = partition.log.partition_point(|(at, _)| at + keeps < now);
        partition.start = start.max(partition.start);
    }

    /// Creates the topic anew, which is a loss: the stream shard is announced again.
    pub(crate) fn recreate(&mut self) {
        for partition in &mut self.partitions {
            let Partitioned { generation, pending, sent, stored, .. } = std::mem::take(partition);
            *partition = Partitioned { generation: generation + 1, pending, sent, stored, ..Partitioned::default() };
        }
        self.lose(None);
        self.announce(self.newest());
    }

    /// Delivers the answer to a look.
    pub(crate) fn answer(&mut self, index: usize) {
        let (partition, reader) = (&self.partitions[index], &mut self.readers[index]);
        let Some(position) = reader.looks.pop_front() else { return };
        let looked = Looked { log: partition.log(), generation: partition.generation, position };
        let find = |at: UnixMillis| {
            let found = partition.log.iter().skip(partition.start).position(|(written, _)| *written * 1000 >= at.0);
            let found = found.filter(|_| self.finds);
            ready(Ok(found.map(|nth| Offset((partition.start + nth) as u64))))
        };
        let begun = looked.begin(reader.machine.here(), &self.windows, find).now_or_never();
        match begun.expect("nothing is waited for").unwrap() {
            Some(begun) => {
                reader.opened += 1;
                reader.machine.begin(begun);
                self.take_in(index);
            }
            None => self.ask(index),
        }
    }

    /// The position cannot be read.
    pub(crate) fn fail(&mut self, index: usize) {
        if self.readers[index].machine.reads() {
            self.readers[index].machine.pause();
            self.ask(index);
        }
    }

    pub(crate) fn deliver(&mut self, index: usize, most: usize) {
        let (partition, reader) = (&self.partitions[index], &mut self.readers[index]);
        let from = usize::try_from(reader.machine.position().0).unwrap();
        if from < partition.start || from > partition.log.len() {
            return self.fail(index);
        }
        let mut records = Records::default();
        for (nth, (at, value)) in partition.log.iter().enumerate().skip(from).take(most) {
            records.push(Offset(nth as u64), UnixMillis(at * 1000), None, Some(value), []);
        }
        if reader.machine.reads() && !records.is_empty() {
            reader.halted |= reader.machine.read(&records).is_err();
            self.take_in(index);
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
        self.readers[index].machine.acknowledged();
        self.take_in(index);
        self.shelf.settle();
        let told = self.shelf.moment();
        self.exact += self.right(&self.shelf);
        assert!(self.shelf.moment() >= told, "it never goes back");
    }

    /// Takes in what follows from an event.
    fn take_in(&mut self, index: usize) {
        let reader = &mut self.readers[index];
        if let Some(publication) = reader.machine.publication() {
            assert!(reader.publishing.is_none(), "one moment at a time");
            reader.publishing = Some(publication);
        }
        reader.anew += reader.machine.notes().iter().filter(|note| **note == Note::Anew).count();
    }

    /// Delivers everything that is under way, for this many seconds.
    pub(crate) fn settle(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += 1;
            self.feed(false);
            for index in 0..PARTITIONS {
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

    /// Checks each list that `shelf` calls exact, and returns the number of such lists.
    pub(crate) fn right(&self, shelf: &Shelf) -> usize {
        let mut exact = 0;
        for place in [likes(None), likes(Some("r1")), likes(Some("r2"))] {
            for window in self.windows.clone() {
                let Some(top) = shelf.top(&place, window, LISTED) else { continue };
                if top.claim == Claim::Exact {
                    let expected = gained(&self.changes, &place, top.list.from, top.list.moment, LISTED);
                    assert_eq!(top.list.items, expected, "{place:?} over {window} at {}", top.list.moment);
                    exact += 1;
                }
            }
        }
        exact
    }

    /// A reader that has read the topic up to `read` reads the rest.
    pub(crate) fn go_on(&self, shelf: &mut Shelf, read: usize) {
        self.topic[read..].iter().for_each(|(key, value)| give(shelf, key, value.as_deref()));
        shelf.settle();
    }

    /// A new reader of the topic as compaction leaves it.
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
        let topic = TopicId(format!("t{}", self.generation).into());
        Log { topic, start: Offset(self.start as u64), end: Offset(self.log.len() as u64) }
    }
}

fn give(shelf: &mut Shelf, key: &str, value: Option<&[u8]>) {
    if let Some(value) = value {
        shelf.take(Published::read(key.as_bytes(), value).unwrap());
    }
}

/// What each subject has truly gained after `from`, up to `moment`.
pub(crate) fn sums<'a>(changes: &'a [Entry], place: &Place, from: u64, moment: u64) -> BTreeMap<&'a PostId, i64> {
    let mut sums = BTreeMap::new();
    for change in changes.iter().filter(|change| change.second > from && change.second <= moment) {
        let weight = |side: &Side| if place.region.is_none() || side.region == place.region { side.weight } else { 0 };
        let (before, after) = sides(change);
        *sums.entry(&change.key.counter.post).or_default() += weight(after) - weight(before);
    }
    sums
}

/// The true list: the `most` subjects with the greatest gains after `from`, up to `moment`.
pub(crate) fn gained(changes: &[Entry], place: &Place, from: u64, moment: u64, most: usize) -> Vec<Ranked> {
    let worth = sums(changes, place, from, moment).into_iter().filter(|(_, sum)| *sum >= RULES.min_count);
    let mut ranked: Vec<Ranked> = worth.map(|(subject, sum)| Ranked::new(subject.clone(), sum)).collect();
    ranked.sort_unstable();
    ranked.truncate(most);
    ranked
}
