//! The twin of the likes table and the fences that move with it.

mod maps;

use std::collections::BTreeMap;

use async_trait::async_trait;
use tally_core::batch::{BatchLimits, Change};
use tally_core::fault::Fault;
use tally_core::fence::{Advance, Commit, Fence, Fences, Partition, Reached, Refused};
use tally_core::homes::CounterMap;
use tally_core::ids::{CounterId, Lane, MemberKey, Region, ReservedKey, RowKey, ShardCount, UserId};
use tally_core::ports::{Cursor, FencedRows, Like, MemberRow, Outcome, Page, Rows as RowsPort, ScannedRow, Segment};
use tally_core::time::UnixMillis;
use tally_core::weight::{Stated, Weight};

pub use maps::Maps;

use super::{Memory, PAGE, State, page, pair, part_of, unpair};

/// The twin of the likes table, to be written.
#[derive(Clone, Debug)]
pub struct Likes {
    memory: Memory,
    shards: ShardCount,
}

#[derive(Debug, Default)]
pub(super) struct Tables {
    fences: BTreeMap<(Partition, Lane), Fence>,
    /// How many partitions each topic had at first.
    first_seen: BTreeMap<String, u32>,
    /// Each item under its `pk` and `user_id`.
    rows: BTreeMap<(String, String), Row>,
}

impl Tables {
    /// The fences of a partition, in the order of its lanes.
    fn lanes(&self, partition: &Partition) -> Vec<Fence> {
        self.fences.iter().filter(|((of, _), _)| of == partition).map(|(_, fence)| fence.clone()).collect()
    }

    /// The fence of one lane.
    fn lane(&self, place: &(Partition, Lane)) -> Option<Fence> {
        self.fences.get(place).cloned()
    }
}

/// A row, or the map that stands among rows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Row {
    Counted { at: UnixMillis, stated: Stated, region: Option<Region> },
    Cell { n: i64, reached: Reached },
    Map(CounterMap),
}

impl Row {
    fn stated(&self) -> Stated {
        match self {
            Self::Counted { stated, .. } => *stated,
            Self::Cell { n, .. } => Weight::new(*n).map_or(Stated::Unreadable, Stated::Amount),
            Self::Map(_) => Stated::Nothing,
        }
    }
}

impl State {
    /// How far the cell under `key` has come.
    fn reached(&self, key: &(String, String)) -> Option<Reached> {
        match self.likes.rows.get(key) {
            Some(Row::Cell { reached, .. }) => Some(*reached),
            _ => None,
        }
    }

    /// Sets or removes a row.
    fn write(&mut self, key: (String, String), row: Option<Row>) {
        match row {
            Some(row) => self.likes.rows.insert(key, row),
            None => self.likes.rows.remove(&key),
        };
    }
}

impl Likes {
    pub(super) fn new(memory: Memory, shards: ShardCount) -> Self {
        Self { memory, shards }
    }

    fn cell_key(&self, partition: &Partition, counter: &CounterId) -> (String, String) {
        let sort = ReservedKey::Cell { topic: &partition.topic, partition: partition.index };
        (RowKey::of_cell(counter, partition.index, self.shards).to_string(), sort.to_string())
    }

    /// Puts a like that no fence has anything to do with, anywhere: for drift, misplaced rows and foreign ones.
    pub fn plant(&self, pk: &str, sort: &str) {
        self.plant_stating(pk, sort, Stated::Nothing);
    }

    /// Puts the same; the row says that it counts for `stated`.
    pub fn plant_stating(&self, pk: &str, sort: &str, stated: Stated) {
        let at = self.memory.now();
        let row = Row::Counted { at, stated, region: None };
        self.memory.state().write((pk.to_owned(), sort.to_owned()), Some(row));
    }
}

/// The twin of the rows, to be read.
#[derive(Clone, Debug)]
pub struct Rows {
    memory: Memory,
}

impl Rows {
    pub(super) fn new(memory: Memory) -> Self {
        Self { memory }
    }

