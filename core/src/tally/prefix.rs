//! Records in order, gathered per counter until they are to be written.
//!
//! What is written together is a prefix of the stream shard: it is cut between two records for all counters alike, so that
//! "everything up to here is applied" stays one number.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Record, RecordKind, Span};
use crate::Map;
use crate::counter::{Feeder, Touch, Update};
use crate::ids::{CounterId, MemberKey, Ordinal, ReservedKey, RowKey, Sequence, Shard, ShardSet};
use crate::milestone::{Events, Guard, Step, Terms, Winner, guard};
use crate::time::{Now, UnixMillis};
use crate::watermark::{Prune, Watermarks};
use crate::window::{Phase, WindowRun};

/// When a prefix ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutRules {
    /// Records read.
    pub records: usize,
    /// Time since the first record.
    pub age: Duration,
}

/// How far behind a reader may be before it gathers for longer. Records say when they were written to the second, and clocks differ.
const BEHIND: Duration = Duration::from_secs(2);

/// The longest that a reader which is behind gathers.
const LONGEST: Duration = Duration::from_secs(5);

/// The longest that records are gathered because the prefix before took as long to write: a store that was away for a minute is
/// no reason to gather for one.
const AS_LONG: Duration = Duration::from_secs(2);

/// The most records that are gathered for either reason, where no other share was given out.
const MOST: usize = 32_000;

impl CutRules {
    /// What they become behind a prefix that took so long to write: the busier the store is, or the more it throttles a counter,
    /// the more records share an update.
    #[must_use]
    fn as_long_as(self, took: Duration, most: usize) -> Self {
        let age = took.min(AS_LONG).max(self.age);
        let times = age.as_millis() / self.age.as_millis().max(1);
        let records = self.records.saturating_mul(usize::try_from(times).unwrap_or(usize::MAX));
        Self { records: records.min(most).max(self.records), age }
    }

    /// What they become for a reader that is behind: it gathers what there is until it has caught up.
    #[must_use]
    fn behind(self, most: usize) -> Self {
        Self { records: self.records.max(most), age: self.age.max(LONGEST) }
    }
}

/// Why a prefix ends here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// It holds as many records as it may.
    Size,
    /// Its first record has waited long enough.
    Age,
    /// It ends in a window's closing marker, which is written by itself behind everything before it.
    Boundary,
    /// One more record would make an update larger than the store takes, or its sum larger than 64 bits.
    Width,
    /// The reader ends here: the shard has ended, or the process stops.
    Stop,
}

impl Cut {
    /// The cut, as a metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Age => "age",
            Self::Boundary => "boundary",
            Self::Width => "width",
            Self::Stop => "stop",
        }
    }
}

/// The most shards of one counter in one update: its expressions have to stay below 4 KB and 300 operators.
pub const MAX_TOUCHED: usize = 46;

/// Gathers one stream shard's records into prefixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    rules: CutRules,
    /// Those of the prefix that is gathered.
    now: CutRules,
    /// How long the prefix before took to write.
    took: Duration,
    /// The most records that a prefix gathers, unless the rules say more.
    most: usize,
    gathered: Prefix,
    opened: Option<Duration>,
}

impl Fold {
    /// An empty fold.
    pub fn new(rules: CutRules) -> Self {
        Self { rules, now: rules, took: Duration::ZERO, most: MOST, gathered: Prefix::default(), opened: None }
    }

