//! Decides, beat by beat, which stream shards this process reads, and starts and stops their readers accordingly.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ids::{StreamLabel, StreamShardId};
use tally_core::lineage::Checkpoint;
use tally_core::ports::{ChangeStream, Checkpoints, Lease, LeaseTaken, Worker as Name};
use tally_service::{Host, Patience, Stage, Stop, Task, Worker};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::applier::{Applier, Applying};
use crate::closing::Born;
use crate::gaps::Gaps;
use crate::leases::{Beats, Offer, plan};
use crate::metrics;
use crate::reader::{PollRules, Reader, Source};
use crate::registry::{Registry, Sight};
use crate::shard::StreamShard;
use crate::watchdog::{Census, Watchdog};

/// Pages that may wait between a reader and its applier.
const PAGES: usize = 4;

/// The condition that every stream shard is somebody's.
const READINESS: &str = "stream_shards";

/// How long leases may take to be given back after the last call.
const FAREWELL: Duration = Duration::from_secs(1);

/// The stream shards this process holds leases of, shared with whoever hands them over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held(Arc<Mutex<Holding>>);

#[derive(Debug, Default)]
struct Holding {
    label: Option<StreamLabel>,
    shards: Vec<StreamShardId>,
}

impl Held {
    fn set(&self, label: &StreamLabel, shards: Vec<StreamShardId>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Holding { label: Some(label.clone()), shards };
    }

    fn take(&self) -> Option<(StreamLabel, Vec<StreamShardId>)> {
        let Holding { label, shards } = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Some((label?, shards))
    }
}

/// How work is shared.
pub(crate) struct Sharing {
    pub(crate) me: Name,
    /// How long a lease may stand still before it is taken over; it is renewed three times as often.
    pub(crate) stale: Duration,
    pub(crate) held: Held,
}

/// What a reader is made of.
pub(crate) struct Tools {
    pub(crate) stream: Arc<dyn ChangeStream>,
    pub(crate) gaps: Gaps,
    pub(crate) poll: PollRules,
    pub(crate) applying: Applying,
}

/// The task that follows the stream.
pub(crate) struct Follow {
    pub(crate) host: Host,
    pub(crate) registry: Registry,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) tools: Tools,
    /// `None`: every worker reads everything.
    pub(crate) sharing: Option<Sharing>,
    pub(crate) beat: Duration,
    pub(crate) born: mpsc::Receiver<Born>,
    pub(crate) watchdog: Watchdog,
    pub(crate) beats: Beats,
    pub(crate) running: BTreeMap<StreamShardId, Running>,
    /// Shards that were to be read and answered that they are gone.
    pub(crate) gone: BTreeSet<StreamShardId>,
    pub(crate) origin: Instant,
}

/// A stream shard being read here.
pub(crate) struct Running {
    label: StreamLabel,
    reader: Worker,
    applier: Worker,
    /// The reader found no such shard.
    gone: Arc<AtomicBool>,
}

impl Running {
    fn has_ended(&self) -> bool {
        self.reader.has_ended() && self.applier.has_ended()
    }
}

impl Follow {
    async fn follow(&mut self, stop: &Stop) -> Result<(), anyhow::Error> {
        loop {
            match self.beat(stop).await {
                Ok(()) => {}
                Err(error) => self.failed(error)?,
            }
            // Workers that look at the same moments would find each other's leases moved whenever they act.
            let beat = self.beat.mul_f64(1.0 - self.host.chance().fraction() / 4.0);
            // A lease whose holder is gone is taken when its time has come, and not at the next beat.
            let wait = tokio::time::timeout(self.until_stale().map_or(beat, |left| beat.min(left)), self.born.recv());
            if let Ok(Some(born)) = stop.unless_requested(wait).await? {
                self.registry.born(born);
            }
        }
    }

    fn until_stale(&self) -> Option<Duration> {
        self.beats.until_stale(self.origin.elapsed(), self.sharing.as_ref()?.stale)
    }