    /// What `item` makes of the rows of one key behind `after`, by sort key; those it makes nothing of are left out.
    fn of_key<T>(
        &self,
        key: &RowKey,
        after: Option<&Cursor>,
        limit: usize,
        item: impl Fn(&str, UnixMillis, Stated) -> Option<T>,
    ) -> Page<T> {
        let pk = key.to_string();
        let after = after.map_or("", |cursor| cursor.0.as_str());
        let state = self.memory.state();
        let of_key = state.likes.rows.range((pk.clone(), after.to_owned())..).take_while(|((row, _), _)| *row == pk);
        let likes = of_key.filter(|((_, user), _)| user.as_str() > after).filter_map(|((_, user), row)| match row {
            Row::Counted { at, stated, .. } => Some((item(user, *at, *stated)?, user.clone())),
            Row::Cell { .. } => Some((item(user, UnixMillis(0), row.stated())?, user.clone())),
            Row::Map(_) => None,
        });
        page(likes, limit)
    }
}

#[async_trait]
impl FencedRows for Likes {
    async fn fence(&self, partition: &Partition) -> Outcome<Option<Fence>> {
        Ok(self.memory.state().likes.fences.get(&(partition.clone(), Lane::FIRST)).cloned())
    }

    async fn lanes(&self, partition: &Partition) -> Outcome<Option<Fences>> {
        let lanes = self.memory.state().likes.lanes(partition);
        let torn = |torn| Fault::Fatal(format!("the fences of {partition}: {torn}"));
        if lanes.is_empty() { Ok(None) } else { Fences::together(lanes).map(Some).map_err(torn) }
    }

    async fn first_seen(&self, topic: &str, partitions: u32) -> Outcome<u32> {
        let mut state = self.memory.state();
        let fences = state.likes.fences.keys().map(|(fenced, _)| fenced).filter(|fenced| *fenced.topic == *topic);
        let seen = fences.map(|fenced| fenced.index + 1).max().unwrap_or(partitions);
        Ok(*state.likes.first_seen.entry(topic.to_owned()).or_insert(seen))
    }

    async fn create_fence(&self, partition: &Partition, fence: &Fence) -> Outcome<()> {
        self.memory.state().likes.fences.entry((partition.clone(), fence.lane)).or_insert_with(|| fence.clone());
        Ok(())
    }

    async fn cells(&self, partition: &Partition, counters: &[CounterId]) -> Outcome<Vec<Option<Reached>>> {
        let state = self.memory.state();
        Ok(counters.iter().map(|counter| state.reached(&self.cell_key(partition, counter))).collect())
    }

