//! Finds the stream shards of the likes table, announces them in the log, shares them out by leases, and runs a reader
//! for each that is this process's. No lease is trusted: if two processes read one stream shard, nothing counts twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tally_adapters::dynamodb::changes::{Losses, StoredShard};
use tally_core::changes::{Body, LossNumber, Opened, Opening};
use tally_core::fault::Fault;
use tally_core::ids::{StreamLabel, StreamShard, StreamShardId};
use tally_core::lineage::{Listed, is_complete};
use tally_core::ports::{StreamFault, StreamInfo};
use tally_core::relay::{Fed, Input};
use tally_core::shards::{Lease, Offer, plan};
use tally_core::time::UnixMillis;
use tally_service::{Host, Stage, Stop, Stopped, Task, Until, Worker as Running};

use super::reader::Reader;
use super::{AGAIN, Reading, of_log};
use crate::metrics;

/// The longest wait between two looks at the stream shards and the leases.
const LOOK: Duration = Duration::from_secs(1);
/// How long a closed stream shard is remembered: longer than it is listed, and than messages about it are taken.
const REMEMBERED: Duration = Duration::from_secs(30 * 3600);
/// How many ended stream shards one message names at most, so that Kafka takes it.
const MOST: usize = 4000;
/// The readiness condition of the stream: every stream shard is closed, or some process reads it.
const READINESS: &str = "stream_shards";

/// How this process shares stream shards with others.
pub(crate) struct Sharing {
    /// This process.
    pub(crate) me: tally_core::shards::Worker,
    /// How long a lease may stand still before another process takes it.
    pub(crate) stale: Duration,
}

pub(crate) struct Follow {
    of: Reading,
    host: Host,
    sharing: Option<Sharing>,
    slots: metrics::Slots,
    readers: BTreeMap<StreamShard, Running>,
    /// Each reader has a clone, and so knows how many readers there are.
    counted: std::sync::Arc<()>,
    /// The leases as they were seen last, and since when each has not changed.
    leases: BTreeMap<StreamShardId, (Lease, Duration)>,
    /// The open stream shards that no process reads, and since when.
    unread: BTreeMap<StreamShard, Duration>,
    held: BTreeSet<StreamShard>,
    listed: Option<Listing>,
    /// The losses of the log that were open when all stream shards were announced last, and when that was.
    announced: (BTreeSet<LossNumber>, Duration),
    /// Why the stream is not followed as it should be.
    trouble: Option<String>,
}

/// The stream and its shards as the service has listed them.
struct Listing {
    info: StreamInfo,
    shards: Vec<Listed>,
    at: Duration,
}

impl Follow {
    pub(super) fn new(of: Reading, host: Host, sharing: Option<Sharing>) -> Self {
        host.readiness().not_ready(READINESS, "the stream is not followed yet");
        Self {
            of,
            host,
            sharing,
            slots: metrics::Slots::default(),
            readers: BTreeMap::new(),
            counted: std::sync::Arc::default(),
            leases: BTreeMap::new(),
            unread: BTreeMap::new(),
            held: BTreeSet::new(),
            listed: None,
            announced: (BTreeSet::new(), Duration::ZERO),
            trouble: None,
        }
    }

    async fn follow(&mut self) -> anyhow::Result<()> {
        let intake = self.host.stop();
        loop {
            intake.unless_requested(self.look(&intake)).await??;
            // Processes that look at the same moments would find each other's leases moved whenever they act.
            let wait = LOOK.mul_f64(1.0 - self.host.chance().fraction() / 4.0);
            intake.unless_requested(self.of.patience.clock().sleep(wait)).await?;
        }
    }

    /// Waits for the readers, then gives the leases back, so that other processes need not wait until they are stale. At
    /// the last call it leaves the rest as they are: a store that does not answer must not hold up the end.
    async fn give_back(&mut self, stop: &Stop) {
        while self.readers.values().any(|reader| !reader.has_ended()) && !stop.is_last_call() {
            self.of.patience.clock().sleep(Duration::from_millis(10)).await;
        }
        let Some(sharing) = &self.sharing else { return };
        for shard in std::mem::take(&mut self.held) {
            match stop.until_last_call(self.of.store.release(&shard, &sharing.me)).await {
                Ok(Ok(())) => {}
                Ok(Err(fault)) => {
                    tracing::warn!(%fault, %shard, "a lease was not given back: it is taken when it is stale");
                }
                Err(Stopped) => {
                    tracing::warn!(
                        "leases were not given back before the grace ended: they are taken when they are stale"
                    );
                    return;
                }
            }
        }
    }