    /// A beat that failed half-way is made up for by the next, unless waiting does not help.
    fn failed(&self, error: anyhow::Error) -> anyhow::Result<()> {
        match error.downcast_ref::<Fault>() {
            Some(fault) if fault.is_retryable() => {
                metrics::faulted(fault);
                tracing::warn!(error = %fault, "the stream's shards could not be looked at");
                self.host.readiness().not_ready(READINESS, format!("cannot look: {fault}"));
                Ok(())
            }
            _ => Err(error.context("cannot follow the stream")),
        }
    }

    /// Looks, shares, starts and stops.
    async fn beat(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let sight = self.registry.look(stop).await?;
        self.bury();
        let open: Vec<&Checkpoint> = self.open(&sight);
        let wanted = match &self.sharing {
            None => open.iter().map(|shard| shard.id.clone()).collect(),
            Some(_) => self.share(&sight, &open).await?,
        };
        for (id, running) in &self.running {
            if running.label != sight.info.label || !wanted.contains(id) {
                running.reader.request_stop();
            }
        }
        let starting =
            open.into_iter().filter(|shard| wanted.contains(&shard.id) && !self.running.contains_key(&shard.id));
        let started: Vec<_> = starting.map(|shard| (shard.id.clone(), self.start(&sight, shard))).collect();
        self.running.extend(started);
        self.report(&sight);
        Ok(())
    }

    /// Takes leave of readers that have ended, and notes which of them found nothing to read.
    fn bury(&mut self) {
        for (id, running) in &self.running {
            if running.has_ended() && running.gone.load(Ordering::Relaxed) {
                self.gone.insert(id.clone());
                self.registry.doubt();
            } else {
                self.gone.remove(id);
            }
        }
        self.running.retain(|_, running| !running.has_ended());
    }

