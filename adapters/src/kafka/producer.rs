//! Writes records to Kafka as an idempotent producer, one by one or by transactions. Every replica that must have a
//! record acknowledges it, and a key chooses the same partition as in Java's client.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use parking_lot::{Mutex, RwLock};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{self, Outgoing, Written};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;

use super::args::Settings;
use super::context::{Brokers, Context};
use super::convert::{blocking, fault_of};

/// How long a record may be under way before its outcome counts as unknown.
const DELIVERY: Duration = Duration::from_secs(30);

/// The largest record that is sent: a broker reads requests of 100 MiB (`socket.request.max.bytes`).
const MOST_BYTES: &str = "100663296";

/// A producer; clones share its connections.
#[derive(Clone)]
pub struct Producer(Arc<Shared>);

struct Shared {
    settings: Settings,
    batching: Batching,
    brokers: Brokers,
    /// The client in use. One that has failed for good refuses everything, and is replaced.
    client: RwLock<FutureProducer<Context>>,
}

impl Producer {
    /// A producer that connects when it is first used.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub fn new(settings: &Settings) -> Outcome<Self> {
        Self::with(settings, PROMPT)
    }

    /// A producer for a caller that gathers records, and sends more only after their acknowledgement: a record does not
    /// wait for others to join its batch.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub fn at_once(settings: &Settings) -> Outcome<Self> {
        Self::with(settings, AT_ONCE)
    }

    /// A producer for a steady load on the [embedded](super::Embedded) cluster, which at every fetch searches all its
    /// batches from the oldest on: few large ones keep it idle.
    ///
    /// # Errors
    /// Settings that librdkafka does not take.
    pub fn gathering(settings: &Settings) -> Outcome<Self> {
        Self::with(settings, GATHERING)
    }

    fn with(settings: &Settings, batching: Batching) -> Outcome<Self> {
        let client = RwLock::new(connect(settings, batching)?);
        Ok(Self(Arc::new(Shared { settings: settings.clone(), batching, brokers: Brokers::of(settings), client })))
    }

    /// Returns how long a record waits for others to join its batch.
    pub fn linger(&self) -> Duration {
        self.0.batching.linger
    }

    fn client(&self) -> FutureProducer<Context> {
        self.0.client.read().clone()
    }

    /// Replaces the client `failed` by a new one, unless another caller has.
    fn replace(&self, failed: &FutureProducer<Context>) -> Outcome<()> {
        let mut client = self.0.client.write();
        if client.client().native_ptr() == failed.client().native_ptr() {
            *client = connect(&self.0.settings, self.0.batching)?;
        }
        Ok(())
    }
}

/// How records become batches.
#[derive(Clone, Copy)]
struct Batching {
    linger: Duration,
    compression: &'static str,
}

const PROMPT: Batching = Batching { linger: Duration::from_millis(5), compression: "zstd" };
const AT_ONCE: Batching = Batching { linger: Duration::ZERO, ..PROMPT };
const GATHERING: Batching = Batching { linger: Duration::from_millis(100), compression: "none" };

fn connect(settings: &Settings, batching: Batching) -> Outcome<FutureProducer<Context>> {
    let client = config(settings, batching).create_with_context(Context::new(settings));
    client.map_err(|error| fault_of("creating a producer", &error))
}

fn config(settings: &Settings, batching: Batching) -> ClientConfig {
    let mut config = settings.client.clone();
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("partitioner", "murmur2_random")
        .set("compression.type", batching.compression)
        .set("linger.ms", batching.linger.as_millis().to_string())
        // The topic says how large a record may be. Past this a broker drops the connection instead of answering.
        .set("message.max.bytes", MOST_BYTES)
        .set("delivery.timeout.ms", DELIVERY.as_millis().to_string());
    config
}

#[async_trait]
impl log::Producer for Producer {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        self.deliver(to_send(record)?).await
    }

    async fn send_at(&self, record: Outgoing<'_>, at: UnixMillis) -> Outcome<Written> {
        let record = to_send(record)?;
        self.deliver(FutureRecord { timestamp: i64::try_from(at.0).ok(), ..record }).await
    }
}

impl Producer {
    async fn deliver(&self, record: FutureRecord<'_, [u8], [u8]>) -> Outcome<Written> {
        let (client, topic) = (self.client(), record.topic);
        let error = match client.send(record, DELIVERY).await {
            Ok(delivered) => return written(delivered.partition, delivered.offset),
            Err((error, _)) => error,
        };
        let fault = fault_of(&format!("writing to `{topic}`"), &error);
        let Some((code, reason)) = client.client().fatal_error() else {
            self.0.brokers.name_again(client.client());
            return Err(fault);
        };
        self.replace(&client)?;
        Err(Fault::Transient(format!("{fault}: {code}: {reason}; the producer is replaced")))
    }
}

