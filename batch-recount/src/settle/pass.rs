//! The cheap pass of an audit over the posts of one part: scans the rows into sums, then scans the counters, and
//! meanwhile reads in the log which row keys move. A *row key* is the partition key of the rows of one shard of a
//! counter. A counter is proved if it has what its rows had and its row key did not move since before they were read.
//!
//! A row key moves if the log has an entry of it behind the place where the log ended when the pass began. What is
//! before that place happened before any row was read, and is in the counters once the folds have passed it.
//!
//! What happened to the rows before they were read may still be on its way to the log. So a marker is put behind the
//! scan, and the counters are scanned once every partition has all changes up to its second, by the clock of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::quality::FixedState;
use futures_util::stream::{BoxStream, TryStreamExt};
use serde::{Deserialize, Serialize};
use tally_adapters::dynamodb::{Cursor, ScannedRow, Segment};
use tally_core::changes::{Effect, Entry, LossNumber, Nonce, Place, partition_of};
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, MemberKey, ReservedKey, RowKey, Shard};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;
use tally_core::weight::Weight;
use tally_core::{Map, Set};

use super::rounds::Open;
use super::tails::Tails;
use super::{Blocked, POLL, Recount};

/// How many fingerprints of moved row keys are kept. If there are more, all row keys count as moved.
const MOST: usize = 8_000_000;

/// What a pass has found.
pub(super) struct Passed {
    /// Row keys that are not proved; none if the pass was wanted for some row keys.
    pub(super) doubts: Vec<RowKey>,
    /// The row keys that the pass was wanted for and that are not proved.
    pub(super) unproved: Option<Set<RowKey>>,
    /// Counters whose items cannot be read.
    pub(super) unreadable: u64,
    /// Parts of the posts that there was no room for.
    pub(super) rest: Vec<Part>,
    /// The losses that were open in each partition when the pass began.
    pub(super) open: BTreeMap<u32, BTreeSet<LossNumber>>,
}

/// A pass under way.
struct Pass<'a> {
    of: &'a Recount,
    tails: Tails<'a, Seen>,
    /// When the pass reads the tails next.
    due: Duration,
    sums: Sums,
    /// Partitions whose counters have everything before the place where the pass began.
    folded: BTreeSet<u32>,
    passed: Passed,
}

/// What the pass has read in the log.
#[derive(Debug, Default)]
struct Seen {
    /// Fingerprints of the row keys whose entries change what is counted. Two keys may share one, which costs a look.
    moved: Set<u64>,
    /// The marker behind the scan of the rows, and the second in which it was put.
    marker: Option<Nonce>,
    second: Option<u64>,
}

impl Recount {
    /// Runs passes over `part`. Returns the row keys that these prove, and the others.
    pub(super) async fn proved(&self, open: Vec<Open>, part: Part) -> anyhow::Result<(Vec<Open>, Vec<Open>)> {
        let mut keys: Set<RowKey> = open.iter().map(|open| open.key.clone()).collect();
        let mut parts = vec![part];
        while let Some(part) = parts.pop().filter(|_| !keys.is_empty()) {
            let passed = self.pass(part, Some(keys)).await?;
            keys = passed.unproved.unwrap_or_default();
            parts.extend(passed.rest);
        }
        Ok(open.into_iter().partition(|open| !keys.contains(&open.key)))
    }

