//! What is stored of a post, read in the order in which an answer may be called exact.

use anyhow::{Context, bail};
use serde::Serialize;
use tally_core::counter::Counter;
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, CounterKind, PostId, RowKey, Shard};
use tally_core::lineage::Lineage;
use tally_core::ports::{ChangeStream, CounterMaps, Counts, Gap, Outcome, QueueReason, RecountQueue};
use tally_core::served::Served;
use tally_core::time::UnixMillis;

use crate::desk::Desk;
use crate::ended::Usage;

/// A counter's numbers.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    /// The total as it is stored; absent where it cannot be read.
    pub(super) value: Option<i64>,
    pub(super) version: u64,
    pub(super) exact: bool,
    pub(super) as_of: u64,
    /// How many of its shards hold anything.
    pub(super) shards: usize,
}

impl Figures {
    /// What the API would say of the counter.
    pub(super) fn of(id: &CounterId, found: &Outcome<Option<Counter>>, gaps: &[Gap], as_of: UnixMillis) -> Self {
        let Ok(counter) = found else {
            return Self { value: None, version: 0, exact: false, as_of: as_of.0, shards: 0 };
        };
        let served = Served::of(id.name.kind(), counter.as_ref(), !gaps.is_empty(), as_of);
        let shards = counter.as_ref().map_or(0, |counter| counter.shards.len());
        Self { value: Some(served.likes), version: served.version, exact: served.exact, as_of: as_of.0, shards }
    }
}

/// The counters that are meant: those of these names, or every one that the deployment has.
///
/// # Errors
/// There is no counter of a name.
pub(super) async fn chosen(desk: &Desk, subject: &PostId, names: &[String]) -> anyhow::Result<Vec<CounterId>> {
    let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
    let id = |name| CounterId { post: subject.clone(), name };
    if names.is_empty() {
        return Ok(defined.iter().map(|definition| id(definition.name.clone())).collect());
    }
    let named = names.iter().map(|name| match defined.named(name) {
        Some(definition) => Ok(id(definition.name.clone())),
        None => bail!(Usage(format!("there is no counter {name}: see tally counters list"))),
    });
    named.collect()
}

/// What every counter includes, and the losses that are open: in this order, and before any counter is read.
pub(super) async fn standing(desk: &Desk) -> anyhow::Result<(UnixMillis, Vec<Gap>)> {
    let info = desk.stream.info().await.map_err(Fault::from).context("cannot look at the stream")?;
    let known = desk.checkpoints.shards(&info.label).await.context("cannot read the checkpoints")?;
    let as_of = Lineage::new(known.into_iter().map(|state| state.checkpoint), [], None).as_of();
    let gaps = desk.checkpoints.gaps().await.context("cannot read the gaps")?;
    Ok((as_of.unwrap_or_default(), gaps))
}

/// The counter, or why it cannot be read: that is an answer, too. No answer from the store is none.
pub(super) async fn counter(desk: &Desk, id: &CounterId) -> anyhow::Result<Outcome<Option<Counter>>> {
    match desk.counts.counter(id).await {
        Err(fault @ Fault::Poison(_)) => Ok(Err(fault)),
        found => Ok(Ok(found.context("cannot read the counter")?)),
    }
}

/// The row keys of a post that wait for a recount, and why.
pub(super) async fn queued(desk: &Desk, post: &PostId) -> anyhow::Result<Vec<(RowKey, &'static str)>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = desk.recounts.queued(after.as_ref()).await.context("cannot read the queue")?;
        let of_post = page.items.into_iter().filter(|queued| queued.key.counter.post == *post);
        found.extend(of_post.map(|queued| (queued.key, label(queued.reason))));
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

fn label(reason: QueueReason) -> &'static str {
    tally_core::audit::Cause::from(reason).label()
}

/// Every shard that rows of a counter may be under, and those besides that the counter has.
pub(super) async fn shards(desk: &Desk, id: &CounterId, counter: Option<&Counter>) -> anyhow::Result<Vec<Shard>> {
    let map = match id.name.kind() {
        CounterKind::Set => desk.maps.map(id).await.context("cannot read the counter's map")?,
        CounterKind::Sum => None,
    };
    let greatest = map.map_or(desk.shards, |map| map.homes().greatest());
    let stored = counter.into_iter().flat_map(|counter| counter.shards.keys().copied());
    let mut shards: Vec<Shard> = greatest.all().chain(stored).collect();
    shards.sort_unstable();
    shards.dedup();
    Ok(shards)
}
