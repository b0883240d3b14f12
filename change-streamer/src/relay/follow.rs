//! Finds the stream shards of the likes table, shares them out by leases, and has a reader for each that is this process's.
//! No lease is trusted: two processes that read one stream shard do the work twice, and nothing counts twice.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tally_adapters::dynamodb::changes::{Loss, Losses, StoredShard};
use tally_core::changes::{Body, LossNumber, Opened, Opening};
use tally_core::fault::Fault;
use tally_core::ids::{StreamLabel, StreamShard, StreamShardId};
use tally_core::lineage::{Listed, first_sight};
use tally_core::ports::{Lease, LeaseTaken, StreamInfo};
use tally_core::relay::{Fed, Input};
use tally_core::shards::{Offer, plan};
use tally_core::time::UnixMillis;
use tally_service::{Host, Patience, Stage, Stop, Stopped, Task, Until, Worker as Running};

use super::Relaying;
use super::reader::{Reader, lose};
use super::writer::Writing;
use crate::metrics;

/// The wait between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// How this process shares stream shards with others.
pub(crate) struct Sharing {
    /// This process.
    pub(crate) me: tally_core::ports::Worker,
    /// How long a lease may stand still before another process takes it.
    pub(crate) stale: Duration,
}

pub(crate) struct Follow {
    shared: Relaying,
    host: Host,
    patience: Patience,
    writing: Writing,
    sharing: Option<Sharing>,
    readers: BTreeMap<StreamShard, Running>,
    /// The leases as they were seen last, and since when each stands still.
    leases: BTreeMap<StreamShardId, (Lease, Duration)>,
    held: BTreeSet<StreamShard>,
    listed: Option<Listing>,
    /// Losses of the log after which all stream shards were announced again.
    announced: BTreeSet<LossNumber>,
}

/// The stream and its shards as the service has listed them.
struct Listing {
    info: StreamInfo,
    shards: Vec<Listed>,
    at: Duration,
}

impl Follow {
    pub(crate) fn new(
        shared: Relaying,
        host: Host,
        patience: Patience,
        writing: Writing,
        sharing: Option<Sharing>,
    ) -> Self {
        let (readers, leases, held) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let announced = BTreeSet::new();
        Self { shared, host, patience, writing, sharing, readers, leases, held, listed: None, announced }
    }

    async fn follow(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let (intake, clock) = (self.host.stop(), self.patience.clock());
        loop {
            self.look(&intake).await?;
            // Processes that look at the same moments would find each other's leases moved whenever they act.
            let wait = LOOK.mul_f64(1.0 - self.host.chance().fraction() / 4.0);
            tokio::select! {
                () = intake.requested() => break,
                () = clock.sleep(wait) => {}
            }
        }
        // Readers finish before the leases are given back, so that others need not wait for them to go stale.
        while self.readers.values().any(|reader| !reader.has_ended()) && !stop.is_last_call() {
            clock.sleep(Duration::from_millis(10)).await;
        }
        let Some(sharing) = &self.sharing else { return Ok(()) };
        for shard in std::mem::take(&mut self.held) {
            if let Err(fault) = self.shared.store.release(&shard, &sharing.me).await {
                tracing::warn!(%fault, %shard, "a lease was not given back: it is taken when it is stale");
            }
        }
        Ok(())
    }

    /// One look: what is listed, what is stored, what has to be announced, and who reads what.
    async fn look(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let losses =
            self.patience.persist("read the losses", Until::Requested(stop), || self.shared.store.losses()).await?;
        self.writing.hand(Input::Losses(losses.open().map(|(number, _)| number).collect())).await?;
        self.list(stop).await?;
        let Some(Listing { info, .. }) = &self.listed else { return Ok(()) };
        let label = info.label.clone();
        let mut stored = self.stored(&label, stop).await?;
        if self.announce(&stored, stop).await? {
            stored = self.stored(&label, stop).await?;
        }
        self.announce_again(&stored, &losses).await?;
        self.share(&label, &stored, stop).await
    }

    async fn stored(&self, label: &StreamLabel, stop: &Stop) -> anyhow::Result<Vec<StoredShard>> {
        let what = "read the stream shards";
        self.patience.persist(what, Until::Requested(stop), || self.shared.store.shards(label)).await
    }

    /// Lists the stream's shards if it is time to.
    async fn list(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let now = self.patience.clock().reading().at;
        if self.listed.as_ref().is_some_and(|listing| now.saturating_sub(listing.at) < self.shared.following.discover) {
            return Ok(());
        }
        let list = || async {
            let info = self.shared.stream.info().await.map_err(Fault::from)?;
            let shards = self.shared.stream.shards(&info.label).await.map_err(Fault::from)?;
            Ok((info, shards))
        };
        let (info, shards) = self.patience.persist("list the stream shards", Until::Requested(stop), list).await?;
        self.listed = Some(Listing { info, shards, at: now });
        Ok(())
    }

