//! Writes records as an idempotent producer. Every replica that must have a record acknowledges it, and a key chooses
//! the same partition as in Java's client.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{self, Outgoing, Written};
use tally_core::topic::Offset;

use super::args::Settings;
use super::brokers::Brokers;
use super::context::Context;
use super::fault::fault_of;

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
pub(super) struct Batching {
    linger: Duration,
    compression: &'static str,
}

pub(super) const PROMPT: Batching = Batching { linger: Duration::from_millis(5), compression: "zstd" };
const AT_ONCE: Batching = Batching { linger: Duration::ZERO, ..PROMPT };
const GATHERING: Batching = Batching { linger: Duration::from_millis(100), compression: "none" };

fn connect(settings: &Settings, batching: Batching) -> Outcome<FutureProducer<Context>> {
    let client = config(settings, batching).create_with_context(Context::new(settings));
    client.map_err(|error| fault_of("creating a producer", &error))
}

pub(super) fn config(settings: &Settings, batching: Batching) -> ClientConfig {
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
        let client = self.client();
        let error = match client.send(to_send(record)?, DELIVERY).await {
            Ok(delivered) => return written(delivered.partition, delivered.offset),
            Err((error, _)) => error,
        };
        let fault = fault_of(&format!("writing to `{}`", record.topic), &error);
        let Some((code, reason)) = client.client().fatal_error() else {
            self.0.brokers.name_again(client.client());
            return Err(fault);
        };
        self.replace(&client)?;
        Err(Fault::Transient(format!("{fault}: {code}: {reason}; the producer is replaced")))
    }
}

/// Converts `record` for the client.
pub(super) fn to_send(record: Outgoing<'_>) -> Outcome<FutureRecord<'_, [u8], [u8]>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_that_gathers_gives_a_batch_time_to_grow_and_an_ordinary_one_is_prompt() {
        let settings = Settings::plaintext("127.0.0.1:1");
        let linger = |producer: &Producer| {
            let config = config(&settings, producer.0.batching);
            let linger = Duration::from_millis(config.get("linger.ms").unwrap().parse().unwrap());
            assert_eq!(producer.linger(), linger, "what the client is configured with");
            linger
        };
        assert!(linger(&Producer::gathering(&settings).unwrap()) >= Duration::from_millis(100));
        assert!(linger(&Producer::new(&settings).unwrap()) <= Duration::from_millis(5));
        assert_eq!(linger(&Producer::at_once(&settings).unwrap()), Duration::ZERO);
    }
}
