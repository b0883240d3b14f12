//! Runs the machine that applies one stream shard: hands it what the reader passes on and what the stores answer, and
//! carries out what it asks for.

use std::sync::Arc;

use anyhow::anyhow;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tally_core::apply::{Apply, Effect, End, Input, Rules, WindowEnd};
use tally_core::lineage::{Checkpoint, Picture};
use tally_core::milestone::Ladder;
use tally_core::tally::{Record, RecordKind};
use tally_service::{Stop, Stopped, Task};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::metrics::{self, Ages};
use crate::reader::Read;
use crate::reports::Reports;
use crate::shard::StreamShard;
use crate::slots::Slots;
use crate::stores::Stores;

/// The most records that the appliers of one process gather at once, some 200 bytes each: each has an equal part of it.
const GATHERED: usize = 1_000_000;

/// What the appliers of one process share.
#[derive(Clone)]
pub(crate) struct Applying {
    pub(crate) stores: Arc<Stores>,
    pub(crate) pictures: watch::Receiver<Arc<Picture>>,
    pub(crate) ladder: watch::Receiver<Ladder>,
    pub(crate) reports: Reports,
    pub(crate) rules: Rules,
    pub(crate) slots: Slots,
}

/// The applier of one stream shard.
pub(crate) struct Applier {
    shared: Applying,
    shard: StreamShard,
    reads: mpsc::Receiver<Read>,
    machine: Apply,
    /// The picture that the machine was last shown.
    picture: Arc<Picture>,
    /// The ladder that it was last shown.
    ladder: Ladder,
    /// How many stream shards shared what is gathered when it was last told.
    sharing: usize,
    ages: Ages,
}

impl Applier {
    /// Starts behind `checkpoint`.
    pub(crate) fn new(
        shared: Applying,
        shard: StreamShard,
        checkpoint: &Checkpoint,
        reads: mpsc::Receiver<Read>,
    ) -> Self {
        let ages = Ages::new(shared.slots.take());
        tracing::info!(shard = %shard.id, ordinal = %shard.ordinal, slot = ages.slot(), "reading a stream shard");
        let picture = Arc::clone(&shared.pictures.borrow());
        let ladder = *shared.ladder.borrow();
        let machine = Apply::new(checkpoint, shared.rules, Arc::clone(&picture), shared.stores.clock().reading());
        Self { shared, shard, reads, machine: machine.knowing(ladder), picture, ladder, sharing: 0, ages }
    }

    async fn follow(mut self, stop: &Stop) -> anyhow::Result<()> {
        let Applying { stores, pictures, ladder, reports, .. } = &self.shared;
        let (clock, mut effects) = (stores.clock(), Vec::new());
        let mut answers = FuturesUnordered::new();
        loop {
            let wake = self.machine.wake_at().map(|at| Instant::now() + at.saturating_sub(clock.reading().at));
            let input = tokio::select! {
                biased;
                Some(answered) = answers.next() => answered?,
                read = self.reads.recv(), if self.machine.wants_more() => self.shard.passed_on(read),
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => Input::Woke,
            };
            let (now, latest) = (clock.reading(), Arc::clone(&pictures.borrow()));
            if !Arc::ptr_eq(&latest, &self.picture) {
                self.picture = Arc::clone(&latest);
                self.machine.step(now, Input::Picture(latest), &mut effects);
            }
            let known = *ladder.borrow();
            if known != self.ladder {
                self.ladder = known;
                self.machine.step(now, Input::Ladder(known), &mut effects);
            }
            let sharing = self.shared.slots.len();
            if sharing != self.sharing {
                self.sharing = sharing;
                self.machine.step(now, Input::Share(GATHERED / sharing), &mut effects);
            }
            self.machine.step(now, input, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Ask(id, request) => answers.push(stores.ask(&self.shard, id, request, stop)),
                    Effect::Publish(counter, served) => stores.publish(&counter, served),
                    Effect::Ended(End::ShardApplied(at)) => return Ok(reports.applied(&self.shard.id, at).await?),
                    Effect::Ended(end) => return self.shard.ended(end),
                    event => self.shard.tell(event),
                }
            }
            self.ages.set(now.wall.since(self.machine.read_up_to()), now.wall.since(self.machine.stored()));
        }
    }
}

impl Task for Applier {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let ordinal = self.shard.ordinal;
        // A store that is silent is not waited for at the last call: what is under way may still happen, and is repeated.
        match stop.until_last_call(self.follow(&stop)).await.unwrap_or_else(|stopped| Err(stopped.into())) {
            Err(error) if error.is::<Stopped>() => {
                tracing::warn!(stream_shard = %ordinal, "what was not written is dropped: it will be read again");
                Ok(())
            }
            ended => ended,
        }
    }
}

impl StreamShard {
    /// What the reader passed on, as the machine takes it.
    fn passed_on(&self, read: Option<Read>) -> Input {
        match read {
            Some(Read::Records(records)) => {
                metrics::records_read(&records);
                records.iter().for_each(|record| self.warn_of_foreign(record));
                Input::Records(records)
            }
            Some(Read::Drained) => Input::Drained,
            Some(Read::UpTo(at)) => Input::UpTo(at),
            Some(Read::Break) => Input::Break,
            Some(Read::End) => Input::EndOfShard,
            None => Input::ReaderStopped,
        }
    }

    fn warn_of_foreign(&self, record: &Record) {
        let (stream_shard, sequence) = (self.ordinal, &record.sequence);
        match &record.kind {
            RecordKind::Foreign(reason) => {
                metrics::quarantined(*reason);
                tracing::warn!(%stream_shard, %sequence, %reason, "a change record is none of our rows");
            }
            RecordKind::Unreadable { key, .. } => {
                metrics::unreadable();
                tracing::warn!(%stream_shard, %sequence, row_key = %key, "a row's weight is not readable: its count is in doubt");
            }
            _ => {}
        }
    }

    /// Logs and counts what the machine says of its work.
    fn tell(&self, event: Effect) {
        match event {
            Effect::Refused(by) => metrics::refused(by),
            Effect::PutAside(counter, reason) => {
                metrics::update_quarantined();
                tracing::error!(%counter, stream_shard = %self.ordinal, reason, "the store refuses a counter for good");
            }
            Effect::Reached(counter, milestone) => {
                metrics::reached(&milestone);
                let (n, state) = (milestone.n, milestone.by.state());
                tracing::info!(%counter, n, state, version = milestone.version, "a milestone is recorded");
            }
            Effect::WindowClosed(end) => {
                if let WindowEnd::Failed(key, fault) = &end {
                    tracing::warn!(%key, error = %fault, "a window's report was not written; its run begins anew");
                }
                metrics::window(&end);
            }
            Effect::Flushed(flushed) => metrics::flushed(&flushed),
            Effect::Ask(..) | Effect::Publish(..) | Effect::Ended(_) => {}
        }
    }

    fn ended(&self, end: End) -> anyhow::Result<()> {
        match end {
            End::Failed { what, fault } => return Err(anyhow!(fault).context(format!("cannot {what}"))),
            End::Finished => {
                tracing::info!(stream_shard = %self.ordinal, "the stream shard was finished by another worker");
            }
            End::Stopped | End::ShardApplied(_) => {}
        }
        Ok(())
    }
}
