//! The ledger of changes and the topic of boards as processes have them: messages whose acknowledgement does not come, that
//! come late, or not at all; and in a mutant's hands producers that do not wait for them, and readers that count by other rules.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use serde_json::json;
use tally_adapters::memory::log::Broker;
use tally_core::fault::Fault;
use tally_core::fence::{Log, Offset, Partition};
use tally_core::ids::{Ordinal, Sequence};
use tally_core::ledger::{Change, Message, Side};
use tally_core::ports::log::{Outgoing, Rebalance, Record, Records, Revocation, Written};
use tally_core::ports::{Intake, Outcome, OwnedPartition, Producer};
use tally_service::{Chance, Clock, Host, Stage, Stop};
use tokio::time::Instant;

use super::super::chance::Draws;
use super::super::coverage::Coverage;
use super::super::gate::Gate;
use super::super::mutant::Mutant;

/// How long a message may be under way after its sender has given it up, in milliseconds.
const LATE: u64 = 5_000;

/// The wait of a producer that does not wait for acknowledgements, between two tries.
const AGAIN: Duration = Duration::from_millis(400);

/// How long it may be until a process hears that a partition was taken from it, in milliseconds.
const UNHEARD: u64 = 800;

/// How much older than the longest window a change is that has left it for certain, in seconds.
const LEFT: u64 = 60;

/// What stands for the stream shard of a record of the log that a mutant does not want filtered.
const NONE: u64 = 1 << 40;

/// A producer of a process that has faults of its own. Records have the time at which they are written.
#[derive(Clone)]
pub(crate) struct LedgerProducer {
    pub(crate) broker: Broker,
    pub(crate) clock: Clock,
    pub(crate) gate: Gate,
    pub(crate) chance: Chance,
    /// How many of a hundred messages are not acknowledged although they are there; as many come late, and as many never.
    pub(crate) failing: u64,
    /// Where a message is under way whose sender may be gone.
    pub(crate) host: Host,
    pub(crate) coverage: Coverage,
}

/// A record that outlives its sender.
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

impl LedgerProducer {
    fn write(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.broker.write(record, self.clock.now())
    }

    async fn answer(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let fault = |what: &str| Err(Fault::Transient(what.to_owned()));
        match self.chance.below(100) / self.failing.max(1) {
            _ if self.failing == 0 => self.write(record),
            0 => {
                let _ = self.write(record);
                self.coverage.fired("acknowledgement_lost");
                fault("the acknowledgement was lost")
            }
            1 => {
                let (this, sent, late) = (self.clone(), Sent::of(&record), self.chance.millis(100, LATE));
                self.host.worker(Stage::Output, "late message", move |_: Stop| async move {
                    tokio::time::sleep(late).await;
                    if this.write(sent.record()).is_ok() {
                        this.coverage.fired("message_late");
                    }
                    Ok(())
                });
                fault("no answer came")
            }
            2 => fault("the broker was not reached"),
            _ => self.write(record),
        }
    }
}

#[async_trait]
impl Producer for LedgerProducer {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.gate.pass().await;
        tokio::time::sleep(self.chance.millis(1, 20)).await;
        let answer = self.answer(record).await;
        self.gate.pass().await;
        answer
    }
}

/// How many messages of a process are under way; clones count the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    /// Waits until there is none.
    pub(crate) async fn landed(&self) {
        while self.0.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A producer that says of every message that it is acknowledged, and then sends it.
pub(crate) struct EarlyProducer {
    pub(crate) inner: LedgerProducer,
    /// The process: what is under way ends with it.
    pub(crate) host: Host,
    /// Each waits for the one before, if that is the rule that is kept.
    pub(crate) line: Option<Arc<tokio::sync::Mutex<()>>>,
    pub(crate) under_way: UnderWay,
}

#[async_trait]
impl Producer for EarlyProducer {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let (inner, line, UnderWay(count)) = (self.inner.clone(), self.line.clone(), self.under_way.clone());
        let (sent, partition) = (Sent::of(&record), record.partition.unwrap_or_default());
        count.fetch_add(1, Ordering::Relaxed);
        self.host.worker(Stage::Output, "unanswered", move |_: Stop| async move {
            let _turn = match &line {
                Some(line) => Some(line.lock().await),
                None => None,
            };
            while inner.send(sent.record()).await.is_err() {
                tokio::time::sleep(AGAIN).await;
            }
            count.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        });
        Ok(Written { partition, offset: Offset(0) })
    }
}

/// A membership of those who list what is trending: its members hear late that a partition was taken from them.
pub(crate) struct LedgerIntake {
    pub(crate) inner: Box<dyn Intake>,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) chance: Chance,
    pub(crate) clock: Clock,
    /// The seconds of the longest window.
    pub(crate) longest: u64,
}

#[async_trait]
impl Intake for LedgerIntake {
    async fn next(&mut self) -> Outcome<Rebalance> {
        Ok(match self.inner.next().await? {
            Rebalance::Assigned(partitions) => {
                let read = |inner| Arc::new(self.log(inner)) as Arc<dyn OwnedPartition>;
                Rebalance::Assigned(partitions.into_iter().map(read).collect())
            }
            other => other,
        })
    }

    async fn leave(self: Box<Self>) {
        self.inner.leave().await;
    }
}

impl LedgerIntake {
    fn log(&self, inner: Arc<dyn OwnedPartition>) -> LedgerLog {
        let (mutant, clock, longest) = (self.mutant, self.clock, self.longest);
        let unheard = self.chance.millis(0, UNHEARD);
        LedgerLog { inner, mutant, clock, longest, unheard, revoked: OnceLock::new(), read: Mutex::default() }
    }
}