    async fn commit(&self, partition: &Partition, advance: &Advance, changes: &[Change<'_>]) -> Commit {
        if changes.len() > BatchLimits::MAX_ROWS {
            return Commit::Invalid(format!("{} rows in one transaction", changes.len()));
        }
        let mut state = self.memory.state();
        let place = (partition.clone(), advance.from.lane);
        if !advance.admitted_by(state.likes.lane(&place).as_ref()) {
            let reasons = std::iter::once(Refused::Condition).chain(changes.iter().map(|_| Refused::Nothing));
            return Commit::Cancelled(reasons.collect());
        }
        let generation = advance.from.terms.generation;
        let refused: Vec<Refused> = changes
            .iter()
            .map(|change| match change {
                Change::Cell { from, .. } => {
                    let stored = state.reached(&self.cell_key(partition, change.counter()));
                    if Reached::admits(stored, generation, *from) { Refused::Nothing } else { Refused::Condition }
                }
                Change::Member { .. } => Refused::Nothing,
            })
            .collect();
        if refused.contains(&Refused::Condition) {
            return Commit::Cancelled(std::iter::once(Refused::Nothing).chain(refused).collect());
        }
        state.likes.fences.insert(place, advance.reached());
        for change in changes {
            let pk = change.row_key(partition.index, self.shards).to_string();
            match change {
                Change::Member { user, present, at, region, .. } => {
                    let (at, region) = (*at, region.cloned());
                    let row = present.then_some(Row::Counted { at, stated: Stated::Nothing, region });
                    state.write((pk, user.to_string()), row);
                }
                Change::Cell { counter, add, .. } => {
                    let key = self.cell_key(partition, counter);
                    let before = match state.likes.rows.get(&key) {
                        Some(Row::Cell { n, .. }) => *n,
                        _ => 0,
                    };
                    let cell = Row::Cell { n: before + add, reached: Reached { to: advance.to, generation } };
                    state.write(key, Some(cell));
                }
            }
        }
        Commit::Done
    }

    async fn fences(&self, topic: &str) -> Outcome<Vec<(Partition, Fence)>> {
        let state = self.memory.state();
        let of_topic = state.likes.fences.iter().filter(|((partition, _), _)| *partition.topic == *topic);
        Ok(of_topic.map(|((partition, _), fence)| (partition.clone(), fence.clone())).collect())
    }

    async fn replace_fences(&self, partition: &Partition, seen: &Fences, to: &Fences) -> Outcome<bool> {
        let mut state = self.memory.state();
        let stand = seen.iter().all(|fence| state.likes.lane(&(partition.clone(), fence.lane)).as_ref() == Some(fence));
        if stand {
            state.likes.fences.retain(|(of, _), _| of != partition);
            let replaced = to.raised_above(seen);
            state.likes.fences.extend(replaced.iter().map(|fence| ((partition.clone(), fence.lane), fence.clone())));
        }
        Ok(stand)
    }
}

#[async_trait]
impl RowsPort for Rows {
    async fn like(&self, key: &RowKey, user: &UserId) -> Outcome<Option<Like>> {
        let state = self.memory.state();
        Ok(match state.likes.rows.get(&(key.to_string(), user.to_string())) {
            Some(Row::Counted { at, .. }) => Some(Like { user: user.clone(), liked_at: *at }),
            _ => None,
        })
    }

    async fn present(&self, keys: &[RowKey], member: &UserId) -> Outcome<Vec<bool>> {
        let state = self.memory.state();
        let row = |key: &RowKey| state.likes.rows.get(&(key.to_string(), member.to_string()));
        Ok(keys.iter().map(|key| matches!(row(key), Some(Row::Counted { .. }))).collect())
    }

    async fn likes(&self, key: &RowKey, after: Option<&Cursor>, limit: Option<u32>) -> Outcome<Page<Like>> {
        let limit = limit.map_or(PAGE, |limit| PAGE.min(limit as usize));
        let like = |user: &str, liked_at, _| Some(Like { user: UserId::new(user).ok()?, liked_at });
        Ok(self.of_key(key, after, limit, like))
    }

    async fn users(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<MemberRow>> {
        let row = |user: &str, _, _| Some(MemberRow { user: UserId::new(user).ok()?, gone: None });
        Ok(self.of_key(key, after, PAGE, row))
    }

    async fn weights(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<(MemberKey, Option<Weight>)>> {
        let weight = |sort: &str, _, stated: Stated| {
            let member = MemberKey::new(sort)?;
            let weight = stated.weight(member.is_cell());
            Some((member, weight))
        };
        Ok(self.of_key(key, after, PAGE, weight))
    }

    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<ScannedRow>> {
        let after = after.map(unpair).transpose()?;
        let state = self.memory.state();
        let rows = state.likes.rows.iter().filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after));
        let rows = rows.filter(|((pk, _), _)| part_of(pk, segment.of) == segment.index);
        let rows = rows.filter(|((_, sort), _)| ReservedKey::read(sort).is_none_or(ReservedKey::is_counted));
        let scanned = rows.map(|((pk, sort), row)| {
            let stated = row.stated();
            (ScannedRow { pk: pk.clone(), sort: sort.clone(), stated, gone: None }, pair(pk, sort))
        });
        Ok(page(scanned, PAGE))
    }
}