/// Converts `record` for the client.
fn to_send(record: Outgoing<'_>) -> Outcome<FutureRecord<'_, [u8], [u8]>> {
    let headers = record.headers.iter();
    let headers = headers.fold(OwnedHeaders::new(), |all, (key, value)| all.insert(Header { key, value: *value }));
    let mut sent: FutureRecord<'_, [u8], [u8]> = FutureRecord::to(record.topic).headers(headers);
    sent.key = record.key;
    sent.payload = record.value;
    sent.partition = record.partition.map(i32::try_from).transpose().map_err(|_| no_partition(record))?;
    Ok(sent)
}

fn no_partition(record: Outgoing<'_>) -> Fault {
    Fault::Poison(format!("`{}` has no partition {:?}", record.topic, record.partition))
}

fn written(partition: i32, offset: i64) -> Outcome<Written> {
    match (u32::try_from(partition), u64::try_from(offset)) {
        (Ok(partition), Ok(offset)) => Ok(Written { partition, offset: Offset(offset) }),
        _ => Err(Fault::Transient("the broker acknowledged a record without saying where it is".to_owned())),
    }
}

/// How long a transaction may take. Where a killed process has left one open, readers of its partitions see nothing
/// behind it until the broker ends it after this time, or the next process takes the name over.
const WITHIN: Duration = Duration::from_secs(10);

/// How long a call to the coordinator may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Writes records under one `transactional.id`: readers see all records of a transaction or none, also where a process
/// was killed within it.
pub struct Transactions {
    settings: Settings,
    id: String,
    /// The client that has taken the name over; `None` before that, and after a fault.
    client: Mutex<Option<FutureProducer<Context>>>,
}

impl Transactions {
    /// Transactions under the name `id`. Nothing is connected yet.
    pub fn new(settings: &Settings, id: &str) -> Self {
        Self { settings: settings.clone(), id: id.to_owned(), client: Mutex::new(None) }
    }

    fn fault(&self, error: &KafkaError) -> Fault {
        fault_of(&format!("writing as `{}`", self.id), error)
    }

    /// Runs a call that blocks, and returns the client.
    async fn call(
        &self,
        client: FutureProducer<Context>,
        call: impl FnOnce(&FutureProducer<Context>) -> KafkaResult<()> + Send + 'static,
    ) -> Outcome<FutureProducer<Context>> {
        let doing = format!("writing as `{}`", self.id);
        blocking(move || call(&client).map(|()| client).map_err(|error| fault_of(&doing, &error))).await
    }
}

#[async_trait]
impl log::Transactions for Transactions {
    async fn take_over(&self) -> Outcome<()> {
        let mut config = config(&self.settings, PROMPT);
        let within = WITHIN.as_millis().to_string();
        config.set("transactional.id", &self.id);
        config.set("transaction.timeout.ms", &within).set("delivery.timeout.ms", &within);
        let client = config.create_with_context(Context::new(&self.settings)).map_err(|error| self.fault(&error))?;
        let client = self.call(client, |client| client.init_transactions(TIMEOUT)).await?;
        *self.client.lock() = Some(client);
        Ok(())
    }

    async fn write(&self, records: &[Outgoing<'_>]) -> Outcome<()> {
        let client = self.client.lock().take();
        let client = client.ok_or_else(|| Fault::Fatal(format!("`{}` is not taken over", self.id)))?;
        client.begin_transaction().map_err(|error| self.fault(&error))?;
        let send = async |record: &Outgoing<'_>| {
            let sent = client.send(to_send(*record)?, WITHIN).await;
            sent.map(|_| ()).map_err(|(error, _)| fault_of(&format!("writing to `{}`", record.topic), &error))
        };
        if let Err(fault) = try_join_all(records.iter().map(send)).await {
            // Otherwise readers wait until the broker ends it.
            if let Err(error) = self.call(client, |client| client.abort_transaction(TIMEOUT)).await {
                tracing::warn!(%error, "cannot end a transaction");
            }
            return Err(fault);
        }
        let client = self.call(client, |client| client.commit_transaction(TIMEOUT)).await?;
        *self.client.lock() = Some(client);
        Ok(())
    }
}