    /// Announces what readers of the log do not know, and starts and stops readers. Each step is safe to repeat.
    async fn look(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let losses =
            self.of.patience.persist("read the losses", Until::Requested(stop), || self.of.store.losses()).await?;
        self.of.writing.hand(Input::Losses(losses.open().map(|(number, _)| number).collect())).await?;
        let unlisted = self.list(stop).await?;
        let Some(Listing { info, .. }) = &self.listed else {
            self.report(unlisted);
            return Ok(());
        };
        let label = info.label.clone();
        let stored = self.stored(&label, stop).await?;
        let stored = self.announce(&label, stored, &losses, stop).await?;
        let mine = self.share(&label, &stored, stop).await?;
        let unread = self.unread(&stored, &mine);
        metrics::stream_shards(&stored, &mine);
        self.report(unlisted.or(unread));
        Ok(())
    }

    async fn stored(&self, label: &StreamLabel, stop: &Stop) -> anyhow::Result<Vec<StoredShard>> {
        let read = || self.of.store.shards(label);
        self.of.patience.persist("read the stream shards", Until::Requested(stop), read).await
    }

    /// Lists the stream's shards if it is time to. Returns why they cannot be listed, if that is to be reported.
    async fn list(&mut self, stop: &Stop) -> anyhow::Result<Option<String>> {
        let now = self.of.patience.clock().reading().at;
        if self.listed.as_ref().is_some_and(|listing| now.saturating_sub(listing.at) < self.of.rules.discover) {
            return Ok(None);
        }
        let list = async {
            let info = self.of.stream.info().await?;
            let shards = self.of.stream.shards(&info.label).await?;
            Ok::<_, StreamFault>((info, shards))
        };
        match stop.unless_requested(list).await? {
            Ok((info, shards)) => {
                self.forget(&info.label, &shards, stop).await?;
                self.listed = Some(Listing { info, shards, at: now });
                Ok(None)
            }
            Err(fault) => {
                let (why, since) = (fault.to_string(), self.listed.as_ref().map(|listing| listing.at));
                let passes = matches!(&fault, StreamFault::Fault(fault) if fault.is_retryable());
                metrics::FAULTS.counter(&[Fault::from(fault).class()]).increment(1);
                let is_known = since.is_some_and(|at| now.saturating_sub(at) < self.of.rules.discover * 3);
                Ok((!(passes && is_known)).then(|| format!("the stream shards cannot be listed: {why}")))
            }
        }
    }

