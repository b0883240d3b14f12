//! Runs the machine that writes one stream shard's changes to the ledger: hands it what the reader passes on and what Kafka
//! and the checkpoints answer, and carries out what it asks for. The reader never waits for Kafka: everything it passes on is
//! taken at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream::{FuturesUnordered, StreamExt};
use tally_core::fault::Fault;
use tally_core::ledger::{Again, Answer, Changes, Effect, Fed, Input, Outgoing, Request, RequestId, Rules};
use tally_core::ports::log::Outgoing as Message;
use tally_core::ports::{Checkpoints, Outcome, Producer};
use tally_service::{Patience, Stop, Stopped, Task, Until};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::metrics::{self, LedgerAge};
use crate::reader::Read;
use crate::shard::StreamShard;
use crate::slots::Slots;

/// What the recorders of one process share.
#[derive(Clone)]
pub(crate) struct Recording {
    pub(crate) log: Arc<dyn Producer>,
    pub(crate) topic: Arc<str>,
    pub(crate) partitions: u32,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) patience: Patience,
    pub(crate) rules: Rules,
    pub(crate) waiting: Waiting,
    pub(crate) slots: Slots,
}

/// Bytes that wait in all recorders of the process. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting(Arc<AtomicUsize>);

/// The part of one recorder.
struct Share {
    all: Waiting,
    own: usize,
}

impl Share {
    fn others(&self) -> usize {
        self.all.0.load(Ordering::Relaxed).saturating_sub(self.own)
    }

    fn set(&mut self, own: usize) {
        let all = &self.all.0;
        if own >= self.own {
            all.fetch_add(own - self.own, Ordering::Relaxed);
        } else {
            all.fetch_sub(self.own - own, Ordering::Relaxed);
        }
        if own != self.own {
            self.own = own;
            metrics::ledger_waiting(all.load(Ordering::Relaxed));
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The recorder of one stream shard.
pub(crate) struct Recorder {
    shared: Recording,
    shard: StreamShard,
    reads: mpsc::Receiver<Read>,
    machine: Changes,
    share: Share,
    age: LedgerAge,
}

impl Recorder {
    /// Begins where the stream shard is `fed`.
    pub(crate) fn new(shared: Recording, shard: StreamShard, fed: Fed, reads: mpsc::Receiver<Read>) -> Self {
        let now = shared.patience.clock().reading();
        let machine = Changes::new(shard.ordinal, fed, shared.partitions, shared.rules, now);
        let share = Share { all: shared.waiting.clone(), own: 0 };
        let age = LedgerAge::new(shared.slots.take());
        Self { shared, shard, reads, machine, share, age }
    }

    async fn follow(mut self, stop: &Stop) -> anyhow::Result<()> {
        let clock = self.shared.patience.clock();
        let (mut answers, mut effects) = (FuturesUnordered::new(), Vec::new());
        let (mut reading, mut stopped) = (true, false);
        loop {
            let wake = self.machine.wake_at().map(|at| Instant::now() + at.saturating_sub(clock.reading().at));
            let input = tokio::select! {
                biased;
                read = self.reads.recv(), if reading => {
                    reading = !matches!(read, None | Some(Read::End));
                    stopped |= read.is_none();
                    self.passed_on(read)
                }
                Some(answered) = answers.next() => answered?,
                () = stop.requested(), if !stopped && !reading => {
                    stopped = true;
                    Input::ReaderStopped
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => Input::Woke,
            };
            let now = clock.reading();
            self.machine.step(now, Input::Others(self.share.others()), &mut effects);
            self.machine.step(now, input, &mut effects);
            self.share.set(self.machine.waiting());
            for effect in effects.drain(..) {
                match effect {
                    Effect::Ask(id, request) => answers.push(self.shared.ask(&self.shard, id, request, stop)),
                    Effect::Sealed { records, messages, .. } => {
                        tracing::trace!(stream_shard = %self.shard.ordinal, records, messages, "a prefix for the ledger");
                    }
                    Effect::GaveUp(seconds) => {
                        let (stream_shard, first, last) = (self.shard.ordinal, seconds.first, seconds.last);
                        tracing::error!(%stream_shard, first, last, "Kafka takes no changes: these seconds are missing in the ledger");
                    }
                    Effect::Ended(_) => return Ok(()),
                }
            }
            self.age.set(now.wall.since(self.machine.fed_at()));
        }
    }

    /// What the reader passed on, as the machine takes it.
    fn passed_on(&self, read: Option<Read>) -> Input {
        match read {
            Some(Read::Records(records)) => Input::Records(records),
            Some(Read::UpTo(at)) => Input::UpTo(at),
            Some(Read::Drained) => unreachable!("appliers alone are told"),
            Some(Read::Break) => Input::Lost(self.shared.patience.clock().now()),
            Some(Read::End) => Input::EndOfShard,
            None => Input::ReaderStopped,
        }
    }
}

impl Recording {
    /// Carries out `request`, and names it in the answer.
    async fn ask(&self, shard: &StreamShard, id: RequestId, request: Request, stop: &Stop) -> anyhow::Result<Input> {
        let (StreamShard { label, id: name, .. }, until) = (shard, Until::LastCall(stop));
        let Self { checkpoints, patience, .. } = self;
        match request {
            Request::Send { message, again } => {
                if let Some(Again { fault, mut tries }) = again {
                    // Kafka may take the message later after any fault; the machine gives up in time.
                    let fault = Fault::Transient(fault.to_string());
                    patience.pause("write to the ledger of changes", fault, &mut tries, until).await?;
                }
                return Ok(Input::Answered(id, Answer::Sent(self.send(&message).await)));
            }
            Request::StoreFed { to, at } => {
                let fed = || checkpoints.fed(label, name, to, at);
                patience.persist("store how far the ledger is", until, fed).await?;
            }
            Request::StoreFedAt(at) => {
                let fed_at = || checkpoints.fed_at(label, name, at);
                patience.persist("store how far the ledger is", until, fed_at).await?;
            }
            Request::StoreEnd(at) => {
                let fed_end = || checkpoints.fed_end(label, name, at);
                patience.persist("store that the ledger has a stream shard", until, fed_end).await?;
            }
            Request::StoreLapse(lapse) => {
                let put = || checkpoints.put_lapse(lapse);
                patience.persist("store what the ledger lacks", until, put).await?;
                metrics::lapsed();
            }
        }
        Ok(Input::Answered(id, Answer::Done))
    }

    /// Safe to repeat: readers pass over what they have counted.
    async fn send(&self, message: &Outgoing) -> Outcome<()> {
        let key = message.shard.to_string();
        let (partition, key, value) = (Some(message.partition), Some(key.as_bytes()), Some(&*message.value));
        let sent = self.log.send(Message { topic: &self.topic, partition, key, value, headers: &[] }).await;
        metrics::recorded(if sent.is_ok() { "sent" } else { "failed" });
        sent.map(|_| ())
    }
}

impl Task for Recorder {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        match stop.until_last_call(self.follow(&stop)).await.unwrap_or_else(|stopped| Err(stopped.into())) {
            // What was not acknowledged is read again.
            Err(error) if error.is::<Stopped>() => Ok(()),
            ended => ended,
        }
    }
}
