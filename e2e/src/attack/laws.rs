//! Judges the result of an attack once all is quiet: the rows equal the events that were produced, counts equal the
//! rows, Redis and the API agree with them, and a recount finds nothing. A cell is the row that holds a sum, such as a
//! post's views, for one Kafka partition.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value as Json;
use tally_adapters::dynamodb::Segment;
use tally_core::cached::{Cache as _, Value};
use tally_core::event::partition_of;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, CounterName, PostId, RESERVED, RowKey, ShardCount};
use tally_testkit::{every, http, until};
use tokio::time::Instant;

use crate::attack::engines::Engines;
use crate::attack::fleet::{Fleet, Launcher, Service};
use crate::attack::ledger::{Ledger, Weights, all_counters};
use crate::simulation::laws::{Quiet, exact, weights};

/// How long the cache and the API may take to agree with the counters.
const FOLLOW: Duration = Duration::from_secs(20);

/// How many counters are requested from the cache at once.
const TOGETHER: usize = 1_000;

/// A whole table.
const WHOLE: Segment = Segment { index: 0, of: 1 };

/// How much was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) rows: usize,
    /// The tombstones, which weigh nothing.
    pub(crate) tombstones: usize,
    pub(crate) cells: usize,
    pub(crate) counters: usize,
    pub(crate) cached: usize,
}

/// Compares everything with everything. Where there is another Region, answers have to be the sum over both.
pub(crate) async fn judge(
    engines: &Engines,
    abroad: Option<&Engines>,
    fleet: &Fleet,
    ledger: &Ledger,
) -> anyhow::Result<Compared> {
    let tables = engines.tables();
    let rows = every(async |after| tables.rows.scan(WHOLE, after).await).await?;
    let (gone, live): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.gone.is_some());
    let by_key = weights(&live);
    let weighed = live.into_iter().map(|row| {
        let weight = row.weight().with_context(|| format!("{row:?} has no weight"))?;
        Ok(((row.pk, row.sort), weight.get()))
    });
    let rows: Weights = weighed.collect::<anyhow::Result<_>>()?;
    ledger.is_in(&rows, ShardCount::DEFAULT)?;
    since_when(engines, by_key.keys(), ledger).await?;
    let counters = counters(engines).await?;
    exact(&Quiet { rows: &by_key, counters: &counters })?;
    let missing = by_key.keys().find(|key| !counters.contains_key(&key.counter));
    ensure!(missing.is_none(), "{missing:?} has rows but no counter");
    let losses = engines.open_losses().await?;
    ensure!(losses == 0, "{losses} losses are open although nothing was lost");
    let cached = cache(engines, &counters).await?;
    let defined = tables.checkpoints.definitions().await?;
    let others = match abroad {
        Some(abroad) => self::counters(abroad).await?,
        None => BTreeMap::new(),
    };
    answers(fleet, all_counters(ledger.crowd, &defined), [&counters, &others]).await?;
    // The answers may have filled the cache.
    let cached = cache(engines, &counters).await?.max(cached);
    let cells = rows.keys().filter(|(_, sort)| sort.starts_with(RESERVED)).count();
    Ok(Compared { rows: rows.len(), tombstones: gone.len(), cells, counters: counters.len(), cached })
}

/// The rows of the crowd's posts must have the time of the last event.
async fn since_when(engines: &Engines, keys: impl Iterator<Item = &RowKey>, ledger: &Ledger) -> anyhow::Result<()> {
    let (tables, posts): (_, BTreeSet<PostId>) = (engines.tables(), ledger.crowd.posts().collect());
    let is_said = |key: &&RowKey| key.counter.name.kind() == CounterKind::Set && posts.contains(&key.counter.post);
    for key in keys.filter(is_said) {
        for like in every(async |after| tables.rows.likes(key, after, None).await).await? {
            let (user, at, said) = (&like.user, like.liked_at, ledger.since(&key.counter, like.user.as_str()));
            ensure!(said == Some(at), "{user} of {key} has the time {at}, but the last event {said:?}");
        }
    }
    Ok(())
}

/// The counters of this Region.
async fn counters(engines: &Engines) -> anyhow::Result<BTreeMap<CounterId, Counter>> {
    let tables = engines.tables();
    let counters = every(async |after| tables.counters.scan(WHOLE, after).await).await?;
    let own = counters.into_iter().filter(|(id, _)| id.name.region().is_none());
    own.map(|(id, counter)| Ok((id, counter?))).collect()
}