    /// Shards that may be read, or are being read although a listing leaves them out.
    fn open<'a>(&self, sight: &'a Sight) -> Vec<&'a Checkpoint> {
        let mut open: BTreeMap<_, _> = sight.lineage.readable().map(|shard| (&shard.id, shard)).collect();
        let read = sight.lineage.checkpoints().filter(|shard| !shard.closed && self.running.contains_key(&shard.id));
        open.extend(read.map(|shard| (&shard.id, shard)));
        open.into_values().collect()
    }

    /// Renews, takes and steals leases; the shards that are ours afterwards.
    async fn share(&mut self, sight: &Sight, open: &[&Checkpoint]) -> anyhow::Result<Vec<StreamShardId>> {
        let Some(Sharing { me, stale, held }) = &self.sharing else { return Ok(Vec::new()) };
        let leases: BTreeMap<&StreamShardId, &Lease> =
            sight.states.iter().filter_map(|state| Some((&state.checkpoint.id, state.lease.as_ref()?))).collect();
        let now = self.origin.elapsed();
        self.beats.observe(leases.iter().map(|(id, lease)| (*id, *lease)), now);
        let mut offers = Vec::with_capacity(open.len());
        for Checkpoint { id, .. } in open.iter().copied() {
            offers.push(Offer { id, lease: leases.get(id).copied(), is_stale: self.beats.is_stale(id, now, *stale) });
        }
        let plan = plan(me, &offers);
        let (mut ours, mut perhaps) = (Vec::new(), Vec::new());
        let steps = [("renewed", plan.renew), ("taken", plan.take), ("stolen", plan.steal)];
        for (change, id) in steps.into_iter().flat_map(|(change, ids)| ids.into_iter().map(move |id| (change, id))) {
            let seen = leases.get(&id).copied();
            match self.checkpoints.lease(&sight.info.label, &id, me, seen).await {
                Ok(LeaseTaken::Taken(_)) => {
                    if change != "renewed" {
                        metrics::lease(change, 1);
                        tracing::info!(shard = %id, change, "lease");
                    }
                    ours.push(id);
                }
                Ok(LeaseTaken::Lost) => metrics::lease("lost", 1),
                // Whether it is ours the next beat sees; until then nothing about it changes here.
                Err(fault) if fault.is_retryable() => {
                    metrics::faulted(&fault);
                    if self.running.contains_key(&id) {
                        ours.push(id);
                    } else {
                        perhaps.push(id);
                    }
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        held.set(&sight.info.label, ours.iter().chain(&perhaps).cloned().collect());
        Ok(ours)
    }

    /// Starts to read a shard.
    fn start(&self, sight: &Sight, checkpoint: &Checkpoint) -> Running {
        let shard =
            StreamShard { label: sight.info.label.clone(), id: checkpoint.id.clone(), ordinal: checkpoint.ordinal };
        let Tools { stream, gaps, poll, applying } = &self.tools;
        let (sender, reads) = mpsc::channel(PAGES);
        let gone = Arc::new(AtomicBool::new(false));
        let from = Source { stream: Arc::clone(stream), shard: shard.clone(), gone: Arc::clone(&gone) };
        let reader = Reader::new(from, gaps.clone(), checkpoint, *poll, sender);
        let applier = Applier::new(applying.clone(), shard, checkpoint, reads);
        Running {
            label: sight.info.label.clone(),
            reader: self.host.worker(Stage::Intake, &format!("read {}", checkpoint.ordinal), reader),
            applier: self.host.worker(Stage::Work, &format!("apply {}", checkpoint.ordinal), applier),
            gone,
        }
    }

    /// Says what becomes of every known shard.
    fn report(&mut self, sight: &Sight) {
        let leased = |id: &StreamShardId| {
            let Some(Sharing { me, stale, .. }) = &self.sharing else { return false };
            let state = sight.states.iter().find(|state| state.checkpoint.id == *id);
            let others = state.and_then(|state| state.lease.as_ref()).is_some_and(|lease| lease.holder != *me);
            others && !self.beats.is_stale(id, self.origin.elapsed(), *stale)
        };
        let here = |id: &StreamShardId| self.running.contains_key(id) && !self.gone.contains(id);
        let census = Census::of(&sight.lineage, here, leased);
        metrics::census(&census);
        let forgotten = self.watchdog.forgotten(&census, self.origin.elapsed());
        let trouble = if let Some(fault) = &sight.refused {
            Some(fault.to_string())
        } else if !census.has_open() {
            Some("the stream has no open shard: nothing that is written now is counted".to_owned())
        } else if !forgotten.is_empty() {
            let names: Vec<_> = forgotten.iter().map(StreamShardId::as_str).collect();
            Some(format!("read by nobody: {}", names.join(", ")))
        } else {
            None
        };
        metrics::followed(trouble.is_none());
        let readiness = self.host.readiness();
        match trouble {
            None => readiness.ready(READINESS),
            Some(trouble) => {
                tracing::error!(trouble, "the stream is not followed as it should be");
                readiness.not_ready(READINESS, trouble);
            }
        }
    }
}

impl Task for Follow {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        stop.finish(self.follow(&stop)).await
    }
}

/// Gives the leases back once everything read was written, so that others need not wait for them to go stale.
pub(crate) struct Handover {
    pub(crate) me: Name,
    pub(crate) held: Held,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) patience: Patience,
}

impl Task for Handover {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        stop.requested().await;
        let Some((label, shards)) = self.held.take() else { return Ok(()) };
        // This comes last, and so perhaps after the last call: there is a moment for it all the same.
        let farewell = async {
            stop.last_call().await;
            self.patience.clock().sleep(FAREWELL).await;
        };
        tokio::select! {
            biased;
            given_back = self.give_back(&label, &shards) => given_back,
            () = farewell => {
                tracing::warn!("not all leases could be given back: they are taken when they are stale");
                Ok(())
            }
        }
    }
}

impl Handover {
    async fn give_back(&self, label: &StreamLabel, shards: &[StreamShardId]) -> anyhow::Result<()> {
        for id in shards {
            let release = || self.checkpoints.release(label, id, &self.me);
            let released = self.patience.answer("give a lease back", release).await;
            released.map_err(|fault| anyhow::anyhow!(fault).context("cannot give a lease back"))?;
            metrics::lease("handed_over", 1);
        }
        tracing::info!(leases = shards.len(), "leases handed over");
        Ok(())
    }
}
