//! Writes the log `changes` for all readers of this process, which hand in pages through [`Writing`]. The task
//! [`Writer`] runs the machine of `core/src/relay.rs`, appends its messages, and stores how far each stream shard is
//! fed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tally_core::changes::Body;
use tally_core::fault::Fault;
use tally_core::ids::StreamShard;
use tally_core::ports::log::Outgoing;
use tally_core::relay::{Announcement, Effect, Fed, Input, Relay, Rules};
use tally_service::{Clock, Host, Patience, Readiness, Stop, Stopped, Task, Until};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::{Ahead, Relaying};
use crate::metrics;

/// How many inputs may wait for the writer.
const WAITING: usize = 64;
/// How many bytes of entries may wait for Kafka before readers have to.
const MOST: usize = 32 << 20;

/// How often the writer measures how far the log is.
const MEASURED: Duration = Duration::from_secs(1);
/// The readiness condition that Kafka takes what is written.
const READINESS: &str = "changes";

/// What readers ask of the writer.
#[derive(Debug)]
pub(super) enum Ask {
    Hand(Input),
    Announce(Body, oneshot::Sender<()>),
    Close(StreamShard, Vec<StreamShard>, oneshot::Sender<Fed>),
    Leave(StreamShard, oneshot::Sender<()>),
}

/// The readers' side of the channel to the writer. Clones lead to the same writer.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    pub(super) asks: mpsc::Sender<Ask>,
    /// A number that grows when everything handed in was dropped, since Kafka took nothing for hours.
    pub(super) restarts: watch::Receiver<u64>,
}

impl Writing {
    /// Hands in something for the log. Returns once the writer has it, not once it is written.
    pub(crate) async fn hand(&self, input: Input) -> Result<(), Stopped> {
        self.ask(Ask::Hand(input)).await
    }

    /// Announces something in every partition, behind everything handed in before. Returns once all of them have it. If
    /// the writer drops everything meanwhile, announces it again, which is safe.
    pub(crate) async fn announce(&self, body: Body) -> Result<(), Stopped> {
        loop {
            let (done, answer) = oneshot::channel();
            self.ask(Ask::Announce(body.clone(), done)).await?;
            if answer.await.is_ok() {
                return Ok(());
            }
        }
    }

