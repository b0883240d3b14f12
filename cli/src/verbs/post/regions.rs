//! What other Regions add to a counter of a post, for `tally post show --explain`. A Region's *entry* for a counter is
//! an item of `like_counts`: the count of that Region, as far as it was copied to this one.

use anyhow::Context;
use serde::Serialize;
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::regions::Regions;
use tally_core::changes::Standing;
use tally_core::event::partition_of;
use tally_core::fold::serve;
use tally_core::ids::{CounterId, PostId, Region};
use tally_core::time::UnixMillis;

use crate::desk::Desk;
use crate::said::past;

/// For each other Region, the standing of the post's entries; `None` where no standing is valid.
pub(super) type Standings = Vec<(Region, Option<Standing>)>;

/// The entry of another Region.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    region: String,
    /// What the entry adds. Absent where it cannot be read.
    value: Option<i64>,
    version: u64,
    pub(super) exact: bool,
    /// Every event that Kafka had acknowledged in that Region by this time is in the entry, if such a time is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<UnixMillis>,
    #[serde(skip)]
    age: String,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { region, value, version, exact, age, .. } = self;
        let value = value.map_or("not readable".to_owned(), |value| value.to_string());
        let exact = if *exact { "exact" } else { "not exact" };
        write!(f, "in {region}: {value}, {exact}, version {version}, includes all before {age}")
    }
}

/// Reads the standings. Call it before [`entries`]: so an entry has at least what its standing says.
pub(super) async fn standings(desk: &Desk, post: &PostId) -> anyhow::Result<Standings> {
    let (_, named) = desk.checkpoints.defined().await.context("cannot read the Regions")?;
    let config = desk.changes.config().await.context("cannot read the configuration of the log")?;
    let Some(config) = config.filter(|_| !named.remotes.is_empty()) else { return Ok(Vec::new()) };
    let partition = partition_of(post.as_bytes(), config.partitions);
    let read = Regions::new(&desk.connection).standings(&named, config.partitions).await;
    let mut read = read.context("cannot read the standings of other Regions")?;
    let stated = |region: Region| {
        let standing = read.remove(&(region.clone(), partition)).map(|stated| stated.standing);
        (region, standing)
    };
    Ok(named.remotes.into_iter().map(stated).collect())
}

/// Reads each Region's entry for the counter.
pub(super) async fn entries(
    desk: &Desk,
    counter: &CounterId,
    standings: &Standings,
    now: UnixMillis,
) -> anyhow::Result<Vec<Entry>> {
    let ids: Vec<CounterId> = standings.iter().map(|(region, _)| counter.in_region(region)).collect();
    let read = desk.counters.read(&ids, Consistency::Strong).await;
    let mut read = read.context("cannot read the entries of other Regions")?;
    let mut entries = Vec::new();
    for ((region, standing), id) in standings.iter().zip(&ids) {
        let found = read.counters.remove(id);
        let is_known = standing.is_some() && (found.is_some() || read.reserved);
        let standing = standing.clone().unwrap_or_default();
        let served = found.transpose().ok().map(|found| serve(&standing, id.name.kind(), found.as_ref()));
        entries.push(Entry {
            region: region.to_string(),
            value: served.map(|served| served.likes),
            version: served.map_or(0, |served| served.version),
            exact: served.is_some_and(|served| served.exact) && is_known && standing.as_of.is_some(),
            as_of: standing.as_of,
            age: past(now, standing.as_of),
        });
    }
    Ok(entries)
}