    /// Closes stream shards of earlier streams, and drops those that were closed long ago and are listed no more. What
    /// an earlier stream had unread is lost; that loss was announced before this stream was.
    async fn forget(&self, label: &StreamLabel, listed: &[Listed], stop: &Stop) -> anyhow::Result<()> {
        let (store, until, now) = (&self.of.store, Until::Requested(stop), self.of.patience.clock().now());
        let every = self.of.patience.persist("read the stream shards", until, || store.every_shard()).await?;
        let current = StreamShard::new(label, &StreamShardId::from(""));
        let has_begun = every.iter().any(|stored| stored.shard.label() == current.label());
        for StoredShard { shard, closed, .. } in &every {
            let is_listed = || listed.iter().any(|listed| StreamShard::new(label, &listed.id) == *shard);
            match closed {
                None if has_begun && shard.label() < current.label() => {
                    self.of.patience.persist("close a stream shard", until, || store.close(shard, now)).await?;
                }
                Some(at) if now.since(*at) > REMEMBERED && !is_listed() => {
                    self.of.patience.persist("forget a stream shard", until, || store.forget(shard)).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Announces all stream shards when readers of the log may not know them all: at first, when no closing can name
    /// some, and while a piece of the log is lost. Returns what is stored. Safe to repeat, also by two processes at
    /// once.
    async fn announce(
        &mut self,
        label: &StreamLabel,
        mut stored: Vec<StoredShard>,
        losses: &Losses,
        stop: &Stop,
    ) -> anyhow::Result<Vec<StoredShard>> {
        let new = self.unnamed(label, &stored);
        let (lost, now, (announced, at)) = (of_log(losses), self.of.patience.clock().reading().at, &self.announced);
        let are_due = !lost.is_empty() && now.saturating_sub(*at) >= AGAIN;
        if new.is_empty() && lost.is_subset(announced) && !are_due {
            return Ok(stored);
        }
        let Some(Listing { info: StreamInfo { created, table_created, .. }, .. }) = self.listed else {
            return Ok(stored);
        };
        if !stored.is_empty() && !new.is_empty() {
            tracing::warn!(shards = new.len(), "stream shards are announced that no closing has named");
        } else if stored.is_empty() && !is_complete(created, table_created, self.of.patience.clock().now()) {
            let what = format!("stream {label} was not followed from the table's first row on");
            self.of.lose("unfollowed", &what, stop).await?;
        }
        loop {
            let (mut opened, mut named) = (Opened::default(), BTreeSet::new());
            for StoredShard { shard, fed, closed, .. } in &stored {
                named.insert(shard.clone());
                match closed {
                    None => opened.shards.push(Opening { shard: shard.clone(), at: fed.to, fed: fed.at }),
                    Some(_) => opened.ended.push(shard.clone()),
                }
            }
            // Nothing was written to a stream before it was created.
            let first = |new: &Listed| Opening { shard: StreamShard::new(label, &new.id), at: None, fed: created };
            opened.shards.extend(new.iter().map(first).filter(|opening| !named.contains(&opening.shard)));
            if opened.shards.is_empty() {
                return Ok(stored);
            }
            while opened.ended.len() > MOST {
                let ended = opened.ended.split_off(opened.ended.len() - MOST);
                self.of.writing.announce(Body::Opened(Opened { shards: Vec::new(), ended })).await?;
            }
            let open: Vec<_> = opened.shards.iter().map(|opening| opening.shard.clone()).collect();
            self.of.writing.announce(Body::Opened(opened)).await?;
            self.begin(label, &new, created, stop).await?;
            stored = self.stored(label, stop).await?;
            // If one was closed meanwhile, a reader that has missed the closing would take it for open.
            if !stored.iter().any(|stored| stored.closed.is_some() && open.contains(&stored.shard)) {
                break;
            }
        }
        self.announced = (lost, self.of.patience.clock().reading().at);
        Ok(stored)
    }

    /// Stores stream shards that were announced.
    async fn begin(&self, label: &StreamLabel, new: &[Listed], created: UnixMillis, stop: &Stop) -> anyhow::Result<()> {
        for shard in new {
            let (shard, parent) = (StreamShard::new(label, &shard.id), shard.parent.as_ref());
            let parent = parent.map(|parent| StreamShard::new(label, parent));
            let begin = || self.of.store.begin(&shard, parent.as_ref(), Fed { to: None, at: created });
            self.of.patience.persist("begin a stream shard", Until::Requested(stop), begin).await?;
        }
        Ok(())
    }

    /// Returns the listed stream shards that no closing has named or will name.
    fn unnamed(&self, label: &StreamLabel, stored: &[StoredShard]) -> Vec<Listed> {
        let Some(Listing { shards, .. }) = &self.listed else { return Vec::new() };
        let of = |id: &StreamShardId| StreamShard::new(label, id);
        let find = |id: &StreamShardId| stored.iter().find(|shard| shard.shard == of(id));
        // A parent that is open will name its children. One that is closed has named those it knew of.
        let is_named = |listed: &&Listed| {
            let mut parents = std::iter::successors(Some(*listed), |shard| {
                let parent = shard.parent.as_ref()?;
                shards.iter().find(|other| other.id == *parent)
            });
            parents.any(|shard| find(&shard.id).is_some_and(|stored| stored.closed.is_none()))
        };
        let unnamed: Vec<_> =
            shards.iter().filter(|shard| find(&shard.id).is_none() && !is_named(shard)).cloned().collect();
        // Without those whose parents are among them: these are named when their parents are closed.
        let is_among = |parent: &StreamShardId| unnamed.iter().any(|other| other.id == *parent);
        unnamed.iter().filter(|shard| !shard.parent.as_ref().is_some_and(is_among)).cloned().collect()
    }

    /// Returns the complaint that an open stream shard has no reader, although there was time to take it.
    fn unread(&mut self, stored: &[StoredShard], mine: &BTreeSet<StreamShard>) -> Option<String> {
        let Some(Sharing { stale, .. }) = &self.sharing else { return None };
        let now = self.of.patience.clock().reading().at;
        let moves = |(_, since): &(Lease, Duration)| now.saturating_sub(*since) < *stale;
        let is_read = |shard: &StreamShard| mine.contains(shard) || self.leases.get(&shard.id()).is_some_and(moves);
        let open = stored.iter().filter(|stored| stored.closed.is_none()).map(|stored| &stored.shard);
        let since = |shard: &StreamShard| self.unread.get(shard).copied().unwrap_or(now);
        self.unread = open.filter(|shard| !is_read(shard)).map(|shard| (shard.clone(), since(shard))).collect();
        let unread = self.unread.iter().find(|(_, since)| now.saturating_sub(**since) >= *stale * 3);
        unread.map(|(shard, _)| format!("no process reads stream shard {shard}"))
    }

    /// Reports whether the stream is followed: by metric, readiness and, where trouble changes, the log.
    fn report(&mut self, trouble: Option<String>) {
        metrics::followed(trouble.is_none());
        match &trouble {
            None => self.host.readiness().ready(READINESS),
            Some(why) => {
                if self.trouble != trouble {
                    tracing::error!(why, "the stream is not followed as it should be");
                }
                self.host.readiness().not_ready(READINESS, why);
            }
        }
        self.trouble = trouble;
    }

    /// Takes, renews and steals leases, and starts and stops readers. Returns the stream shards to read here.
    async fn share(
        &mut self,
        label: &StreamLabel,
        stored: &[StoredShard],
        stop: &Stop,
    ) -> anyhow::Result<BTreeSet<StreamShard>> {
        self.readers.retain(|_, reader| !reader.has_ended());
        let open: Vec<&StoredShard> = stored.iter().filter(|shard| shard.closed.is_none()).collect();
        let mine: BTreeSet<StreamShard> = match &self.sharing {
            None => open.iter().map(|shard| shard.shard.clone()).collect(),
            Some(_) => self.take_leases(label, &open, stop).await?,
        };
        for (shard, reader) in &self.readers {
            if !mine.contains(shard) {
                reader.request_stop();
            }
        }
        for StoredShard { shard, .. } in open {
            if mine.contains(shard) && !self.readers.contains_key(shard) {
                let age = metrics::Age::of(metrics::STREAM_AGE, &self.slots);
                let reader = Reader::new(self.of.clone(), age, self.counted.clone(), shard.clone());
                let name = format!("read {}", shard.id());
                self.readers.insert(shard.clone(), self.host.worker(Stage::Intake, &name, reader));
            }
        }
        Ok(mine)
    }

    /// Takes and renews leases. Returns the stream shards whose leases this process has afterwards.
    async fn take_leases(
        &mut self,
        label: &StreamLabel,
        open: &[&StoredShard],
        stop: &Stop,
    ) -> anyhow::Result<BTreeSet<StreamShard>> {
        let Some(Sharing { me, stale }) = &self.sharing else { return Ok(BTreeSet::new()) };
        let now = self.of.patience.clock().reading().at;
        let mut seen = BTreeMap::new();
        for shard in open {
            let Some(lease) = shard.lease.clone() else { continue };
            let since = self
                .leases
                .get(&shard.shard.id())
                .filter(|(known, _)| *known == lease)
                .map_or(now, |(_, since)| *since);
            seen.insert(shard.shard.id(), (lease, since));
        }
        self.leases = seen;
        let ids: Vec<StreamShardId> = open.iter().map(|shard| shard.shard.id()).collect();
        let offer = |shard| {
            let known = self.leases.get(shard);
            let stands =
                known.is_some_and(|(lease, since)| lease.holder != *me && now.saturating_sub(*since) >= *stale);
            Offer { shard, lease: known.map(|(lease, _)| lease), is_stale: stands }
        };
        let offers: Vec<_> = ids.iter().map(offer).collect();
        let planned = plan(me, &offers);
        let mut mine = BTreeSet::new();
        for (id, change) in planned {
            let (shard, seen) = (StreamShard::new(label, &id), self.leases.get(&id).map(|(lease, _)| lease.clone()));
            let lease = || self.of.store.lease(&shard, me, seen.as_ref());
            match self.of.patience.persist("take a lease", Until::Requested(stop), lease).await? {
                Some(_) => {
                    metrics::LEASES.counter(&[change.label()]).increment(1);
                    mine.insert(shard);
                }
                None => metrics::LEASES.counter(&["lost"]).increment(1),
            }
        }
        self.held.clone_from(&mine);
        Ok(mine)
    }
}

impl Task for Follow {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        match self.follow().await {
            Err(error) if error.is::<Stopped>() => {}
            ended => ended?,
        }
        self.give_back(&stop).await;
        Ok(())
    }
}