    /// Carries out a pass over the posts of `part`, or over as many of them as there is room for. If row keys are
    /// `wanted`, the pass is for their sake alone.
    pub(super) async fn pass(&self, part: Part, wanted: Option<Set<RowKey>>) -> anyhow::Result<Passed> {
        let partitions = (0..self.config.partitions).collect();
        let take = |seen: &mut Seen, _, entry: &Entry| seen.take(entry);
        let mut tails = Tails::begin(self, &partitions, Seen::default(), take).await?;
        tails.read_on().await?;
        tails.taken = Seen::default();
        let began = tails.each().map(|(partition, reached)| (partition, reached.place.offset())).collect();
        let open = tails.open();
        let mut pass = Pass {
            of: self,
            tails,
            due: Duration::ZERO,
            sums: Sums::new(part, self.rules.held),
            folded: BTreeSet::new(),
            passed: Passed { doubts: Vec::new(), unproved: wanted, unreadable: 0, rest: Vec::new(), open },
        };
        Box::pin(pass.scan_rows()).await?;
        pass.folded = self.folded(&began).await?;
        Box::pin(pass.scan_counters()).await?;
        Ok(pass.passed)
    }

    /// Reports rows that are of no member, or under another key than theirs. Tombstones do not count.
    fn check_places(&self, rows: &[ScannedRow]) {
        for rows in rows.chunk_by(|one, next| one.pk == next.pk) {
            let key: Option<RowKey> = rows[0].pk.parse().ok();
            let is_placed = |row: &ScannedRow| {
                let shard = match ReservedKey::read(&row.sort) {
                    Some(ReservedKey::Cell { partition, .. }) => self.shards.shard_of_cell(partition),
                    _ => self.shards.shard_of(&row.sort),
                };
                row.weight().is_some() && key.as_ref().is_some_and(|key| key.shard == shard)
            };
            for row in rows.iter().filter(|row| row.gone.is_none() && !is_placed(row)) {
                self.findings.misplaced(|| format!("{:?} in {:?}", row.sort, row.pk));
            }
        }
    }
}