    /// Takes the next record, or says that the prefix has to be written before it.
    pub fn push(&mut self, record: &Record, now: Now) -> Result<(), Cut> {
        if self.gathered.boundary.is_some() {
            return Err(Cut::Boundary);
        }
        let is_behind = now.wall.since(record.written) > BEHIND;
        if self.is_empty() || !is_behind {
            self.now = self.rules.as_long_as(self.took, self.most);
        }
        if self.is_empty() && is_behind {
            self.now = self.now.behind(self.most);
        }
        match &record.kind {
            RecordKind::Row { key, .. } if record.delta() != 0 => self.gathered.touch(key, record)?,
            RecordKind::Unreadable { key, .. } => self.gathered.touch(key, record)?,
            RecordKind::Marker { key, marker } if marker.phase == Phase::Low => self.gathered.touch(key, record)?,
            RecordKind::Marker { key, marker } => {
                self.gathered.boundary =
                    Some(Boundary { key: key.clone(), run: marker.run, sequence: record.sequence });
            }
            RecordKind::Row { .. } | RecordKind::Reserved | RecordKind::Foreign(_) => {}
        }
        self.gathered.last = Some(record.sequence);
        self.gathered.written = self.gathered.written.max(record.written);
        self.gathered.records += 1;
        self.opened.get_or_insert(now.at);
        Ok(())
    }

    /// Whether the prefix has to be written now, and why.
    pub fn due(&self, now: Duration) -> Option<Cut> {
        if self.gathered.boundary.is_some() {
            Some(Cut::Boundary)
        } else if self.gathered.records >= self.now.records {
            Some(Cut::Size)
        } else {
            self.due_at().filter(|due| now >= *due).map(|_| Cut::Age)
        }
    }

    /// When it will be due by age, if nothing else happens.
    pub fn due_at(&self) -> Option<Duration> {
        self.opened.map(|opened| opened.saturating_add(self.now.age))
    }

    /// Whether nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.opened.is_none()
    }

    /// The prefix that was taken out last is written, and took so long.
    pub fn wrote(&mut self, took: Duration) {
        self.took = took;
    }

    /// The reader has passed on everything written before this time.
    pub fn read_up_to(&mut self, at: UnixMillis, now: Now) {
        if now.wall.since(at) <= BEHIND {
            self.drained();
        }
    }

    /// The reader has passed on what there is for now: there is nothing to gather for longer.
    pub fn drained(&mut self) {
        self.now = self.rules.as_long_as(self.took, self.most);
    }

    /// As many records may be gathered at most while the reader is behind or the store is slow: the share of this stream shard
    /// in what one process keeps in memory.
    pub fn share(&mut self, most: usize) {
        self.most = most;
    }

    /// Takes out what was gathered.
    pub fn take(&mut self) -> Prefix {
        self.opened = None;
        std::mem::take(&mut self.gathered)
    }
}

/// Consecutive records of one stream shard, by counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix {
    /// What each counter gains.
    pub counters: Map<CounterId, CounterRecords>,
    /// The closing marker it ends in.
    pub boundary: Option<Boundary>,
    /// The last record: where the checkpoint goes once everything is answered.
    pub last: Option<Sequence>,
    /// When its latest record was written, to the second: everything written before is covered, too.
    pub written: UnixMillis,
    /// How many records it covers.
    pub records: usize,
}

impl Prefix {
    fn touch(&mut self, key: &RowKey, record: &Record) -> Result<(), Cut> {
        let counter = self.counters.entry_ref(&key.counter).or_default();
        if !counter.touched.contains(key.shard) && counter.touched.len() >= MAX_TOUCHED {
            return Err(Cut::Width);
        }
        let delta = record.delta();
        let moved = counter.moved.checked_add(delta.unsigned_abs()).filter(|moved| *moved <= i64::MAX.unsigned_abs());
        counter.moved = moved.ok_or(Cut::Width)?;
        let doubt = matches!(record.kind, RecordKind::Unreadable { .. });
        let by = winner(record, delta);
        counter.push(Entry { sequence: record.sequence, shard: key.shard, delta, doubt, written: record.written, by });
        Ok(())
    }
}