    /// Closes a stream shard, all of it handed in. Returns how far it is fed once every partition has the closing.
    pub(crate) async fn close(&self, shard: StreamShard, children: Vec<StreamShard>) -> Result<Fed, Stopped> {
        let (done, answer) = oneshot::channel();
        self.ask(Ask::Close(shard, children, done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    /// Gives up a stream shard. Returns once everything of it that was handed in is written and stored.
    pub(crate) async fn leave(&self, shard: StreamShard) -> Result<(), Stopped> {
        let (done, answer) = oneshot::channel();
        self.ask(Ask::Leave(shard, done)).await?;
        answer.await.map_err(|_| Stopped)
    }

    async fn ask(&self, ask: Ask) -> Result<(), Stopped> {
        self.asks.send(ask).await.map_err(|_| Stopped)
    }
}

/// The calls to Kafka and to the store.
#[derive(Clone)]
struct Calls {
    shared: Relaying,
    patience: Patience,
    readiness: Readiness,
    ahead: Arc<Ahead>,
}

/// The task that writes the log.
pub(crate) struct Writer {
    calls: Calls,
    clock: Clock,
    asks: mpsc::Receiver<Ask>,
    restarts: watch::Sender<u64>,
    machine: Relay,
    announced: u64,
    announcing: BTreeMap<Announcement, oneshot::Sender<()>>,
    closing: BTreeMap<StreamShard, oneshot::Sender<Fed>>,
    leaving: BTreeMap<StreamShard, oneshot::Sender<()>>,
    /// Partitions that did not take the last message.
    failing: BTreeSet<u32>,
    slots: metrics::Slots,
    ages: BTreeMap<StreamShard, metrics::Age>,
}

impl Writer {
    /// Returns the writer, and what leads to it.
    pub(super) fn new(shared: Relaying, host: &Host, patience: Patience, ahead: Arc<Ahead>) -> (Writing, Self) {
        let (deployment, rules) = (shared.deployment.clone(), Rules::default());
        let machine = Relay::new(deployment, shared.partitions, rules, host.clock().reading());
        let ((sender, asks), (restarts, restarted)) = (mpsc::channel(WAITING), watch::channel(0));
        let writer = Self {
            calls: Calls { shared, patience, readiness: host.readiness().clone(), ahead },
            clock: host.clock(),
            asks,
            restarts,
            machine,
            announced: 0,
            announcing: BTreeMap::new(),
            closing: BTreeMap::new(),
            leaving: BTreeMap::new(),
            failing: BTreeSet::new(),
            slots: metrics::Slots::default(),
            ages: BTreeMap::new(),
        };
        (Writing { asks: sender, restarts: restarted }, writer)
    }

    async fn write(mut self, stop: &Stop) -> anyhow::Result<()> {
        let (calls, mut held) = (self.calls.clone(), self.calls.ahead.held.subscribe());
        let (mut answers, mut effects) = (FuturesUnordered::new(), Vec::new());
        let (mut asking, mut measured) = (true, None::<Instant>);
        loop {
            if measured.is_none_or(|at| at.elapsed() >= MEASURED) {
                measured = Some(Instant::now());
                self.measure();
            }
            let wake = self.machine.wake_at().map(|at| Instant::now() + at.saturating_sub(self.clock.reading().at));
            let may_ask = asking && self.machine.waiting() < MOST && !*held.borrow_and_update();
            if !asking && self.machine.is_idle() {
                return Ok(());
            }
            let input = tokio::select! {
                biased;
                Some(answer) = answers.next() => self.answered(answer?),
                ask = self.asks.recv(), if may_ask => match ask {
                    Some(ask) => self.input(ask),
                    None => {
                        asking = false;
                        Input::Woke
                    }
                },
                Ok(()) = held.changed() => Input::Woke,
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => Input::Woke,
            };
            self.machine.step(self.clock.reading(), input, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Send { partition, value, tries } => {
                        answers.push(Either::Left(calls.append(partition, value, tries, stop)));
                    }
                    Effect::Store(shard, fed) => {
                        answers.push(Either::Right(calls.store(shard, fed, stop)));
                    }
                    Effect::Announced(name) => drop(self.announcing.remove(&name).map(|done| done.send(()))),
                    Effect::Closed(shard, fed) => drop(self.closing.remove(&shard).map(|done| done.send(fed))),
                    Effect::Left(shard) => drop(self.leaving.remove(&shard).map(|done| done.send(()))),
                    Effect::Restart => {
                        tracing::error!("Kafka has taken no changes for hours: everything that waits is read again");
                        // A late answer would be taken for the answer to what is sent from now on.
                        answers.clear();
                        self.announcing.clear();
                        self.closing.clear();
                        self.leaving.clear();
                        self.restarts.send_modify(|restarts| *restarts += 1);
                    }
                }
            }
        }
    }

    /// Takes note of whether Kafka takes messages, and returns the answer.
    fn answered(&mut self, answer: Input) -> Input {
        match answer {
            Input::Sent(partition, Err(())) => {
                metrics::CHANGES_MESSAGES.counter(&["failed"]).increment(1);
                self.failing.insert(partition);
            }
            Input::Sent(partition, Ok(())) => {
                metrics::CHANGES_MESSAGES.counter(&["sent"]).increment(1);
                if self.failing.remove(&partition) && self.failing.is_empty() {
                    self.calls.readiness.ready(READINESS);
                }
            }
            _ => {}
        }
        answer
    }

    /// Measures what waits for Kafka, and how far behind the log is with each stream shard.
    fn measure(&mut self) {
        metrics::waiting(self.machine.waiting());
        let now = self.clock.now();
        let mut ages = std::mem::take(&mut self.ages);
        for (shard, fed) in self.machine.feeds() {
            let age = ages.remove(shard).unwrap_or_else(|| metrics::Age::of(metrics::CHANGES_AGE, &self.slots));
            age.set(now.since(fed.at));
            self.ages.insert(shard.clone(), age);
        }
    }

    fn input(&mut self, ask: Ask) -> Input {
        match ask {
            Ask::Hand(input) => input,
            Ask::Announce(body, done) => {
                self.announced += 1;
                self.announcing.insert(Announcement(self.announced), done);
                Input::Announce(Announcement(self.announced), body)
            }
            Ask::Close(shard, children, done) => {
                self.closing.insert(shard.clone(), done);
                Input::End(shard, children)
            }
            Ask::Leave(shard, done) => {
                self.leaving.insert(shard.clone(), done);
                Input::Leave(shard)
            }
        }
    }
}

impl Calls {
    /// Appends a message. Safe to repeat: readers accept each entry once, and repeated announcements change nothing.
    async fn append(&self, partition: u32, value: Arc<[u8]>, tries: u32, stop: &Stop) -> anyhow::Result<Input> {
        if tries > 0 {
            // Whatever the fault was, Kafka may take the message later.
            let (mut tries, fault) = (tries - 1, Fault::Transient("the message was not acknowledged".to_owned()));
            self.patience.pause("write to the log of changes", fault, &mut tries, Until::LastCall(stop)).await?;
        }
        let (topic, key, headers) = (&*self.shared.topic, None, &[][..]);
        let message = Outgoing { topic, partition: Some(partition), key, value: Some(&value), headers };
        let sent = self.shared.producer.send(message).await;
        if let Ok(written) = sent {
            self.ahead.sent(written, value.len());
        }
        if let Err(fault) = &sent {
            tracing::warn!(topic, partition, %fault, "the log of changes was not written");
            let why = format!("partition {partition} of topic `{topic}` takes no message: {fault}");
            self.readiness.not_ready(READINESS, why);
        }
        Ok(Input::Sent(partition, sent.map(drop).map_err(drop)))
    }

    /// Stores how far a stream shard is fed. Safe to repeat, and by two processes: what is stored only moves forwards.
    async fn store(&self, shard: StreamShard, fed: Fed, stop: &Stop) -> anyhow::Result<Input> {
        let what = "store how far a stream shard is fed";
        let stored =
            self.patience.persist(what, Until::LastCall(stop), || self.shared.store.store_fed(&shard, fed)).await?;
        Ok(Input::Stored(shard, stored))
    }
}

impl Task for Writer {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        // At the last call this drops what Kafka has not acknowledged; the next reader reads it again.
        stop.finish(self.write(&stop)).await
    }
}
