//! The cheap pass of an audit over the posts of one part: the rows are scanned into sums, then the counters, while the tails of
//! the log say which row keys move. A counter that has what the rows had, and did not move since before they were read, is
//! proved.
//!
//! A row key moves if the log has an entry of it behind the place where the log ended when the pass began: what stands before
//! that place happened before any row is read, and is in the counters once the folds have passed it.
//!
//! What happened to the rows before they were read may still be on its way to the log. So a marker is put behind the scan, and
//! the counters are scanned once every partition has all changes up to its second, by the clock of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_adapters::dynamodb::{ScannedRow, Segment};
use tally_core::Set;
use tally_core::changes::{Effect, Entry, Nonce, Place};
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, MemberKey, RowKey, Shard};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;

use super::moved::Moved;
use super::sums::{Part, Sums};
use super::tails::{Reached, Tails};
use super::{Behind, POLL, Recount};

/// What a pass has come to.
pub(super) struct Passed {
    /// Row keys that are not proved; none of a pass that was wanted for some.
    pub(super) doubts: Vec<RowKey>,
    /// Of those that it was wanted for, the ones that are not proved.
    pub(super) unproved: Option<Set<RowKey>>,
    /// Counters whose items cannot be read.
    pub(super) unreadable: u64,
    /// Parts that there was no room for.
    pub(super) rest: Vec<Part>,
}

/// A pass under way.
pub(super) struct Pass<'a> {
    of: &'a Recount,
    /// Where the log of each partition ended before the first row was read.
    began: BTreeMap<u32, Offset>,
    sums: Mutex<Sums>,
    log: Mutex<Seen>,
    passed: Mutex<Passed>,
}

/// What the tails have of the log.
#[derive(Debug, Default)]
struct Seen {
    reached: BTreeMap<u32, Reached>,
    moved: Moved,
    /// The marker behind the scan of the rows, and the second in which it was put.
    marker: Option<Nonce>,
    second: Option<u64>,
    /// Partitions of which everything before that is in the counters.
    folded: BTreeSet<u32>,
}

impl Recount {
    /// Those of row keys that a pass over `part` does not prove.
    pub(super) async fn unproved(&self, keys: Set<RowKey>, part: Part) -> anyhow::Result<Set<RowKey>> {
        let (mut parts, mut keys) = (vec![part], keys);
        while let Some(part) = parts.pop().filter(|_| !keys.is_empty()) {
            let passed = Box::pin(Pass::over(self, part, Some(keys))).await?;
            keys = passed.unproved.unwrap_or_default();
            parts.extend(passed.rest);
        }
        Ok(keys)
    }
}