/// Cached counts must equal the counters. Returns the number of cached counts.
async fn cache(engines: &Engines, counters: &BTreeMap<CounterId, Counter>) -> anyhow::Result<usize> {
    let Some(cache) = engines.cache()? else { return Ok(0) };
    let partitions = engines.tables().changes.config().await?.context("there is no log of changes")?.partitions;
    let (mut cached, mut stale) = (0, None);
    let fresh = until("the cache to follow", FOLLOW, async || {
        (cached, stale) = (0, None);
        for partition in 0..partitions {
            let of_partition = |id: &&CounterId| partition_of(id.post.as_bytes(), partitions) == partition;
            let ids: Vec<CounterId> = counters.keys().filter(of_partition).cloned().collect();
            for ids in ids.chunks(TOGETHER) {
                let Ok(found) = cache.get(partition, ids).await else { return false };
                for (id, value) in ids.iter().zip(found.values) {
                    let Some(value) = value else { continue };
                    cached += 1;
                    if value != Value::from(&counters[id]) {
                        stale = Some(format!("{id} is cached as {value:?}, and is {:?}", counters[id]));
                    }
                }
            }
        }
        stale.is_none()
    });
    fresh.await.with_context(|| stale.unwrap_or_default())?;
    Ok(cached)
}

/// The API must answer what the counters of all Regions contain, and call it exact.
async fn answers(
    fleet: &Fleet,
    ids: impl Iterator<Item = CounterId>,
    regions: [&BTreeMap<CounterId, Counter>; 2],
) -> anyhow::Result<()> {
    let address = fleet.api().public().context("the api has no public address yet")?;
    for id in ids {
        let count: i64 = regions.iter().filter_map(|counters| counters.get(&id)).map(|counter| counter.likes).sum();
        let of_post = format!("/v1/posts/{}", id.post);
        let mut routes = vec![(format!("{of_post}/counters/{}", id.name), "value")];
        routes.extend((id.name == CounterName::LIKES).then(|| (format!("{of_post}/likes"), "likes")));
        for (path, field) in routes {
            let mut said = None;
            let right = until("the api to follow", FOLLOW, async || {
                said = http::get(address, &path).await;
                let Some(answer) = &said else { return false };
                let Ok(body) = serde_json::from_str::<Json>(&answer.body) else { return false };
                body[field] == count && body["exact"] == true
            });
            right.await.with_context(|| format!("{id} is {count}, but the api answers {said:?} to {path}"))?;
        }
    }
    Ok(())
}

/// How long a full audit may take when all is quiet.
const QUIET: Duration = Duration::from_secs(300);

/// How long a recount may take under attack. It waits for streamers that are killed or stopped.
const PATIENCE: Duration = Duration::from_secs(45);

/// The result of a recount that has finished.
pub(crate) struct Found {
    pub(crate) took: Duration,
    pub(crate) rows: u64,
}

/// Runs a full audit until it ends, which must find nothing.
pub(crate) async fn audit(launcher: &Launcher) -> anyhow::Result<Found> {
    recount(launcher, &[], QUIET).await?
}

/// Runs a full audit until it ends. It may correct counts, and must leave none wrong.
pub(crate) async fn repair(launcher: &Launcher) -> anyhow::Result<()> {
    let process = launcher.start(Service::Recount, &[])?;
    let code = process.exit(QUIET).await?;
    ensure!(code == Some(0), "a recount left wrong counts and ended with {code:?}\n{}", process.tail());
    Ok(())
}

/// Recounts all of `post` while it changes, and returns `None` if that did not finish.
pub(crate) async fn attempt(launcher: &Launcher, post: &str) -> anyhow::Result<Option<Found>> {
    Ok(recount(launcher, &["--post", post], PATIENCE).await?.ok())
}

/// Runs a recount. The inner error is that it took longer than `limit`. It must find nothing, since counts are never wrong.
async fn recount(launcher: &Launcher, scope: &[&str], limit: Duration) -> anyhow::Result<anyhow::Result<Found>> {
    let began = Instant::now();
    let process = launcher.start(Service::Recount, scope)?;
    let code = match process.exit(limit).await {
        Ok(code) => code,
        Err(late) => {
            process.kill().await?;
            return Ok(Err(late));
        }
    };
    let (took, printed) = (began.elapsed(), process.printed());
    let mut lines = printed.lines().rev().filter_map(|line| serde_json::from_str::<Json>(line).ok());
    let summary = lines.find_map(|mut line| Some(line.get_mut("summary")?.take())).with_context(|| process.tail())?;
    let drift = summary["drift"].as_object().is_some_and(|drift| !drift.is_empty());
    let number = |name: &str| summary[name].as_u64().unwrap_or(0);
    ensure!(!drift && number("corrected") == 0, "a recount found wrong counts: {summary}\n{}", process.tail());
    ensure!(number("misplaced_rows") == 0, "a recount found misplaced rows: {summary}");
    ensure!(code == Some(0), "a recount ended with {code:?}: {summary}\n{}", process.tail());
    Ok(Ok(Found { took, rows: number("rows") }))
}
