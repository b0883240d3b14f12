//! Reads what is stored about a post, in the order in which the API reads it: first its *sources* (up to when consumers
//! have written all events as rows), then its *standing* (up to when all changes of rows are counted), then its
//! counters. So a counter has at least what the standing says. `tally post show` prints the result; `status` and
//! `verify` use parts.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tally_adapters::dynamodb::Consistency;
use tally_adapters::dynamodb::changes::Losses;
use tally_core::audit::Cause;
use tally_core::changes::{Standing, partition_of};
use tally_core::fault::Fault;
use tally_core::fold::{Counter, serve};
use tally_core::ids::{CounterId, PostId, RowKey};
use tally_core::ports::Outcome;
use tally_core::register::SafeTimes;
use tally_core::served;
use tally_core::time::UnixMillis;

use super::reasons::{Age, Reason};
use crate::desk::Desk;
use crate::ended::Usage;
use crate::said::counted;
use crate::verbs::regions::Entry;

/// How often a standing that is older than the sources is read again, and when. If nothing happens, one is at most 4 s
/// old.
const LOOKS: u32 = 25;
const BETWEEN: Duration = Duration::from_millis(200);

/// The standing of a post's counters, and the losses.
#[derive(Debug, Default)]
pub(super) struct Stands {
    /// The post's partition of the log of changes and its standing; `None` before the first standing was stored.
    pub(super) stored: Option<(u32, Standing)>,
    /// All losses that are stored.
    pub(super) losses: Losses,
}

impl Stands {
    /// Returns the time by which every event of these sources that was acknowledged is in the counter, if it is known.
    pub(super) fn as_of(&self, sources: &Sources) -> Option<UnixMillis> {
        let (_, standing) = self.stored.as_ref().filter(|_| !sources.times.is_empty())?;
        served::as_of(standing, &sources.times)
    }
}

/// What consumers have stored about the partitions of a counter's events: its subject's for a set, all for a sum.
#[derive(Clone, Debug, Default)]
pub(in crate::verbs) struct Sources {
    /// Empty where nothing is known of the topic.
    pub(super) times: Vec<SafeTimes>,
    /// When the latest of these times was stored.
    pub(super) at: UnixMillis,
}

impl Sources {
    /// Returns the time by which every event that Kafka had acknowledged is a row; `None` where no such time is known.
    pub(super) fn complete(&self) -> Option<UnixMillis> {
        let each = self.times.iter().map(|times| times.by(UnixMillis::MAX)).collect::<Option<Vec<_>>>()?;
        each.into_iter().min()
    }
}

/// A counter as it was read.
#[derive(Debug)]
pub(in crate::verbs) struct Found {
    pub(super) id: CounterId,
    pub(super) sources: Sources,
    /// The counter, or why its item cannot be read.
    pub(in crate::verbs) counter: Outcome<Option<Counter>>,
    /// Whether the table is the one that counters were written to. If so, a counter that is absent was never written.
    pub(super) reserved: bool,
}

/// A counter's numbers, and what is said of them.
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    pub(super) counter: String,
    /// The total as it is stored; absent where it cannot be read.
    pub(super) value: Option<i64>,
    pub(super) version: u64,
    pub(super) exact: bool,
    pub(super) fresh: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) as_of: Option<UnixMillis>,
    /// How many shards the counter has parts of.
    pub(super) shards: usize,
    /// How many corrections the counter has had.
    pub(super) c: u64,
    /// The place of the last loss that was announced before the counter's last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    gap: Option<u64>,
    /// The shards that are in doubt.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    doubt: BTreeSet<u16>,
    /// The row keys that wait for a recount, each with the reason.
    pub(super) queued: Vec<(String, &'static str)>,
    /// Why the number is not exact or not fresh; `None` without --explain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<Vec<Reason>>,
    /// What other Regions add to the number. Empty without --explain, and where there are no other Regions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) regions: Vec<Entry>,
}

impl Figures {
    /// Returns the numbers, with `exact` and `fresh` as the API would say them.
    pub(super) fn of(found: &Found, stands: &Stands, age: Age) -> Self {
        let standing = stands.stored.as_ref().map(|(_, standing)| standing.clone()).unwrap_or_default();
        let counter = found.counter.as_ref().ok().map(Option::as_ref);
        let served = counter.map(|counter| serve(&standing, found.id.name.kind(), counter));
        let Counter { parts, corrections, gap, doubt, .. } = counter.flatten().cloned().unwrap_or_default();
        // As in the API, no number is exact without an `as_of`.
        let as_of = stands.as_of(&found.sources);
        let is_known = as_of.is_some() && found.sources.complete().is_some();
        let is_known = is_known && (counter.flatten().is_some() || found.reserved);
        Self {
            counter: found.id.name.to_string(),
            value: served.map(|served| served.likes),
            version: served.map_or(0, |served| served.version),
            exact: is_known && served.is_some_and(|served| served.exact),
            fresh: as_of.is_some_and(|as_of| age.is_fresh(as_of)),
            as_of,
            shards: parts.len(),
            c: corrections,
            gap: gap.map(|gap| gap.stored()),
            doubt: doubt.iter().map(|shard| shard.index()).collect(),
            queued: Vec::new(),
            why: None,
            regions: Vec::new(),
        }
    }