/// One partition of the ledger.
#[derive(Debug)]
struct LedgerLog {
    inner: Arc<dyn OwnedPartition>,
    mutant: Option<Mutant>,
    clock: Clock,
    longest: u64,
    unheard: Duration,
    /// When the process hears that the partition is taken from it.
    revoked: OnceLock<Instant>,
    read: Mutex<Read>,
}

/// What a mutant knows of what it has read.
#[derive(Debug, Default)]
struct Read {
    /// The last record of each stream shard that was counted.
    marks: BTreeMap<Ordinal, Sequence>,
    /// Behind the last record that was handed on.
    position: Offset,
    /// The end of the log, as it was asked for last.
    end: Option<Log>,
}

impl LedgerLog {
    fn known(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The message of `record` as a reader by another rule takes it.
    fn misread(&self, record: &Record<'_>, mutant: Mutant) -> Option<Vec<u8>> {
        let Message { shard, changes } = Message::read(record.value?).ok()?;
        let unfiltered = Ordinal(NONE + record.offset.0);
        Some(match mutant {
            Mutant::Unfiltered => written(unfiltered, &changes),
            Mutant::FilteredByMessage => {
                let last = changes.iter().map(|change| change.sequence).max()?;
                let mut known = self.known();
                let counts = known.marks.get(&shard).is_none_or(|mark| last > *mark);
                if counts {
                    known.marks.insert(shard, last);
                }
                written(unfiltered, if counts { &changes } else { &[] })
            }
            Mutant::ExpiredTwice => {
                let now = self.clock.now().0 / 1000;
                let left = now.saturating_sub(self.longest + LEFT);
                let taken_off = |change: Change| {
                    let Change { before, after, .. } = change.clone();
                    // It has left the window before the first moment, so this is all that it does.
                    if change.second > left {
                        change
                    } else {
                        Change { before: after, after: before, second: now - 30, ..change }
                    }
                };
                written(shard, &changes.into_iter().map(taken_off).collect::<Vec<_>>())
            }
            Mutant::RegionKept => {
                let kept = |mut change: Change| {
                    if change.before.weight != 0 && change.after.weight != 0 {
                        change.after.region.clone_from(&change.before.region);
                    }
                    change
                };
                written(shard, &changes.into_iter().map(kept).collect::<Vec<_>>())
            }
            Mutant::HalvesApart => written(shard, &changes.iter().flat_map(halves).collect::<Vec<_>>()),
            _ => return None,
        })
    }
}

/// The two sides of a change, as one entry each where there are two.
fn halves(change: &Change) -> Vec<Change> {
    if change.before.weight == 0 || change.after.weight == 0 {
        return vec![change.clone()];
    }
    let nothing = |side: &Side| Side { weight: 0, ..side.clone() };
    let off = Change { after: nothing(&change.before), ..change.clone() };
    let on = Change { before: nothing(&change.after), ..change.clone() };
    vec![off, on]
}

/// A message with these entries.
fn written(shard: Ordinal, changes: &[Change]) -> Vec<u8> {
    let entry = |change: &Change| {
        let Change { subject, counter, before, after, second, sequence } = change;
        let region = |side: &Side| side.region.as_ref().map(ToString::to_string);
        let (from, to) = (region(before), region(after));
        json!([subject.as_str(), counter.marked(), from, before.weight, to, after.weight, second, sequence.as_str()])
    };
    let entries: Vec<_> = changes.iter().map(entry).collect();
    json!({"v": 1, "g": shard.0, "changes": entries}).to_string().into_bytes()
}

#[async_trait]
impl OwnedPartition for LedgerLog {
    fn partition(&self) -> &Partition {
        self.inner.partition()
    }

    async fn partitions(&self) -> Outcome<u32> {
        self.inner.partitions().await
    }

    async fn log(&self) -> Outcome<Log> {
        if self.mutant != Some(Mutant::EarlyEnd) {
            return self.inner.log().await;
        }
        // What was asked for before as_of was learnt is known already.
        let Some(known) = self.known().end.clone() else {
            let log = self.inner.log().await?;
            self.known().end = Some(log.clone());
            return Ok(log);
        };
        if let Some(Ok(log)) = self.inner.log().now_or_never() {
            self.known().end = Some(log);
        }
        let end = known.end.max(self.known().position);
        Ok(Log { end, ..known })
    }

    async fn start_at(&self, offset: Offset) -> Outcome<()> {
        self.inner.start_at(offset).await?;
        let mut known = self.known();
        (known.marks, known.position) = (BTreeMap::new(), offset);
        Ok(())
    }

    async fn records(&self) -> Outcome<Arc<Records>> {
        let records = self.inner.records().await?;
        let Some(mutant) = self.mutant else { return Ok(records) };
        if let Some(last) = records.last_offset() {
            self.known().position = last.next();
        }
        let mut misread = Records::default();
        for record in records.iter() {
            let value = self.misread(&record, mutant);
            misread.push(record.offset, record.at, record.key, value.as_deref().or(record.value), []);
        }
        Ok(Arc::new(misread))
    }

    async fn revoked(&self) -> Revocation {
        let over = self.inner.revoked().await;
        let heard = *self.revoked.get_or_init(|| Instant::now() + self.unheard);
        tokio::time::sleep_until(heard).await;
        over
    }

    fn finished(&self, offset: Offset) {
        self.inner.finished(offset);
    }
}
