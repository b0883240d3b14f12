//! `tally regions`: lists the Regions whose counts the API's answers add up (`list`), and leaves one out for good
//! (`forget`). A Region's *entries* are its counts, copied to this Region.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Subcommand;
use serde::Serialize;
use serde_json::json;
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::regions::Regions;
use tally_core::changes::Standing;
use tally_core::event::partition_of;
use tally_core::fold::serve;
use tally_core::ids::{CounterId, Region};
use tally_core::time::UnixMillis;

use crate::change::Changing;
use crate::desk::{Desk, Where};
use crate::said::{Answer, Table, ago, or, past, ranges};

/// A Region is silent if its entries are complete up to an earlier time than this long ago.
const SILENT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Verb {
    /// Lists the Regions whose entries are added up, this one first. Exits with 1 where one is silent
    List(Where),
    /// Leaves a Region that is gone for good out of every answer. Take it from --remote of the change-streamers before
    Forget {
        /// The Region
        #[arg(value_parser = named, value_name = "NAME")]
        name: Region,

        #[command(flatten)]
        change: Changing,
    },
}

fn named(text: &str) -> Result<Region, String> {
    Region::new(text).ok_or_else(|| "a Region is [a-z0-9-]{1,32}".to_owned())
}

/// Another Region, and up to when its entries are complete.
#[derive(Debug, Serialize)]
pub(crate) struct Remote {
    region: String,
    #[serde(skip)]
    id: Region,
    /// Every event that Kafka had acknowledged in that Region by this time is in its entries, if such a time is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<UnixMillis>,
    #[serde(skip)]
    age: Option<Duration>,
    partitions: u32,
    /// Partitions without a valid standing: it is not known up to when their entries are complete.
    unknown: Vec<u32>,
    /// The standing of each partition's entries, where one is valid.
    #[serde(skip)]
    standings: BTreeMap<u32, Standing>,
}

impl Remote {
    /// Returns whether the Region is silent: its entries are not known to be complete up to a minute ago.
    pub(crate) fn is_silent(&self) -> bool {
        self.age.is_none_or(|age| age > SILENT)
    }
}

impl std::fmt::Display for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { region, age, partitions, unknown, .. } = self;
        let age = age.map_or("a time that is not known".to_owned(), |age| format!("{} ago", ago(age)));
        write!(f, "{region}: {partitions} partitions, complete up to {age}")?;
        if unknown.is_empty() { Ok(()) } else { write!(f, ", nothing known of {}", ranges(unknown.iter().copied())) }
    }
}

/// Reads what is known about every other Region.
///
/// # Errors
/// The tables cannot be read.
pub(crate) async fn look(desk: &Desk) -> anyhow::Result<Vec<Remote>> {
    let (_, named) = desk.checkpoints.defined().await.context("cannot read the Regions")?;
    let config = desk.changes.config().await.context("cannot read the configuration of the log")?;
    let partitions = config.map_or(0, |config| config.partitions);
    let standings = Regions::new(&desk.connection).standings(&named, partitions).await;
    let (standings, now) = (standings.context("cannot read the standings of other Regions")?, desk.clock.now());
    let remote = |region: &Region| {
        let standing = |partition| Some((partition, standings.get(&(region.clone(), partition))?.standing.clone()));
        let standings: BTreeMap<u32, Standing> = (0..partitions).filter_map(standing).collect();
        let as_of = (0..partitions).map(|partition| standings.get(&partition)?.as_of).min().flatten();
        let unknown = (0..partitions).filter(|partition| !standings.contains_key(partition)).collect();
        let age = as_of.map(|as_of| now.since(as_of));
        Remote { region: region.to_string(), id: region.clone(), as_of, age, partitions, unknown, standings }
    };
    Ok(named.remotes.iter().map(remote).collect())
}