/// Who or what a record names that lifts a total; `None` where it does not, or where a cell does not say what it took in.
fn winner(record: &Record, delta: i64) -> Option<Winner> {
    let RecordKind::Row { member, span, .. } = &record.kind else { return None };
    if delta <= 0 {
        return None;
    }
    match ReservedKey::read(member.as_str()) {
        Some(ReservedKey::Cell { topic, partition }) => {
            let Span { generation, from, to } = (*span)?;
            Some(Winner::Events(Events { topic: topic.into(), partition, generation, from, to, nth: 0, gained: delta }))
        }
        _ => Some(Winner::Member(MemberKey::clone(member))),
    }
}

/// A window's closing marker, waiting to be written by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The row key recounted.
    pub key: RowKey,
    /// The run.
    pub run: WindowRun,
    /// The marker's position.
    pub sequence: Sequence,
}

/// One counter's records of one prefix, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterRecords {
    records: Vec<Entry>,
    touched: ShardSet,
    /// The sum of the deltas' sizes: within 64 bits, so no sum of any of them can leave these.
    moved: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    sequence: Sequence,
    shard: Shard,
    delta: i64,
    /// What the row weighed or weighs is not known.
    doubt: bool,
    /// When the change reached the table.
    written: UnixMillis,
    /// Who or what is the winner if it lifts the total to a threshold.
    by: Option<Winner>,
}

impl Entry {
    fn step(&self) -> Step<'_> {
        Step { delta: self.delta, written: self.written, by: self.by.as_ref() }
    }
}

/// What an update needs besides the records.
#[derive(Clone, Debug)]
pub struct UpdateContext<'a> {
    /// The stream shard.
    pub shard: Ordinal,
    /// Now.
    pub now: UnixMillis,
    /// Its nearest closed ancestors.
    pub ancestors: &'a [Ordinal],
    /// `F`.
    pub closed_through: Option<Ordinal>,
    /// The counter's watermarks as last seen, for pruning; `None` where they are not remembered.
    pub seen: Option<&'a Watermarks>,
    /// What is known of milestones.
    pub terms: Terms,
}

impl CounterRecords {
    fn push(&mut self, entry: Entry) {
        self.touched.insert(entry.shard);
        self.records.push(entry);
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is left to write.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What is left when everything up to `applied` is in the counter already.
    #[must_use]
    pub fn after(&self, applied: Sequence) -> Self {
        let mut left = Self { moved: self.moved, ..Self::default() };
        for entry in self.records.iter().filter(|entry| entry.sequence > applied) {
            left.push(entry.clone());
        }
        left
    }

    /// The one update that takes all of them into the counter; `None` where there are none.
    pub fn update(&self, context: &UpdateContext<'_>) -> Option<Update> {
        let (first, last) = (self.records.first()?.sequence, self.records.last()?.sequence);
        let mut gained: BTreeMap<Shard, (i64, bool)> = BTreeMap::new();
        for entry in &self.records {
            let (delta, doubt) = gained.entry(entry.shard).or_default();
            *delta += entry.delta;
            *doubt |= entry.doubt;
        }
        let touch = |(shard, (delta, doubt))| Touch { shard, delta, feeder: Feeder::Usual, window: None, doubt };
        let update = context.update(first, last, gained.into_iter().map(touch).collect());
        Some(Update { guard: self.guard(&context.terms), ..update })
    }

    /// What their update wants of the total.
    pub fn guard(&self, terms: &Terms) -> Option<Guard> {
        guard(terms, self.records.iter().map(Entry::step))
    }
}

impl Boundary {
    /// The update that puts the window's token beside the rows exactly there.
    pub fn update(&self, context: &UpdateContext<'_>) -> Update {
        let touch =
            Touch { shard: self.key.shard, delta: 0, feeder: Feeder::Usual, window: Some(self.run), doubt: false };
        context.update(self.sequence, self.sequence, vec![touch])
    }
}

impl UpdateContext<'_> {
    fn update(&self, first: Sequence, last: Sequence, touched: Vec<Touch>) -> Update {
        Update {
            shard: self.shard,
            first,
            last,
            at: self.now,
            touched,
            ancestors: self.ancestors.to_vec(),
            closed_through: self.closed_through,
            prune: match self.seen {
                Some(seen) => seen.prunable(self.closed_through, self.shard),
                None => Prune::unseen(self.closed_through, self.shard, self.ancestors),
            },
            guard: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CounterId, MemberKey, PostId};
    use crate::weight::Weight;
    use crate::window::Marker;

    const RULES: CutRules = CutRules { records: 100, age: Duration::from_millis(100) };
    const NOW: Now = Now { at: Duration::ZERO, wall: UnixMillis(0) };

    fn row(sequence: u64, key: &str, before: bool, after: bool) -> Record {
        weighing(sequence, key, Weight::of_presence(before), Weight::of_presence(after))
    }

    fn weighing(sequence: u64, key: &str, before: Weight, after: Weight) -> Record {
        let kind = RecordKind::Row {
            key: key.parse().unwrap(),
            member: MemberKey::new("u").unwrap(),
            before,
            after,
            span: None,
            regions: None,
        };
        Record { sequence: sequence.into(), written: UnixMillis(0), kind }
    }

    fn likes(post: &str) -> CounterId {
        CounterId::likes(PostId::new(post).unwrap())
    }

    fn marker(sequence: u64, key: &str, phase: Phase) -> Record {
        let marker = Marker { run: WindowRun::from(1), phase };
        let kind = RecordKind::Marker { key: key.parse().unwrap(), marker };
        Record { sequence: sequence.into(), written: UnixMillis(0), kind }
    }

    fn context() -> UpdateContext<'static> {
        UpdateContext {
            shard: Ordinal(1),
            now: UnixMillis(9),
            ancestors: &[],
            closed_through: None,
            seen: None,
            terms: Terms::default(),
        }
    }

