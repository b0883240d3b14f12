//! Reads the topic in which another Region publishes its counters, and stores that Region's entries: what it says of
//! each counter. Two readers of a partition do no harm: each stores what is true by itself, and an entry replaces only
//! an earlier version.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use tally_adapters::dynamodb::regions::Regions;
use tally_adapters::kafka::Membership;
use tally_core::changes::DeploymentId;
use tally_core::fault::Fault;
use tally_core::ports::log::{Record, Records, Revocation};
use tally_core::ports::{Outcome, OwnedPartition};
use tally_core::regions::{Remote, RemoteFlush, RemotePosition, ToldMessage};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_service::{Host, Patience, Readiness, Stage, Stop, Task, Until};
use tokio::sync::watch;
use tokio::time::Instant;

use super::RemotePorts;
use crate::log::partitions_of;
use crate::metrics;

/// How long entries are gathered before they are written. A counter is written no more often.
const GATHER: Duration = Duration::from_secs(5);

/// How many gathered entries may wait.
const MOST: usize = 10_000;

/// How many entries are written at once.
const AT_ONCE: usize = 16;

/// The wait between two looks at a topic that cannot be read.
const LOOK: Duration = Duration::from_secs(5);

/// The task that joins the group of a Region's topic. While the topic is missing or has another number of partitions,
/// it reports that and looks again; this Region's own counts go on.
pub(super) struct ReadRemote {
    pub(super) remote: RemotePorts,
    /// This deployment, whose own records the topic must not have.
    pub(super) own: DeploymentId,
    pub(super) partitions: u32,
    pub(super) store: Regions,
    /// When other tables were adopted last.
    pub(super) tables: watch::Receiver<Option<UnixMillis>>,
    pub(super) patience: Patience,
    pub(super) host: Host,
}

impl ReadRemote {
    /// Checks that the topic can be read; the fault says why not.
    async fn look(&self) -> Outcome<()> {
        let RemotePorts { topic, reader, .. } = &self.remote;
        let (_, found) = partitions_of(&**reader, topic).await?;
        if found != self.partitions {
            let why = format!(
                "topic `{topic}` has {found} partitions, and the log of changes {}: recreate the copy",
                self.partitions
            );
            return Err(Fault::Transient(why));
        }
        Ok(())
    }
}

impl Task for ReadRemote {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let name = format!("remote {}", self.remote.region);
        let readiness = self.host.readiness().scope(&name);
        while let Err(fault) = stop.unless_requested(self.look()).await? {
            tracing::warn!(region = %self.remote.region, error = %fault, "the topic of a Region cannot be read");
            readiness.not_ready("topic", fault.to_string());
            stop.unless_requested(self.patience.clock().sleep(LOOK)).await?;
        }
        readiness.forget("topic");
        let intake = (self.remote.join)()?;
        let (of, scope) = (Arc::new(self), readiness.clone());
        let begin = move |log: Arc<dyn OwnedPartition>| {
            let name = format!("{name} {}", log.partition().index);
            let partition = RemotePartition { of: Arc::clone(&of), log, readiness: scope.clone() };
            of.host.worker(Stage::Work, &name, partition);
        };
        Membership::new(intake, &readiness, begin).run(stop).await
    }
}

/// One partition of the topic, from its assignment until the group takes it back.
struct RemotePartition {
    of: Arc<ReadRemote>,
    log: Arc<dyn OwnedPartition>,
    readiness: Readiness,
}

impl RemotePartition {
    /// Finds the position to go on from, and starts to read there.
    async fn begin(&self, stop: &Stop) -> anyhow::Result<Remote> {
        let (until, index) = (Until::Requested(stop), self.log.partition().index);
        let adopted = *self.of.tables.borrow();
        let position = || self.of.store.position(&self.of.remote.region, index);
        let stored = self.of.patience.persist("read a Region's position", until, position).await?;
        let log = self.of.patience.persist("look at a Region's topic", until, || self.log.log()).await?;
        if log.start > Offset(0) {
            bail!("its beginning was deleted: set cleanup.policy=compact, and nothing else, and recreate the copy");
        }
        let stands = stored
            .as_ref()
            .is_some_and(|stored| stored.topic == log.topic && stored.next <= log.end && stored.adopted == adopted);
        let position = match stored {
            Some(stored) if stands => stored,
            // Another topic, one that lost its end, or one whose entries are in another table is read from its
            // beginning. Until then nothing is known of the Region.
            Some(stored) => {
                RemotePosition { deployment: stored.deployment, ..RemotePosition::start(log.topic.clone(), log.start) }
            }
            None => RemotePosition::start(log.topic.clone(), log.start),
        };
        let remote = Remote::new(self.of.remote.region.clone(), RemotePosition { adopted, ..position });
        self.of.patience.persist("read a Region's topic", until, || self.log.start_at(remote.next())).await?;
        Ok(remote)
    }