impl<'a> Pass<'a> {
    /// Carries out a pass over the posts of `part`, or over as many of them as there is room for; for the sake of the `wanted` row
    /// keys alone, where there are any.
    pub(super) async fn over(of: &'a Recount, part: Part, wanted: Option<Set<RowKey>>) -> anyhow::Result<Passed> {
        let partitions: BTreeSet<u32> = (0..of.config.partitions).collect();
        let mut tails = Tails::begin(of, &partitions).await?;
        tails.read_on(&mut |_, _| ()).await?;
        let pass = Self {
            of,
            began: tails.each().map(|(partition, reached)| (partition, reached.place.offset())).collect(),
            sums: Mutex::new(Sums::new(part, of.rules.held)),
            log: Mutex::default(),
            passed: Mutex::new(Passed { doubts: Vec::new(), unproved: wanted, unreadable: 0, rest: Vec::new() }),
        };
        tokio::select! {
            biased;
            done = pass.work().boxed() => done?,
            never = pass.follow(&mut tails).boxed() => match never? {},
        }
        Ok(pass.passed.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the tails on, again and again.
    async fn follow(&self, tails: &mut Tails<'_>) -> anyhow::Result<Infallible> {
        loop {
            tails.read_on(&mut |_: Place, entry: &Entry| self.log().take(entry)).await?;
            // Behind the entries: what is reached was taken.
            self.log().reached = tails.each().collect();
            self.of.calls.wait(POLL).await?;
        }
    }

    async fn work(&self) -> anyhow::Result<()> {
        self.each_segment(|segment| self.scan_rows(segment)).await?;
        let part = {
            let sums = lock(&self.sums);
            lock(&self.passed).rest = sums.rest().to_vec();
            sums.part()
        };
        let until = self.end_of_rows().await?;
        let is_in = |reached: &Reached| !reached.is_whole || reached.as_of >= Some(until);
        let all_in = self.wait_for(|log| !log.reached.is_empty() && log.reached.values().all(is_in)).await?;
        if !all_in {
            return Err(Behind("the log does not come up to the rows that were scanned".to_owned()).into());
        }
        let folded = self.of.folded(&self.began).await?;
        self.log().folded = folded;
        self.each_segment(|segment| self.scan_counters(segment, part)).await?;
        // Rows that no counter has a part for.
        let (mut sums, log) = (lock(&self.sums), self.log());
        for (key, sum) in sums.drain() {
            self.judge(&log, key, sum == Some(0), None);
        }
        Ok(())
    }

    async fn each_segment<F: Future<Output = anyhow::Result<()>> + Send>(
        &self,
        scan: impl Fn(Segment) -> F,
    ) -> anyhow::Result<()> {
        let of = self.of.rules.segments;
        let scans: Vec<_> = (0..of).map(|index| scan(Segment { index, of }).boxed()).collect();
        stream::iter(scans).buffer_unordered(of as usize).try_collect().await
    }

    async fn scan_rows(&self, segment: Segment) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let page = self.of.calls.page("scan rows", || self.of.ports.rows.scan(segment, after.as_ref())).await?;
            if self.is_first() {
                self.of.findings.scanned(page.items.len() as u64);
                self.of.check_places(&page.items);
            }
            self.rows(&page.items);
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Adds a page of rows to the sums: each counts for the key that it stands under, wherever it belongs.
    fn rows(&self, rows: &[ScannedRow]) {
        let mut sums = lock(&self.sums);
        for rows in rows.chunk_by(|one, next| one.pk == next.pk) {
            let Some(key) = rows[0].pk.parse::<RowKey>().ok().filter(|key| sums.part().has(key)) else { continue };
            for row in rows.iter().filter(|row| MemberKey::new(&row.sort).is_some()) {
                sums.add(&key, row.weight());
            }
        }
    }

    /// A time by the clock of the store that all rows were read before. A dry run takes this machine's clock.
    async fn end_of_rows(&self) -> anyhow::Result<UnixMillis> {
        let key = lock(&self.sums).any().cloned();
        let guard = self.of.rules.guard;
        let Some(key) = key.filter(|_| !self.of.rules.dry_run) else {
            return Ok(self.of.calls.clock().now().plus(guard));
        };
        let nonce = self.of.nonce();
        self.log().marker = Some(nonce);
        self.of.mark(&[(key, nonce)]).await?;
        self.wait_for(|log| log.second.is_some()).await?;
        let second = self.log().second;
        let behind = || Behind("the log does not come up to the end of a scan".to_owned());
        let second = Duration::from_secs(second.ok_or_else(behind)? + 1);
        Ok(UnixMillis(0).plus(second + guard))
    }

    async fn scan_counters(&self, segment: Segment, part: Part) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let scan = || self.of.ports.counters.scan(segment, after.as_ref());
            let page = self.of.calls.page("scan counters", scan).await?;
            let is_meant = |id: &CounterId| part.has(&RowKey::first(id));
            self.counters(page.items.into_iter().filter(|(id, _)| is_meant(id)).collect()).await?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Compares counters with the sums, once the tails have come up to their places.
    async fn counters(&self, page: Vec<(CounterId, Outcome<Counter>)>) -> anyhow::Result<()> {
        let mut places: BTreeMap<u32, Place> = BTreeMap::new();
        for (id, counter) in &page {
            let place = places.entry(self.of.partition(&RowKey::first(id))).or_default();
            *place = counter.as_ref().map_or(*place, |counter| counter.version.max(*place));
        }
        let is_reached = |log: &Seen, partition: &u32, place: &Place| {
            log.reached.get(partition).is_none_or(|reached| !reached.is_whole || reached.place >= *place)
        };
        self.wait_for(|log| places.iter().all(|(partition, place)| is_reached(log, partition, place))).await?;
        if self.is_first() {
            self.of.findings.counters(page.len() as u64);
        }
        let (mut sums, log) = (lock(&self.sums), self.log());
        for (id, counter) in page {
            match counter {
                Ok(counter) => self.counter(&mut sums, &log, &id, &counter),
                Err(fault) => {
                    tracing::error!(counter = %id, error = %fault, "a counter cannot be read");
                    lock(&self.passed).unreadable += 1;
                }
            }
        }
        Ok(())
    }

    fn counter(&self, sums: &mut Sums, log: &Seen, id: &CounterId, counter: &Counter) {
        let mut adds_up = counter.adds_up();
        for key in keys_of(id, counter) {
            let shard = key.shard;
            let is_doubted = counter.doubt.contains(&shard);
            let agrees = sums.take(&key) == Some(counter.part(shard)) && !is_doubted;
            // Correcting one of its parts sets the total right.
            let agrees = agrees && std::mem::replace(&mut adds_up, true);
            self.judge(log, key, agrees, Some(counter.version));
        }
    }

    /// Proves a row key, or leaves it in doubt.
    fn judge(&self, log: &Seen, key: RowKey, agrees: bool, version: Option<Place>) {
        let partition = self.of.partition(&key);
        let reached = log.reached.get(&partition).filter(|_| log.folded.contains(&partition));
        let is_known = reached.is_some_and(|reached| reached.is_whole && Some(reached.place) >= version);
        let is_proved = agrees && is_known && !log.moved.has(&key);
        let Passed { doubts, unproved, .. } = &mut *lock(&self.passed);
        match unproved {
            Some(wanted) if is_proved => _ = wanted.remove(&key),
            Some(_) => {}
            None if is_proved => self.of.findings.proved(1),
            None => doubts.push(key),
        }
    }

    /// Whether everything is counted and reported that is found: of a pass that is wanted for some row keys, the first has.
    fn is_first(&self) -> bool {
        lock(&self.passed).unproved.is_none()
    }

    /// Waits until the tails have something, or patience ends; whether they have.
    async fn wait_for(&self, is_there: impl Fn(&Seen) -> bool) -> anyhow::Result<bool> {
        let clock = self.of.calls.clock();
        let deadline = clock.reading().at + self.of.rules.patience;
        loop {
            if is_there(&self.log()) {
                return Ok(true);
            }
            if clock.reading().at >= deadline {
                return Ok(false);
            }
            self.of.calls.wait(POLL).await?;
        }
    }

    fn log(&self) -> MutexGuard<'_, Seen> {
        lock(&self.log)
    }
}

/// The row keys that a counter has something of; one of them where its total is wrong.
pub(super) fn keys_of(id: &CounterId, counter: &Counter) -> impl Iterator<Item = RowKey> {
    let mut shards: BTreeSet<Shard> = counter.parts.keys().chain(&counter.doubt).copied().collect();
    if shards.is_empty() && !counter.adds_up() {
        shards.insert(Shard::FIRST);
    }
    shards.into_iter().map(|shard| RowKey { counter: id.clone(), shard })
}

impl Seen {
    fn take(&mut self, entry: &Entry) {
        self.moved.take(entry);
        if let Effect::Marked(nonce) = entry.effect
            && self.marker == Some(nonce)
        {
            self.second = Some(entry.second);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