    #[test]
    fn nothing_is_gathered_behind_a_closing_marker() {
        let mut fold = Fold::new(RULES);
        fold.push(&row(1, "p#0", false, true), NOW).unwrap();
        fold.push(&marker(2, "p#0", Phase::High), NOW).unwrap();
        assert_eq!(fold.due(NOW.at), Some(Cut::Boundary));
        assert_eq!(fold.push(&row(3, "q#0", false, true), NOW), Err(Cut::Boundary));
        let prefix = fold.take();
        let boundary = prefix.boundary.unwrap().update(&context());
        assert_eq!((boundary.first, boundary.total(), boundary.touched.len()), (2.into(), Ok(0), 1));
        assert_eq!(prefix.counters[&likes("p")].len(), 1, "the marker is not among the counter's records");
        assert_eq!(fold.push(&row(3, "q#0", false, true), NOW), Ok(()));
    }

    #[test]
    fn an_opening_marker_touches_its_shard_without_changing_it() {
        let mut fold = Fold::new(RULES);
        fold.push(&marker(1, "p#3", Phase::Low), NOW).unwrap();
        let prefix = fold.take();
        let update = prefix.counters[&likes("p")].update(&context()).unwrap();
        assert_eq!((update.touched[0].shard.index(), update.touched[0].delta), (3, 0));
    }

    #[test]
    fn a_record_that_changes_no_presence_moves_the_checkpoint_and_no_counter() {
        let mut fold = Fold::new(RULES);
        fold.push(&row(7, "p#0", true, true), NOW).unwrap();
        let prefix = fold.take();
        assert_eq!((prefix.counters.len(), prefix.last, prefix.records), (0, Some(7.into()), 1));
    }