    /// Takes a record. Fails with the reason why it cannot be counted.
    fn take(&self, remote: &mut Remote, record: Record<'_>) -> Result<(), String> {
        let read = ToldMessage::read(record.key.unwrap_or_default(), record.value.unwrap_or_default());
        let message = read.map_err(|bad| bad.to_string())?;
        if message.partition != self.log.partition().index {
            return Err(format!(
                "it was published in partition {}: correct the mirror, which has to keep partitions, and recreate the copy",
                message.partition
            ));
        }
        if message.deployment == self.of.own {
            return Err(
                "it is of this deployment itself: correct the mirror or --remote, and recreate the copy".to_owned()
            );
        }
        let now = self.of.patience.clock().now();
        let Some(message) = message.believable(now) else {
            tracing::warn!(region = %self.of.remote.region, offset = %record.offset, "a standing of the future is passed over");
            return Ok(());
        };
        remote.take(record.offset, now, message).map_err(|another| another.to_string())
    }

    /// Takes records, up to the first that cannot be counted.
    fn take_all(&self, remote: &mut Remote, records: &Records) -> Result<(), String> {
        let from = remote.next();
        for record in records.iter().filter(|record| record.offset >= from) {
            self.take(remote, record).map_err(|why| format!("at offset {}: {why}", record.offset))?;
        }
        Ok(())
    }

    /// Writes the entries, then stores the position: a reader that begins there misses none. Safe to repeat.
    async fn flush(&self, remote: &mut Remote, stop: &Stop) -> anyhow::Result<()> {
        let RemoteFlush { entries, position } = remote.flush();
        let (until, now) = (Until::LastCall(stop), self.of.patience.clock().now());
        let put = |(entry, value)| async move {
            let put = || self.of.store.put_entry(&entry, &value, now);
            self.of.patience.persist("write a Region's entry", until, put).await
        };
        let written: Vec<bool> = iter(entries).map(put).buffer_unordered(AT_ONCE).try_collect().await?;
        metrics::remote_entries(&written);
        let index = self.log.partition().index;
        let store = || self.of.store.store_position(&self.of.remote.region, index, &position);
        self.of.patience.persist("store a Region's position", until, store).await?;
        self.log.finished(position.next);
        Ok(())
    }

    /// Reports why the partition cannot be counted, and waits until the group takes it back or the process stops.
    async fn stand_still(&self, why: &str, stop: &Stop) {
        let (region, partition) = (&self.of.remote.region, self.log.partition());
        tracing::error!(%region, %partition, why, "the topic of a Region cannot be counted");
        let index = partition.index.to_string();
        self.readiness.not_ready(&index, format!("{partition}: {why}"));
        tokio::select! {
            () = stop.requested() => {}
            _ = self.log.revoked() => {}
        }
        self.readiness.forget(&index);
    }

    /// The same, unless the partition is taken back first. Then it cannot be begun any more, and its group waits for this one to go.
    async fn begin_if_owned(
        &self,
        revoked: Pin<&mut (impl Future<Output = Revocation> + Send)>,
        stop: &Stop,
    ) -> anyhow::Result<Option<Remote>> {
        tokio::select! {
            biased;
            _ = revoked => Ok(None),
            begun = self.begin(stop) => begun.map(Some),
        }
    }

    async fn follow(&self, stop: &Stop) -> anyhow::Result<()> {
        let revoked = self.log.revoked();
        tokio::pin!(revoked);
        let Some(mut remote) = self.begin_if_owned(revoked.as_mut(), stop).await? else { return Ok(()) };
        let (mut due, mut tries, mut tables) = (Instant::now() + GATHER, 0, self.of.tables.clone());
        loop {
            let is_moved = tables.has_changed().unwrap_or(false);
            if is_moved {
                tables.mark_unchanged();
                let Some(begun) = self.begin_if_owned(revoked.as_mut(), stop).await? else { return Ok(()) };
                remote = begun;
            }
            let records = tokio::select! {
                biased;
                () = stop.requested() => break,
                revocation = &mut revoked => match revocation {
                    Revocation::Revoked => break,
                    Revocation::Lost => return Ok(()),
                },
                () = tokio::time::sleep_until(due) => None,
                records = self.log.records(), if remote.pending() < MOST => Some(records),
            };
            match records {
                Some(Ok(records)) => {
                    if let Err(why) = self.take_all(&mut remote, &records) {
                        self.flush(&mut remote, stop).await?;
                        bail!(why);
                    }
                    tries = 0;
                }
                Some(Err(fault)) => {
                    let until = Until::Requested(stop);
                    self.of.patience.pause("read a Region's topic", fault, &mut tries, until).await?;
                    let Some(begun) = self.begin_if_owned(revoked.as_mut(), stop).await? else { return Ok(()) };
                    remote = begun;
                }
                None => {}
            }
            if Instant::now() >= due || remote.pending() >= MOST {
                self.flush(&mut remote, stop).await?;
                due = Instant::now() + GATHER;
            }
        }
        self.flush(&mut remote, stop).await
    }
}

impl Task for RemotePartition {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        if let Err(error) = stop.finish(Box::pin(self.follow(&stop))).await {
            // A message cannot be counted, or the store refuses an item. This Region's own counts go on.
            self.stand_still(&format!("{error:#}"), &stop).await;
        }
        Ok(())
    }
}