impl Pass<'_> {
    /// Scans the rows, and follows the tails until the log has all that happened to them before.
    async fn scan_rows(&mut self) -> anyhow::Result<()> {
        let of = self.of;
        let scan =
            |segment: Segment, after: Option<Cursor>| async move { of.ports.rows.scan(segment, after.as_ref()).await };
        let mut scan = of.calls.scan("scan rows", of.rules.segments, scan);
        while let Some(rows) = self.next(&mut scan).await? {
            if self.is_first() {
                of.findings.scanned(rows.len() as u64);
                of.check_places(&rows);
            }
            self.add(&rows);
        }
        self.passed.rest.clone_from(&self.sums.rest);
        let until = self.end_of_rows().await?;
        let is_in = self
            .tails
            .follow(|tails| tails.each().all(|(_, reached)| !reached.is_whole || reached.as_of >= Some(until)));
        if !is_in.await? {
            return Err(Blocked::Still("the log does not come up to the rows that were scanned".to_owned()).into());
        }
        Ok(())
    }

    /// Returns the next page of a scan, and reads the tails on meanwhile.
    async fn next<T>(&mut self, scan: &mut BoxStream<'_, anyhow::Result<T>>) -> anyhow::Result<Option<T>> {
        let calls = &self.of.calls;
        let clock = calls.clock();
        loop {
            tokio::select! {
                biased;
                () = clock.sleep(self.due.saturating_sub(clock.reading().at)) => {
                    let began = clock.reading().at;
                    self.tails.read_on().await?;
                    // The scan stands still meanwhile, so it gets most of the time.
                    let took = clock.reading().at.saturating_sub(began);
                    self.due = calls.after(POLL.max(4 * took));
                }
                next = scan.try_next() => return next,
            }
        }
    }

    /// Adds a page of rows to the sums: each counts for the key that it is under, wherever it belongs.
    fn add(&mut self, rows: &[ScannedRow]) {
        for rows in rows.chunk_by(|one, next| one.pk == next.pk) {
            let Ok(key) = rows[0].pk.parse() else { continue };
            for row in rows.iter().filter(|row| MemberKey::new(&row.sort).is_some()) {
                self.sums.add(&key, row.weight());
            }
        }
    }

    /// Returns a time, by the clock of the store, that all rows were read before. A dry run takes this machine's clock.
    async fn end_of_rows(&mut self) -> anyhow::Result<UnixMillis> {
        let (of, guard) = (self.of, self.of.rules.guard);
        let Some(key) = self.sums.sums.keys().next().filter(|_| !of.rules.dry_run).cloned() else {
            return Ok(of.calls.now().plus(guard));
        };
        let nonce = of.nonce();
        self.tails.taken.marker = Some(nonce);
        of.mark(&[(key, nonce)]).await?;
        self.tails.follow(|tails| tails.taken.second.is_some()).await?;
        let behind = || Blocked::Still("the log does not come up to the end of a scan".to_owned());
        let second = Duration::from_secs(self.tails.taken.second.ok_or_else(behind)? + 1);
        Ok(UnixMillis(0).plus(second + guard))
    }

    /// Scans the counters, and compares them with the sums.
    async fn scan_counters(&mut self) -> anyhow::Result<()> {
        let (of, part) = (self.of, self.sums.part);
        let scan = |segment: Segment, after: Option<Cursor>| async move {
            of.ports.counters.scan(segment, after.as_ref()).await
        };
        let mut scan = of.calls.scan("scan counters", of.rules.segments, scan);
        while let Some(mut page) = self.next(&mut scan).await? {
            page.retain(|(id, _)| part.has(&RowKey::first(id)));
            // The folds have read the log up to the versions of these counters. The tails have to reach them, too.
            self.tails.follow(|tails| page.iter().all(|(id, counter)| is_reached(tails, id, counter))).await?;
            if self.is_first() {
                of.findings.so_far().counters += page.len() as u64;
            }
            for (id, counter) in page {
                match counter {
                    Ok(counter) => self.counter(&id, &counter),
                    Err(fault) => {
                        tracing::error!(counter = %id, error = %fault, "a counter cannot be read");
                        self.passed.unreadable += 1;
                    }
                }
            }
        }
        // These are the rows that no counter has a part for.
        for (key, sum) in std::mem::take(&mut self.sums.sums) {
            self.judge(key, sum == Some(0), None);
        }
        Ok(())
    }

    fn counter(&mut self, id: &CounterId, counter: &Counter) {
        let mut adds_up = counter.adds_up();
        for key in keys_of(id, counter) {
            let shard = key.shard;
            let is_doubted = counter.doubt.contains(&shard);
            let agrees = self.sums.take(&key) == Some(counter.part(shard)) && !is_doubted;
            // One part in doubt is enough: its correction sets the total right.
            let agrees = agrees && std::mem::replace(&mut adds_up, true);
            self.judge(key, agrees, Some(counter.version));
        }
    }

    /// Proves a row key, or keeps it in doubt.
    fn judge(&mut self, key: RowKey, agrees: bool, version: Option<Place>) {
        let reached = self.tails.reached(&key);
        let is_known = self.folded.contains(&self.of.partition(&key)) && reached.is_whole;
        let is_proved = agrees && is_known && Some(reached.place) >= version && !self.tails.taken.may_have_moved(&key);
        match &mut self.passed.unproved {
            Some(wanted) if is_proved => _ = wanted.remove(&key),
            Some(_) => {}
            None if is_proved => self.of.findings.proved(1),
            None => self.passed.doubts.push(key),
        }
    }

    /// Returns whether this pass counts and reports what it finds. For a pass that is wanted for some row keys, an
    /// earlier one did.
    fn is_first(&self) -> bool {
        self.passed.unproved.is_none()
    }
}

/// Returns whether the tail has come up to a counter's version, or need not wait for it.
fn is_reached(tails: &Tails<'_, Seen>, id: &CounterId, counter: &Outcome<Counter>) -> bool {
    let reached = tails.reached(&RowKey::first(id));
    !reached.is_whole || !counter.as_ref().is_ok_and(|counter| counter.version > reached.place)
}

