//! What is stored of a post, read in the order in which an answer may be called exact.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use serde::Serialize;
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::changes::Losses;
use tally_core::audit::Cause;
use tally_core::changes::{Standing, partition_of};
use tally_core::fault::Fault;
use tally_core::fold::{Counter, serve};
use tally_core::ids::{CounterId, PostId, RowKey, Shard};
use tally_core::ports::{Outcome, RecountQueue};
use tally_core::time::UnixMillis;

use crate::desk::Desk;
use crate::ended::Usage;

/// What may be said of the counters of a post.
#[derive(Debug, Default)]
pub(super) struct Stands {
    /// The standing of the partition that everything about the post is in; `None` before the first was stored.
    pub(super) stored: Option<(u32, Standing)>,
    /// What is known of the losses.
    pub(super) losses: Losses,
}

impl Stands {
    /// Every change that was in the table by then is in the counters.
    pub(super) fn as_of(&self) -> Option<UnixMillis> {
        self.stored.as_ref().and_then(|(_, standing)| standing.as_of)
    }

    pub(super) fn partition(&self) -> Option<u32> {
        self.stored.as_ref().map(|(partition, _)| *partition)
    }
}

/// A counter as it was read.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: CounterId,
    /// The counter, or why it cannot be read: that is an answer, too.
    pub(super) counter: Outcome<Option<Counter>>,
    /// The table is the one that counters were written to, so one that is absent was never written.
    pub(super) reserved: bool,
}

/// A counter's numbers.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    /// The total as it is stored; absent where it cannot be read.
    pub(super) value: Option<i64>,
    pub(super) version: u64,
    pub(super) exact: bool,
    /// How many of its shards hold anything.
    pub(super) shards: usize,
    /// How many corrections are in.
    pub(super) c: u64,
    /// The place of the last announcement of a loss before what was counted last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gap: Option<u64>,
    /// Shards with a row whose weight could not be read.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) doubt: BTreeSet<u16>,
}

impl Figures {
    /// What the API would say of the counter.
    pub(super) fn of(found: &Found, stands: &Stands) -> Self {
        let unread = Self { value: None, version: 0, exact: false, shards: 0, c: 0, gap: None, doubt: BTreeSet::new() };
        let Ok(counter) = &found.counter else { return unread };
        let standing = stands.stored.as_ref().map(|(_, standing)| standing.clone()).unwrap_or_default();
        let served = serve(&standing, found.id.name.kind(), counter.as_ref());
        let is_known = standing.as_of.is_some() && (counter.is_some() || found.reserved);
        let Counter { parts, corrections, gap, doubt, .. } = counter.clone().unwrap_or_default();
        Self {
            value: Some(served.likes),
            version: served.version,
            exact: served.exact && is_known,
            shards: parts.len(),
            c: corrections,
            gap: gap.map(|gap| gap.stored()),
            doubt: doubt.iter().map(|shard| shard.index()).collect(),
        }
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

/// The standing of the post's partition, and the losses: in this order, and before any counter is read.
pub(super) async fn standing(desk: &Desk, post: &PostId) -> anyhow::Result<Stands> {
    let stored = match desk.changes.config().await.context("cannot read the configuration of the log")? {
        None => None,
        Some(config) => {
            let key = RowKey::of(&CounterId::likes(post.clone()), "", desk.shards);
            let partition = partition_of(&key, config.partitions);
            let found = desk.changes.stated(partition).await.context("cannot read the standing")?;
            found.map(|found| (partition, found.standing.standing))
        }
    };
    let losses = desk.changes.losses().await.context("cannot read the losses")?;
    Ok(Stands { stored, losses })
}

/// The counter, read after the standing. No answer from the store is none.
pub(super) async fn counter(desk: &Desk, id: &CounterId) -> anyhow::Result<Found> {
    let read = desk.counters.read(std::slice::from_ref(id), Consistency::Strong).await;
    let mut read = read.context("cannot read the counter")?;
    let counter = match read.counters.remove(id) {
        None => Ok(None),
        Some(Ok(counter)) => Ok(Some(counter)),
        Some(Err(fault @ Fault::Poison(_))) => Err(fault),
        Some(Err(fault)) => return Err(fault).context("cannot read the counter"),
    };
    Ok(Found { id: id.clone(), counter, reserved: read.reserved })
}

/// The row keys of a post that wait for a recount, and why.
pub(super) async fn queued(desk: &Desk, post: &PostId) -> anyhow::Result<Vec<(RowKey, &'static str)>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = desk.recounts.queued(after.as_ref()).await.context("cannot read the queue")?;
        let of_post = page.items.into_iter().filter(|queued| queued.key.counter.post == *post);
        found.extend(of_post.map(|queued| (queued.key, Cause::from(queued.reason).label())));
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// Every shard that rows of a counter are under, and those besides that the counter has.
pub(super) fn shards(desk: &Desk, counter: Option<&Counter>) -> Vec<Shard> {
    let stored = counter.into_iter().flat_map(|counter| counter.parts.keys().copied());
    let mut shards: Vec<Shard> = desk.shards.all().chain(stored).collect();
    shards.sort_unstable();
    shards.dedup();
    shards
}