/// Lists this Region, if it has a name, and the others.
fn listed(own: Option<&Region>, remotes: &[Remote]) -> Answer {
    let is_silent = remotes.iter().any(Remote::is_silent);
    let Some(own) = own else {
        let text = "this Region has no name: --region-name of tally-change-streamer gives it one";
        return Answer::new(json!({"remotes": remotes}), text).wrong_if(is_silent);
    };
    let mut table = Table::headed(["region", "includes all before", "partitions known", ""]);
    table.row([own, &"-", &"-", &"this one"]);
    for remote in remotes {
        let Remote { region, age, partitions, unknown, .. } = remote;
        let age = age.map_or("not known".to_owned(), |age| format!("{} ago", ago(age)));
        let known = format!("{} of {partitions}", *partitions as usize - unknown.len());
        table.row([region, &age, &known, &if remote.is_silent() { "silent" } else { "" }]);
    }
    Answer::new(json!({"own": own.to_string(), "remotes": remotes}), table).wrong_if(is_silent)
}

impl Verb {
    pub(crate) async fn run(self) -> anyhow::Result<Answer> {
        match self {
            Self::List(of) => {
                let desk = Desk::open(of).await?;
                let (_, named) = desk.checkpoints.defined().await.context("cannot read the Regions")?;
                Ok(listed(named.own.as_ref(), &look(&desk).await?))
            }
            Self::Forget { name, change: Changing { writing, of } } => {
                let desk = Desk::open(of).await?;
                let (_, named) = desk.checkpoints.defined().await.context("cannot read the Regions")?;
                ensure!(named.own.as_ref() != Some(&name), "`{name}` is this Region");
                let is_known = named.remotes.contains(&name);
                let plan = is_known.then(|| format!("forget {name}: no answer has its part from then on"));
                let changed = writing.carry_out(&desk, "regions forget", plan.into_iter().collect(), async || {
                    let forgotten = Regions::new(&desk.connection).forget(&name).await;
                    forgotten.context("cannot store the Regions")?;
                    Ok(format!("{name} is forgotten: answers follow within 3 s"))
                });
                Ok(changed.await?.into())
            }
        }
    }
}

/// The entry of another Region for a counter, which is an item of `like_counts`. `tally post show --explain` shows it.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    region: String,
    /// What the entry adds. Absent where it cannot be read.
    value: Option<i64>,
    version: u64,
    pub(crate) exact: bool,
    /// Every event that Kafka had acknowledged in that Region by this time is in the entry, if such a time is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<UnixMillis>,
    #[serde(skip)]
    age: String,
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { region, value, version, exact, age, .. } = self;
        let value = or(*value, "not readable");
        let exact = if *exact { "exact" } else { "not exact" };
        write!(f, "in {region}: {value}, {exact}, version {version}, includes all before {age}")
    }
}

/// Reads each Region's entry for the counter. Call [`look`] before: so an entry has at least what its standing says.
pub(crate) async fn entries(
    desk: &Desk,
    counter: &CounterId,
    remotes: &[Remote],
    now: UnixMillis,
) -> anyhow::Result<Vec<Entry>> {
    let ids: Vec<CounterId> = remotes.iter().map(|remote| counter.in_region(&remote.id)).collect();
    let read = desk.counters.read(&ids, Consistency::Strong).await;
    let mut read = read.context("cannot read the entries of other Regions")?;
    let mut entries = Vec::new();
    for (Remote { region, partitions, standings, .. }, id) in remotes.iter().zip(&ids) {
        let found = read.counters.remove(id);
        let standing = standings.get(&partition_of(counter.post.as_bytes(), *partitions));
        let is_known = standing.is_some() && (found.is_some() || read.reserved);
        let standing = standing.cloned().unwrap_or_default();
        let served = found.transpose().ok().map(|found| serve(&standing, id.name.kind(), found.as_ref()));
        entries.push(Entry {
            region: region.clone(),
            value: served.map(|served| served.likes),
            version: served.map_or(0, |served| served.version),
            exact: served.is_some_and(|served| served.exact) && is_known && standing.as_of.is_some(),
            as_of: standing.as_of,
            age: past(now, standing.as_of),
        });
    }
    Ok(entries)
}