/// Returns the row keys that a counter has something of; one of them if only its total is wrong.
pub(super) fn keys_of(id: &CounterId, counter: &Counter) -> impl Iterator<Item = RowKey> {
    let mut shards: BTreeSet<Shard> = counter.parts.keys().chain(&counter.doubt).copied().collect();
    if shards.is_empty() && !counter.adds_up() {
        shards.insert(Shard::FIRST);
    }
    shards.into_iter().map(|shard| RowKey { counter: id.clone(), shard })
}

impl Seen {
    fn take(&mut self, entry: &Entry) {
        let is_change = entry.gain() != 0 || matches!(entry.effect, Effect::Unreadable { .. });
        if is_change && self.moved.len() < MOST {
            self.moved.insert(fingerprint(&entry.key));
        }
        if let Effect::Marked(nonce) = entry.effect
            && self.marker == Some(nonce)
        {
            self.second = Some(entry.second);
        }
    }

    fn may_have_moved(&self, key: &RowKey) -> bool {
        self.moved.len() >= MOST || self.moved.contains(&fingerprint(key))
    }
}

fn fingerprint(key: &RowKey) -> u64 {
    FixedState::default().hash_one(key)
}

/// Some of all posts: those whose hash has the remainder `nth` of a division by `of`, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    of: u32,
    nth: u32,
}

/// The sums of the weights of rows, which is what they count for, by row key, in one part of the posts. If memory is short,
/// the others are left to later passes.
#[derive(Debug)]
struct Sums {
    part: Part,
    /// The sum of each row key; `None` where a weight cannot be read, or the sum has more than 64 bits.
    sums: Map<RowKey, Option<i64>>,
    /// How many sums there may be.
    most: usize,
    /// Parts that there was no room for.
    rest: Vec<Part>,
}

impl Part {
    pub(crate) const ALL: Self = Self { of: 1, nth: 0 };

    fn has(self, key: &RowKey) -> bool {
        partition_of(key, self.of) == self.nth
    }

    fn halves(self) -> [Self; 2] {
        [self.nth, self.nth + self.of].map(|nth| Self { of: self.of * 2, nth })
    }
}

impl Sums {
    fn new(part: Part, most: usize) -> Self {
        Self { part, sums: Map::default(), most, rest: Vec::new() }
    }

    /// Adds a row's weight; `None` if it cannot be read. If there is no room any more, gives up half of the posts.
    fn add(&mut self, key: &RowKey, weight: Option<Weight>) {
        if !self.part.has(key) {
            return;
        }
        if let Some(sum) = self.sums.get_mut(key) {
            *sum = sum.zip(weight).and_then(|(sum, weight)| sum.checked_add(weight.get()));
            return;
        }
        self.sums.insert(key.clone(), weight.map(Weight::get));
        while self.sums.len() > self.most && self.part.of < 1 << 24 {
            let [kept, rest] = self.part.halves();
            self.part = kept;
            self.rest.push(rest);
            self.sums.retain(|key, _| kept.has(key));
        }
    }

    /// Removes the sum of `key` and returns it; 0 if there are no rows.
    fn take(&mut self, key: &RowKey) -> Option<i64> {
        self.sums.remove(key).unwrap_or(Some(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_there_is_room_for_each_row_key_is_in_one_part() {
        let keys: BTreeSet<RowKey> = (0..500).map(|n| format!("p-{n}#{}", n % 4).parse().unwrap()).collect();
        for most in [1, 7, 100, 500] {
            let (mut todo, mut met) = (vec![Part::ALL], Vec::new());
            while let Some(part) = todo.pop() {
                let mut sums = Sums::new(part, most);
                for key in keys.iter().chain(&keys) {
                    sums.add(key, Some(Weight::ONE));
                }
                todo.extend(sums.rest);
                assert!(sums.sums.len() <= most && sums.sums.values().all(|sum| *sum == Some(2)));
                met.extend(sums.sums.into_keys());
            }
            assert_eq!((met.len(), met.into_iter().collect::<BTreeSet<_>>()), (keys.len(), keys.clone()), "{most}");
        }
    }
}
