//! What must be true when all is quiet: rows and cells are what was said, counts are what they weigh, and the cache and the
//! API say so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, ensure};
use tally_core::counter::Counter;
use tally_core::homes::Homes;
use tally_core::ids::{CounterId, CounterKind, CounterName, RESERVED, RowKey, ShardCount};
use tally_core::ports::{Cache as _, Cached, CounterMaps as _, Counts as _, DeploymentConfig as _, Rows as _, Segment};
use tally_core::served::Served;

use super::engines::Engines;
use super::fleet::Fleet;
use super::http;
use super::ledger::{Truth, Weights, all_counters, definitions};
use super::wait::until;
use crate::simulation::laws::{Quiet, exact};

/// How long the cache and the API may take to say what the counters say: they follow.
const FOLLOW: Duration = Duration::from_secs(20);

/// What was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    pub(crate) rows: usize,
    pub(crate) cells: usize,
    pub(crate) counters: usize,
    pub(crate) cached: usize,
}

/// Holds everything against everything.
pub(crate) async fn judge(engines: &Engines, fleet: &Fleet, truth: &Truth) -> anyhow::Result<Compared> {
    let shards = ShardCount::DEFAULT;
    let rows = scanned(engines).await?;
    let maps = maps(engines).await?;
    truth.is_in(&rows, shards, &maps)?;
    let mut by_key: BTreeMap<RowKey, i64> = BTreeMap::new();
    for ((pk, _), weight) in &rows {
        *by_key.entry(pk.parse()?).or_default() += weight;
    }
    since_when(engines, by_key.keys(), truth).await?;
    let counters = counters(engines).await?;
    exact(&Quiet { rows: &by_key, counters: &counters })?;
    let counted: BTreeSet<&CounterId> = counters.keys().collect();
    let missing = by_key.keys().find(|key| !counted.contains(&key.counter));
    ensure!(missing.is_none(), "{missing:?} has rows, and no counter");
    let gaps = engines.open_gaps().await?;
    ensure!(gaps == 0, "{gaps} gaps are open, and nothing of the stream was lost");
    let cached = cache(engines, &counters).await?;
    let defined = engines.ports().checkpoints.definitions().await?;
    answers(fleet, all_counters(&defined), &counters).await?;
    // Answering may have filled it.
    let cached = cache(engines, &counters).await?.max(cached);
    let cells = rows.keys().filter(|(_, sort)| sort.starts_with(RESERVED)).count();
    Ok(Compared { rows: rows.len(), cells, counters: counters.len(), cached })
}

/// Under how many shards the rows of a set may be, where that is not the deployment's.
async fn maps(engines: &Engines) -> anyhow::Result<BTreeMap<CounterId, Homes>> {
    let sets: Vec<_> = all_counters(&definitions()).filter(|id| id.name.kind() == CounterKind::Set).collect();
    let maps = engines.ports().maps.maps(&sets).await?;
    Ok(sets.into_iter().zip(maps).filter_map(|(id, map)| Some((id, map?.homes()))).collect())
}

/// Every row that counts, and what it weighs.
async fn scanned(engines: &Engines) -> anyhow::Result<Weights> {
    let mut rows = Weights::new();
    let mut after = None;
    loop {
        let page = engines.ports().rows.scan(Segment { index: 0, of: 1 }, after.as_ref()).await?;
        for row in page.items {
            let weight = row.weight().with_context(|| format!("{row:?} has no weight"))?;
            rows.insert((row.pk, row.sort), weight.get());
        }
        after = page.next;
        if after.is_none() {
            return Ok(rows);
        }
    }
}

/// Rows also say since when, and that is when the last event said.
async fn since_when(engines: &Engines, keys: impl Iterator<Item = &RowKey>, truth: &Truth) -> anyhow::Result<()> {
    for key in keys.filter(|key| key.counter.name.kind() == CounterKind::Set) {
        let mut after = None;
        loop {
            let page = engines.ports().rows.likes(key, after.as_ref(), None).await?;
            for like in page.items {
                let place = (key.counter.clone(), like.user.as_str().to_owned());
                let said = truth.members.get(&place);
                ensure!(said == Some(&like.liked_at), "{place:?} is since {}, and {said:?} was said", like.liked_at);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

async fn counters(engines: &Engines) -> anyhow::Result<BTreeMap<CounterId, Counter>> {
    let mut counters = BTreeMap::new();
    let mut after = None;
    loop {
        let page = engines.ports().counts.scan(Segment { index: 0, of: 1 }, after.as_ref()).await?;
        for (id, counter) in page.items {
            counters.insert(id, counter?);
        }
        after = page.next;
        if after.is_none() {
            return Ok(counters);
        }
    }
}

/// What is cached is the count as it stands; how many are.
async fn cache(engines: &Engines, counters: &BTreeMap<CounterId, Counter>) -> anyhow::Result<usize> {
    let Some(redis) = &engines.redis else { return Ok(0) };
    let (cache, ids) = (redis.cache(&engines.ports().prefix)?, counters.keys().cloned().collect::<Vec<_>>());
    let (mut cached, mut stale) = (0, None);
    let fresh = until("the cache to follow", FOLLOW, async || {
        let Ok(found) = cache.get(&ids).await else { return false };
        (cached, stale) = (0, None);
        for (id, found) in ids.iter().zip(found) {
            let Cached::Hit(served) = found else { continue };
            cached += 1;
            let counter = &counters[id];
            if is_stale(&served, counter) {
                let Counter { likes, version, .. } = counter;
                stale = Some(format!("{id} is cached as {served}, and is {likes} at version {version}"));
            }
        }
        stale.is_none()
    });
    fresh.await.with_context(|| stale.unwrap_or_default())?;
    Ok(cached)
}

/// Whether the cache does not hold the counter's total. It may hold an older version: a verdict that corrects nothing
/// raises the counter's version, and does not update the cache.
fn is_stale(served: &Served, counter: &Counter) -> bool {
    served.likes != counter.likes || served.version > counter.version
}

/// The API says what the counters say, and that it is exact.
async fn answers(
    fleet: &Fleet,
    ids: impl Iterator<Item = CounterId>,
    counters: &BTreeMap<CounterId, Counter>,
) -> anyhow::Result<()> {
    let address = fleet.api().public().context("the api listens nowhere")?;
    for id in ids {
        let count = counters.get(&id).map_or(0, |counter| counter.likes);
        let of_post = format!("/v1/posts/{}", id.post);
        let mut routes = vec![(format!("{of_post}/counters/{}", id.name), "value")];
        routes.extend((id.name == CounterName::LIKES).then(|| (format!("{of_post}/likes"), "likes")));
        for (path, field) in routes {
            let mut said = None;
            let right = until("the api to follow", FOLLOW, async || {
                said = http::get(address, &path).await;
                let Some(answer) = &said else { return false };
                let Ok(body) = serde_json::from_str::<serde_json::Value>(&answer.body) else { return false };
                body[field] == count && body["exact"] == true
            });
            right.await.with_context(|| format!("{id} is {count}, and the api says {said:?} to {path}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cached_count_may_lack_a_version_that_changed_nothing_but_no_change() {
        let counter = Counter { likes: 3, version: 7, ..Counter::default() };
        let is_stale = |likes, version| is_stale(&Served { likes, version, ..Served::default() }, &counter);
        assert!(!is_stale(3, 7));
        assert!(!is_stale(3, 6), "the last version was a verdict that corrected nothing");
        assert!(is_stale(2, 6), "the last version added a like");
        assert!(is_stale(2, 7), "the total of another counter");
        assert!(is_stale(3, 8), "a version that the counter has not reached");
    }
}
