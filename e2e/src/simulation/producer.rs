//! Stands between one simulated process and the topics `changes` and `boards` that it writes to. Acknowledgements are
//! lost, messages arrive late or not at all, and for a mutant (a pipeline with one rule broken) messages are changed or
//! not waited for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tally_core::changes::Place;
use tally_core::fault::Fault;
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{Outcome, Producer};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;
use tally_service::{Chance, Stage, Stop};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use tokio::time::Instant;

use crate::simulation::Draws;
use crate::simulation::instance::Process;
use crate::simulation::mutant::Mutant;

/// How long a message may be under way after its sender has given it up, in milliseconds.
const LATE: u64 = 5_000;

/// The pause between attempts of a producer that does not wait for acknowledgements.
const AGAIN: Duration = Duration::from_millis(400);

/// How late a mutant announces a loss.
const BEHIND: Duration = Duration::from_secs(5);

/// How long a correction is under way at most: one that outlives a loss, and one that is overtaken, in milliseconds.
const OUTLIVING: Duration = Duration::from_secs(90);
const OVERTAKEN: u64 = 3_000;

/// The assumed time between reading the claims and sending the message.
const READ: Duration = Duration::from_secs(1);

/// A process's producer, with faults. Records get the time of their append.
#[derive(Clone)]
pub(crate) struct FaultyProducer {
    pub(crate) process: Process,
    pub(crate) chance: Chance,
    /// The percentage of messages that are written but not acknowledged. As many arrive late, and as many never.
    pub(crate) failing: u64,
    pub(crate) history: Arc<History>,
}

/// What a process has sent so far, for a mutant that changes repeated messages.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The stream shards of which a section was sent to a partition.
    begun: Mutex<BTreeSet<(u32, String)>>,
    /// The corrections that were sent.
    corrections: Mutex<BTreeSet<Vec<u8>>>,
    /// The losses that are announced.
    losses: Mutex<BTreeSet<(u32, u64)>>,
}

/// A record that outlives its sender.
#[derive(Clone)]
struct Sent {
    topic: String,
    partition: Option<u32>,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
}

impl Sent {
    fn of(record: &Outgoing<'_>) -> Self {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let (topic, partition) = (record.topic.to_owned(), record.partition);
        Self { topic, partition, key: owned(record.key), value: owned(record.value) }
    }

    fn record(&self) -> Outgoing<'_> {
        let Self { topic, partition, key, value } = self;
        Outgoing { topic, partition: *partition, key: key.as_deref(), value: value.as_deref(), headers: &[] }
    }
}

impl FaultyProducer {
    fn write(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.process.world.broker.write(record, self.process.world.clock.now())
    }

    fn answer(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let fault = |what: &str| Err(Fault::Transient(what.to_owned()));
        match self.chance.below(100) / self.failing.max(1) {
            _ if self.failing == 0 => self.write(record),
            0 => {
                let _ = self.write(record);
                self.process.world.coverage.fired("acknowledgement_lost");
                fault("the acknowledgement was lost")
            }
            1 => {
                let (this, sent, late) = (self.clone(), Sent::of(&record), self.chance.millis(100, LATE));
                self.process.world.host.worker(Stage::Output, "late message", move |_: Stop| async move {
                    tokio::time::sleep(late).await;
                    if this.write(sent.record()).is_ok() {
                        this.process.world.coverage.fired("message_late");
                    }
                    Ok(())
                });
                fault("no answer came")
            }
            2 => fault("the broker was not reached"),
            _ => self.write(record),
        }
    }

    /// The message that a mutant sends instead of `value`.
    async fn resaid(&self, mutant: Mutant, partition: u32, value: &[u8]) -> Option<Vec<u8>> {
        let mut said: Value = serde_json::from_slice(value).ok()?;
        match mutant {
            Mutant::NoMargin => no_margin(&mut said, self.process.world.clock.now()),
            Mutant::NoTakeOverLink => self.unlink_first(partition, &mut said),
            Mutant::LateAnnouncement => self.unannounce(partition, &mut said),
            Mutant::Unseen if said.get("correction").is_some() => self.count_again(value, &mut said),
            Mutant::LossUnnamed if said.get("correction").is_some() => {
                let loss = self.outlive_loss(partition).await?;
                said["correction"]["loss"] = json!(loss.map(Place::stored));
            }
            Mutant::SettledBySending if said.get("correction").is_some() => {
                self.process.asked.corrected(value);
                tokio::time::sleep(self.chance.millis(0, OVERTAKEN)).await;
                return None;
            }
            _ => return None,
        }
        Some(said.to_string().into_bytes())
    }

    /// Holds back a correction that was made while no loss was open until one was announced and repaired. Returns the loss
    /// announced last before.
    async fn outlive_loss(&self, partition: u32) -> Option<Option<Place>> {
        let known = async || {
            self.process.world.journal.follow().await.ok()?;
            Some(self.process.world.journal.end(partition)?.filter)
        };
        let (before, until) = (known().await?, Instant::now() + OUTLIVING);
        if !before.standing().open.is_empty() {
            return Some(before.loss());
        }
        let _held = self.process.world.corrections.one();
        loop {
            tokio::time::sleep(AGAIN).await;
            let filter = known().await?;
            let is_repaired = filter.loss() > before.loss() && filter.standing().open.is_empty();
            if is_repaired || Instant::now() >= until {
                return Some(filter.loss());
            }
        }
    }

