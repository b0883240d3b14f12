//! One pass over rows and counters.

use std::fmt;

use anyhow::{Context, bail};
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tally_adapters::dynamodb::{Anew, Streams};
use tally_core::counter::Counter;
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, StreamLabel};
use tally_core::ports::{ChangeStream, Counts as _, Outcome, Position};
use tally_core::tally::{RecordKind, read};

use crate::desk::Desk;
use crate::verbs::weighed::{self, WHOLE, Weighed};

/// Writes under way at once.
const AT_ONCE: usize = 64;
/// Reads of a stream shard in a row that find nothing before it is taken for empty: one alone proves nothing.
const EMPTY: u32 = 4;
const RECORDS: u32 = 1_000;

/// Checks that no change of a row is in the stream: it would be counted once more by a worker that reads it later.
///
/// # Errors
/// There is one, or the stream cannot be read.
pub(super) async fn no_row_changed(stream: &Streams, label: &StreamLabel) -> anyhow::Result<()> {
    let shards = stream.shards(label).await.map_err(Fault::from).context("cannot list the stream's shards")?;
    for shard in shards {
        let first = stream.iterator(label, &shard.id, Position::Oldest).await.map_err(Fault::from);
        let (mut iterator, mut empty) = (Some(first.context("cannot read the stream")?), 0);
        while let Some(at) = iterator.take().filter(|_| empty < EMPTY) {
            let page = stream.records(&at, RECORDS).await.map_err(Fault::from).context("cannot read the stream")?;
            let kinds = page.records.iter().map(|raw| read(raw).map(|record| record.kind));
            let is_row = |kind| matches!(kind, Some(RecordKind::Row { .. } | RecordKind::Unreadable { .. }) | None);
            if kinds.into_iter().any(is_row) {
                bail!("the stream {label} has changes of rows: switch it off and on, now that consumers are paused");
            }
            empty = if page.records.is_empty() { empty + 1 } else { 0 };
            iterator = page.next;
        }
    }
    Ok(())
}

/// The deployment, and what its counters are written with.
pub(super) struct Pass<'a> {
    pub(super) desk: &'a Desk,
    pub(super) anew: Anew,
}

/// What it came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    rows: u64,
    keys: u64,
    counters: u64,
    doubted: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, keys, counters, doubted } = self;
        write!(f, "{counters} counters written from {rows} rows of {keys} row keys, {doubted} of them in doubt")
    }
}

impl Pass<'_> {
    /// Each step writes what is so, and can be done again.
    pub(super) async fn run(&self) -> anyhow::Result<Done> {
        self.clear().await?;
        let mut done = self.weigh().await?;
        done.counters = self.sum_up().await?;
        Ok(done)
    }

    /// Empties every counter: those without rows come to nothing.
    async fn clear(&self) -> anyhow::Result<()> {
        let mut after = None;
        loop {
            let page = self.desk.counts.scan(WHOLE, after.as_ref()).await.context("cannot read counters")?;
            let clear = |(id, _): (CounterId, _)| async move { self.desk.counts.clear(&id, &self.anew).await }.boxed();
            each(page.items.into_iter().map(clear)).await.context("cannot empty a counter")?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Writes what the rows of each row key come to.
    async fn weigh(&self) -> anyhow::Result<Done> {
        let mut done = Done::default();
        let rows = weighed::by_key(&self.desk.rows, async |whole| {
            done.keys += whole.len() as u64;
            done.doubted += whole.iter().filter(|weighed| weighed.doubt).count() as u64;
            let writes = whole.into_iter().map(|weighed| self.write(weighed).boxed());
            each(writes).await.context("cannot write a counter")
        });
        done.rows = rows.await?;
        Ok(done)
    }

    async fn write(&self, Weighed { key, weight, doubt }: Weighed) -> Outcome<()> {
        let nearest = if weight < 0 { i64::MIN } else { i64::MAX };
        let (weight, doubt) = i64::try_from(weight).map_or((nearest, true), |weight| (weight, doubt));
        // A worker that was late may have made one anew meanwhile.
        while !self.desk.counts.set_rows(&key, weight, doubt, &self.anew).await? {
            self.desk.counts.clear(&key.counter, &self.anew).await?;
        }
        Ok(())
    }

    /// Sets each total to the sum over its shards; how many counters there are.
    async fn sum_up(&self) -> anyhow::Result<u64> {
        let (mut counters, mut after) = (0, None);
        loop {
            let page = self.desk.counts.scan(WHOLE, after.as_ref()).await.context("cannot read counters")?;
            counters += page.items.len() as u64;
            let totals =
                page.items.into_iter().map(|(id, counter)| async move { self.total(&id, counter).await }.boxed());
            each(totals).await.context("cannot write a total")?;
            after = page.next;
            if after.is_none() {
                return Ok(counters);
            }
        }
    }

    /// Sets the total of a counter, which is read again where it has changed since.
    async fn total(&self, id: &CounterId, counter: Outcome<Counter>) -> Outcome<()> {
        let mut counter = counter?;
        loop {
            let overflow = |_| Fault::Poison(format!("the counter {id} leaves the range of 64 bits"));
            let sum = counter.sum().map_err(overflow)?;
            if sum == counter.likes || self.desk.counts.set_total(id, counter.version, sum).await? {
                return Ok(());
            }
            let Some(later) = self.desk.counts.counter(id).await? else { return Ok(()) };
            counter = later;
        }
    }
}

/// Some at once, until one fails.
async fn each<'a>(
    writes: impl Iterator<Item = futures_util::future::BoxFuture<'a, Outcome<()>>> + Send,
) -> anyhow::Result<()> {
    Ok(stream::iter(writes).buffer_unordered(AT_ONCE).try_collect::<()>().await?)
}