    #[test]
    fn a_row_of_unreadable_weight_casts_doubt_and_adds_nothing() {
        let mut fold = Fold::new(RULES);
        let kind = RecordKind::Unreadable { key: "p#2".parse().unwrap(), member: MemberKey::new("u").unwrap() };
        fold.push(&row(1, "p#2", false, true), NOW).unwrap();
        fold.push(&Record { sequence: 2.into(), written: UnixMillis(0), kind }, NOW).unwrap();
        fold.push(&row(3, "p#0", false, true), NOW).unwrap();
        let update = fold.take().counters[&likes("p")].update(&context()).unwrap();
        let touched: Vec<_> =
            update.touched.iter().map(|touch| (touch.shard.index(), touch.delta, touch.doubt)).collect();
        assert_eq!(touched, [(0, 1, false), (2, 1, true)]);
        let counter = crate::counter::Counter::default().updated(&update).unwrap();
        let tally = &counter.shards[&Shard::new(2).unwrap()];
        assert_eq!((tally.rows, tally.switches, tally.suspect), (1, 1, true));
        assert!(!counter.is_sound());
    }

    #[test]
    fn a_prefix_is_due_by_size_and_by_age() {
        let mut fold = Fold::new(CutRules { records: 2, ..RULES });
        assert_eq!(fold.due(RULES.age), None);
        fold.push(&row(1, "p#0", false, true), NOW).unwrap();
        assert_eq!(fold.due(RULES.age), Some(Cut::Age));
        fold.push(&row(2, "p#0", false, true), NOW).unwrap();
        assert_eq!(fold.due(NOW.at), Some(Cut::Size));
    }

    #[test]
    fn a_prefix_is_gathered_for_as_long_as_the_one_before_took_to_write_up_to_a_bound() {
        let took = |millis| {
            let CutRules { records, age } = RULES.as_long_as(Duration::from_millis(millis), 1_500);
            (records, age.as_millis())
        };
        assert_eq!([took(0), took(100)], [(100, 100); 2]);
        assert_eq!([took(700), took(60_000)], [(700, 700), (1_500, 2_000)]);
        let mut fold = Fold::new(RULES);
        for (took, due) in [(0, 100), (300, 300), (20, 100)] {
            fold.wrote(Duration::from_millis(took));
            fold.push(&row(1, "p#0", false, true), NOW).unwrap();
            assert_eq!(fold.due_at(), Some(Duration::from_millis(due)));
            fold.take();
        }
    }

    #[test]
    fn a_reader_that_is_behind_gathers_until_it_has_caught_up_up_to_a_bound() {
        let at = |seconds: u64| Now { at: Duration::from_secs(seconds), wall: UnixMillis(100_000 + seconds * 1_000) };
        let written =
            |sequence, second: u64| Record { written: UnixMillis(second * 1_000), ..row(sequence, "p#0", false, true) };
        let mut fold = Fold::new(CutRules { records: 2, ..RULES });
        fold.share(9);
        for (sequence, second) in (1..5).zip(90..) {
            fold.push(&written(sequence, second), at(1)).unwrap();
            assert_eq!(fold.due(at(1).at), None, "one that is {second} s old");
        }
        assert_eq!(fold.due(at(5).at), None);
        assert_eq!(fold.due(at(6).at), Some(Cut::Age), "up to a time");
        fold.push(&written(5, 99), at(1)).unwrap();
        assert_eq!(fold.due(at(1).at), Some(Cut::Size), "it has caught up: the usual rules");
        fold.take();
        for sequence in 6..14 {
            fold.push(&written(sequence, 50), at(2)).unwrap();
            assert_eq!(fold.due(at(2).at), None);
        }
        fold.push(&written(14, 50), at(2)).unwrap();
        assert_eq!(fold.due(at(2).at), Some(Cut::Size), "up to its share");
        fold.take();
        for sequence in [15, 16] {
            assert_eq!(fold.due(at(2).at), None, "records say when they were written to the second");
            fold.push(&written(sequence, 100), at(2)).unwrap();
        }
        assert_eq!(fold.due(at(2).at), Some(Cut::Size), "one that was never behind");
    }