    /// Removes the back-link from the first section of each stream shard that a process sends to a partition.
    fn unlink_first(&self, partition: u32, said: &mut Value) {
        let mut begun = self.history.begun.lock();
        for section in sections(said) {
            let shard = section["s"].as_str().unwrap_or_default().to_owned();
            if begun.insert((partition, shard)) {
                section.as_object_mut().map(|section| section.remove("back"));
            }
        }
    }

    /// Losses that are not announced yet are not repeated, either.
    fn unannounce(&self, partition: u32, said: &mut Value) {
        let announced = self.history.losses.lock();
        if let Some(losses) = said.get_mut("losses").and_then(Value::as_array_mut) {
            losses.retain(|loss| loss.as_u64().is_some_and(|loss| announced.contains(&(partition, loss))));
        }
    }

    /// Changes a correction that is sent again so that it has seen the first one.
    fn count_again(&self, value: &[u8], said: &mut Value) {
        let mut corrections = self.history.corrections.lock();
        if !corrections.insert(value.to_vec()) {
            said["correction"]["seen"] = json!(said["correction"]["seen"].as_u64().unwrap_or_default() + 1);
        }
    }

    /// Acknowledges the announcement of a loss, and sends it later.
    fn announce_late(&self, record: &Outgoing<'_>) -> Option<Written> {
        let said: Value = serde_json::from_slice(record.value?).ok()?;
        let (number, partition) = (said["lost"]["n"].as_u64()?, record.partition?);
        let (this, sent) = (self.clone(), Sent::of(record));
        self.process.world.host.worker(Stage::Output, "late announcement", move |_: Stop| async move {
            tokio::time::sleep(BEHIND).await;
            while this.write(sent.record()).is_err() {
                tokio::time::sleep(AGAIN).await;
            }
            this.history.losses.lock().insert((partition, number));
            Ok(())
        });
        Some(Written { partition, offset: Offset(0) })
    }
}

/// The sections of a message.
fn sections(said: &mut Value) -> impl Iterator<Item = &mut Value> {
    said.get_mut("sections").and_then(Value::as_array_mut).into_iter().flatten()
}

/// Claims everything up to the read that reached the tip, which was at most a second ago.
fn no_margin(said: &mut Value, now: UnixMillis) {
    for section in sections(said) {
        if let Some(fed) = section.get("fed").and_then(Value::as_u64) {
            section["fed"] = json!(fed.max(now.minus(READ).0));
        }
    }
}

#[async_trait]
impl Producer for FaultyProducer {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.process.log.pass().await;
        tokio::time::sleep(self.chance.millis(1, 20)).await;
        if self.process.mutant == Some(Mutant::LateAnnouncement)
            && let Some(written) = self.announce_late(&record)
        {
            return Ok(written);
        }
        let resaid = match (self.process.mutant, record.value, record.partition) {
            (Some(mutant), Some(value), Some(partition)) => self.resaid(mutant, partition, value).await,
            _ => None,
        };
        let answer = self.answer(Outgoing { value: resaid.as_deref().or(record.value), ..record });
        self.process.log.pass().await;
        answer
    }
}

/// Tells whether messages are under way: each holds a reader's lock. Clones share the lock.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnderWay(Arc<RwLock<()>>);

impl UnderWay {
    /// Counts a message as under way until the guard is dropped.
    fn one(&self) -> OwnedRwLockReadGuard<()> {
        let lock = Arc::clone(&self.0).try_read_owned();
        lock.expect("only `is_any` takes the lock of a writer, and gives it back at once")
    }

    /// Whether a message is under way.
    pub(crate) fn is_any(&self) -> bool {
        self.0.try_write().is_err()
    }

    /// Waits until no message is under way.
    pub(crate) async fn landed(&self) {
        while self.is_any() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A producer that acknowledges every message before it sends it.
pub(crate) struct EarlyProducer {
    pub(crate) inner: FaultyProducer,
    /// Makes each message wait for the one before, if that rule is kept.
    pub(crate) line: Option<Arc<tokio::sync::Mutex<()>>>,
}

#[async_trait]
impl Producer for EarlyProducer {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let (inner, line, one) = (self.inner.clone(), self.line.clone(), self.inner.process.under_way.one());
        let (sent, partition) = (Sent::of(&record), record.partition.unwrap_or_default());
        self.inner.process.host.worker(Stage::Output, "unanswered", move |_: Stop| async move {
            let _turn = match &line {
                Some(line) => Some(line.lock().await),
                None => None,
            };
            while inner.send(sent.record()).await.is_err() {
                tokio::time::sleep(AGAIN).await;
            }
            drop(one);
            Ok(())
        });
        Ok(Written { partition, offset: Offset(0) })
    }
}