    /// Announces stream shards that no closing has named: those of a stream that is new, and those that were listed too late.
    async fn announce(&mut self, stored: &[StoredShard], stop: &Stop) -> anyhow::Result<bool> {
        let Some(Listing { info, shards, .. }) = &self.listed else { return Ok(false) };
        let is_new = stored.is_empty();
        let of = |id: &StreamShardId| StreamShard::new(&info.label, id);
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
        // Of those, the ones whose parents are not among them: the others are named when these are closed.
        let first = |shard: &&Listed| {
            shard.parent.as_ref().is_none_or(|parent| !unnamed.iter().any(|other| other.id == *parent))
        };
        let first: Vec<_> = unnamed.iter().filter(first).cloned().collect();
        if first.is_empty() {
            return Ok(false);
        }
        let (info, label) = (info.clone(), info.label.clone());
        let now = self.patience.clock().now();
        if is_new && let Some(loss) = first_sight(&label, info.created, info.table_created, now) {
            lose(&self.shared, &self.patience, &self.writing, loss.kind(), &loss.to_string(), stop).await?;
        } else if !is_new {
            tracing::warn!(
                shards = first.len(),
                "stream shards were listed only after the one they continue was closed"
            );
        }
        let fed = if is_new { info.created } else { UnixMillis(0) };
        let opening = |shard: &Listed| Opening { shard: StreamShard::new(&label, &shard.id), at: None, fed };
        let opened = Opened { shards: first.iter().map(opening).collect() };
        self.writing.announce(Body::Opened(opened)).await?;
        for shard in &first {
            let (shard, parent) = (StreamShard::new(&label, &shard.id), shard.parent.as_ref());
            let parent = parent.map(|parent| StreamShard::new(&label, parent));
            let begin = || self.shared.store.begin(&shard, parent.as_ref(), Fed { to: None, at: fed });
            self.patience.persist("begin a stream shard", Until::Requested(stop), begin).await?;
        }
        Ok(true)
    }

    /// Where a piece of the log is lost, its readers do not know any more which stream shards there are: all are announced
    /// again, with what every partition has of them. Any process does that, also twice.
    async fn announce_again(&mut self, stored: &[StoredShard], losses: &Losses) -> anyhow::Result<()> {
        let of_log = |loss: &Loss| loss.kind == super::HOLE || loss.kind == super::JUMP;
        let lost: Vec<_> = losses.open().filter(|(_, loss)| of_log(loss)).map(|(number, _)| number).collect();
        if lost.iter().all(|number| self.announced.contains(number)) {
            return Ok(());
        }
        let open = stored.iter().filter(|shard| shard.closed.is_none());
        let opening = |shard: &StoredShard| Opening { shard: shard.shard.clone(), at: shard.fed.to, fed: shard.fed.at };
        let shards: Vec<_> = open.map(opening).collect();
        if !shards.is_empty() {
            self.writing.announce(Body::Opened(Opened { shards })).await?;
            self.announced.extend(lost);
        }
        Ok(())
    }

    /// Takes, renews and steals leases, and starts and stops readers.
    async fn share(&mut self, label: &StreamLabel, stored: &[StoredShard], stop: &Stop) -> anyhow::Result<()> {
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
                let id = shard.id();
                let reader = Reader::new(self.shared.clone(), self.patience.clone(), self.writing.clone(), label, &id);
                let running = self.host.worker(Stage::Intake, &format!("read {id}"), reader);
                self.readers.insert(shard.clone(), running);
            }
        }
        Ok(())
    }

    /// The stream shards whose leases are this process's afterwards.
    async fn take_leases(
        &mut self,
        label: &StreamLabel,
        open: &[&StoredShard],
        stop: &Stop,
    ) -> anyhow::Result<BTreeSet<StreamShard>> {
        let Some(Sharing { me, stale }) = &self.sharing else { return Ok(BTreeSet::new()) };
        let now = self.patience.clock().reading().at;
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
            let lease = || self.shared.store.lease(&shard, me, seen.as_ref());
            match self.patience.persist("take a lease", Until::Requested(stop), lease).await? {
                LeaseTaken::Taken(_) => {
                    metrics::lease(change.label(), 1);
                    mine.insert(shard);
                }
                LeaseTaken::Lost => metrics::lease("lost", 1),
            }
        }
        self.held.clone_from(&mine);
        Ok(mine)
    }
}

impl Task for Follow {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        match self.follow(&stop).await {
            Err(error) if error.is::<Stopped>() => Ok(()),
            ended => ended,
        }
    }
}