    #[test]
    fn a_reader_that_is_behind_and_has_read_all_there_is_gathers_no_longer() {
        let now = Now { at: Duration::ZERO, wall: UnixMillis(100_000) };
        let mut fold = Fold::new(RULES);
        for sequence in [1, 2] {
            fold.push(&Record { written: UnixMillis(50_000), ..row(sequence, "p#0", false, true) }, now).unwrap();
            assert_eq!(fold.due(RULES.age), None, "it is behind");
        }
        fold.drained();
        assert_eq!(fold.due(RULES.age), Some(Cut::Age));
        fold.take();
        fold.push(&Record { written: UnixMillis(50_000), ..row(3, "p#0", false, true) }, now).unwrap();
        assert_eq!(fold.due(RULES.age), None, "there was more, and it is behind");
    }

    /// The clock that dates records is not this one's.
    #[test]
    fn a_reader_at_the_end_is_not_behind_however_old_records_seem() {
        let now = Now { at: Duration::ZERO, wall: UnixMillis(100_000) };
        let mut fold = Fold::new(RULES);
        fold.push(&row(1, "p#0", false, true), now).unwrap();
        fold.read_up_to(UnixMillis(97_000), now);
        assert_eq!(fold.due(RULES.age), None);
        fold.read_up_to(UnixMillis(98_000), now);
        assert_eq!(fold.due(RULES.age), Some(Cut::Age));
    }

    #[test]
    fn what_the_rules_say_is_the_least() {
        let large = CutRules { records: 40_000, age: Duration::from_secs(9) };
        assert_eq!([large.behind(10), large.as_long_as(Duration::from_secs(60), 10)], [large; 2]);
    }

    #[test]
    fn a_counter_touched_too_widely_cuts_the_prefix_for_all() {
        let mut fold = Fold::new(RULES);
        for shard in 0..MAX_TOUCHED {
            fold.push(&row(1 + shard as u64, &format!("p#{shard}"), false, true), NOW).unwrap();
        }
        assert_eq!(fold.push(&row(90, "p#200", false, true), NOW), Err(Cut::Width));
        assert_eq!(fold.push(&row(90, "p#0", false, true), NOW), Ok(()), "a shard already touched is welcome");
    }

    #[test]
    fn a_sum_that_could_leave_64_bits_cuts_the_prefix() {
        let (none, most) = (Weight::ABSENT, Weight::new(Weight::MAX).unwrap());
        let mut fold = Fold::new(RULES);
        let taken = (1..20).map(|at| fold.push(&weighing(at, &format!("p#+views.{}", at % 2), none, most), NOW));
        assert_eq!(taken.take_while(Result::is_ok).count(), 9);
        assert_eq!(fold.push(&weighing(20, "p#+views.0", none, most), NOW), Err(Cut::Width));
        let update = fold
            .take()
            .counters
            .remove(&"p\u{1f}+views".parse::<CounterId>().unwrap())
            .unwrap()
            .update(&context())
            .unwrap();
        assert_eq!(update.total(), Ok(9 * Weight::MAX));
    }

    #[test]
    fn counters_of_one_post_are_written_apart() {
        let mut fold = Fold::new(RULES);
        for (sequence, key) in [(1, "p#0"), (2, "p#retweets.0"), (3, "p#+views.0")] {
            fold.push(&row(sequence, key, false, true), NOW).unwrap();
        }
        assert_eq!(fold.take().counters.len(), 3);
    }

    #[test]
    fn records_already_applied_are_left_out_of_the_update() {
        let mut fold = Fold::new(RULES);
        for sequence in 1..=5 {
            fold.push(&row(sequence, &format!("p#{}", sequence % 2), false, true), NOW).unwrap();
        }
        let records = fold.take().counters.remove(&likes("p")).unwrap();
        let left = records.after(3.into());
        let update = left.update(&context()).unwrap();
        assert_eq!((update.first, update.last, update.total()), (4.into(), 5.into(), Ok(2)));
        assert!(records.after(5.into()).update(&context()).is_none());
    }
}