    /// Says what the table does not, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.regions.iter().map(|entry| format!(" {entry}")).collect();
        if !self.queued.is_empty() {
            let whys: BTreeSet<&str> = self.queued.iter().map(|(_, why)| *why).collect();
            let whys = Vec::from_iter(whys).join(", ");
            let keys = counted(self.queued.len() as u64, "row key");
            lines.push(format!(" is queued for a recount ({whys}; {keys})"));
        }
        match &self.why {
            None if !self.exact => lines.push(" is not exact: --explain says why".to_owned()),
            None if !self.fresh => lines.push(" is not fresh: --explain says why".to_owned()),
            None => {}
            Some(why) if why.is_empty() && self.queued.is_empty() => lines
                .push(": nothing is known to be wrong; tally verify compares all counts with their rows".to_owned()),
            Some(why) => lines.extend(why.iter().map(|reason| format!(": {}", reason.text))),
        }
        lines
    }

    pub(super) fn is_wrong(&self) -> bool {
        let is_told = self.why.iter().any(|why| !why.is_empty());
        !self.exact || !self.fresh || is_told || !self.regions.iter().all(|entry| entry.exact)
    }
}

/// Returns the ids of the subject's counters with these names, or of all its counters if no name is given.
///
/// # Errors
/// The deployment has no counter with one of the names.
pub(super) async fn chosen(desk: &Desk, subject: &PostId, names: &[String]) -> anyhow::Result<Vec<CounterId>> {
    let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
    let chosen = tally_batch_recount::chosen(&defined, names);
    let chosen = chosen.map_err(|error| Usage(format!("{error}: see tally counters list")))?;
    Ok(chosen.into_iter().map(|definition| CounterId { post: subject.clone(), name: definition.name }).collect())
}

/// Reads the sources of each of the counters.
pub(super) async fn sources(desk: &Desk, counters: &[CounterId]) -> anyhow::Result<Vec<Sources>> {
    let defined = desk.checkpoints.definitions().await.context("cannot read the counters")?;
    let mut all = Vec::new();
    for id in counters {
        let own = defined.named(id.name.as_str()).and_then(|definition| definition.topic.as_deref());
        let (name, mut sources) = (own.unwrap_or(&desk.topic), Sources::default());
        let topic = desk.claims.topic(name).await.context("cannot read what is known of the topic")?;
        if let Some(topic) = topic {
            let partitions = topic.current().partitions();
            let claims = desk.claims.all(name, partitions).await.context("cannot read the claims")?;
            let taken = claims.iter().map(|claim| {
                let mut times = SafeTimes::default();
                claim.kept.iter().filter(|kept| kept.topic == topic.id).for_each(|kept| times.take(kept));
                times
            });
            sources.times = served::sources(id, &taken.collect::<Vec<_>>()).to_vec();
            sources.at = sources.times.iter().filter_map(SafeTimes::last).max().unwrap_or_default();
        }
        all.push(sources);
    }
    Ok(all)
}

/// Reads the standing of the post's partition and then the losses. Call it before [`counter`]. If the standing is older
/// than the sources, this waits a few seconds for a newer one.
pub(super) async fn standing(desk: &Desk, post: &PostId, sources: &[Sources]) -> anyhow::Result<Stands> {
    let since = sources.iter().map(|sources| sources.at).max().unwrap_or_default();
    let mut stored = stored(desk, post).await?;
    for _ in 0..LOOKS {
        let as_of = stored.as_ref().and_then(|(_, standing)| standing.as_of);
        if as_of.is_none_or(|as_of| as_of >= since) {
            break;
        }
        desk.clock.sleep(BETWEEN).await;
        stored = self::stored(desk, post).await?;
    }
    let losses = desk.changes.losses().await.context("cannot read the losses")?;
    Ok(Stands { stored, losses })
}

async fn stored(desk: &Desk, post: &PostId) -> anyhow::Result<Option<(u32, Standing)>> {
    let config = desk.changes.config().await.context("cannot read the configuration of the log")?;
    let Some(config) = config else { return Ok(None) };
    let key = RowKey::of(&CounterId::likes(post.clone()), "", desk.shards);
    let partition = partition_of(&key, config.partitions);
    let found = desk.changes.stated(partition).await.context("cannot read the standing")?;
    Ok(found.map(|found| (partition, found.standing.standing)))
}

/// Reads a counter, after [`standing`]. An item that cannot be decoded is a result, a store that does not answer an
/// error.
pub(in crate::verbs) async fn counter(desk: &Desk, id: &CounterId, sources: Sources) -> anyhow::Result<Found> {
    let read = desk.counters.read(std::slice::from_ref(id), Consistency::Strong).await;
    let mut read = read.context("cannot read the counter")?;
    let counter = match read.counters.remove(id) {
        None => Ok(None),
        Some(Ok(counter)) => Ok(Some(counter)),
        Some(Err(fault @ Fault::Poison(_))) => Err(fault),
        Some(Err(fault)) => return Err(fault).context("cannot read the counter"),
    };
    Ok(Found { id: id.clone(), sources, counter, reserved: read.reserved })
}

/// Reads the row keys that wait for a recount, each with the reason.
pub(in crate::verbs) async fn queued(desk: &Desk) -> anyhow::Result<Vec<(RowKey, &'static str)>> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = desk.recounts.queued(after.as_ref()).await.context("cannot read the queue")?;
        found.extend(page.items.into_iter().map(|queued| (queued.key, Cause::from(queued.reason).label())));
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}
