//! The engines of the local stack, which are Kafka, DynamoDB and the cache: starts embedded ones in this process or
//! connects to real ones.

use std::time::Duration;

use anyhow::Context;
use tally_adapters::dynamodb::{self, Connection, Stores};
use tally_adapters::{kafka, memory, redis};
use tally_core::backoff::Backoff;
use tally_core::ids::CachePrefix;
use tally_core::ports::{Outcome, TopicReader as _};
use tally_emulator::Emulator;
use tally_service::{Host, Secret, Stage, Stop};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::args::{Args, Wanted};
use crate::cache::{Switchable, expire};

/// The topic of likes, and that of dead letters.
pub(crate) const TOPIC: &str = "likes";
pub(crate) const DEAD_LETTERS: &str = "likes.dlq";
/// The log of changes.
pub(crate) const CHANGES: &str = "changes";
/// The topic of boards, of the embedded Kafka: a real one may have none.
pub(crate) const BOARDS: &str = "boards";
/// What a Region publishes of its counts, where there are two.
pub(crate) const COUNTS: &str = "counts";
/// Partitions of the embedded topics.
const PARTITIONS: u32 = 12;
pub(crate) const CHANGES_PARTITIONS: u32 = 4;
/// How long DynamoDB shows what its streams tell of.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// What services and load are connected to.
pub(crate) struct Engines {
    pub(crate) kafka: Kafka,
    pub(crate) store: Store,
    pub(crate) cache: Switchable,
    /// What every table's name begins with.
    pub(crate) table_prefix: String,
}

pub(crate) struct Kafka {
    pub(crate) settings: kafka::Settings,
    pub(crate) partitions: u32,
    /// The address that people are told.
    pub(crate) bootstrap: String,
    /// The embedded cluster, where there is one: it ends when this is dropped.
    pub(crate) embedded: Option<kafka::Embedded>,
    /// Whether there is a topic for what is trending, and it is listed.
    pub(crate) lists: bool,
}

/// DynamoDB, and the tables in it.
pub(crate) struct Store {
    pub(crate) tables: Stores,
    /// The embedded engine, where there is one.
    pub(crate) emulator: Option<Emulator>,
    /// The address that people are told.
    pub(crate) url: String,
    /// How long the stream shows what it tells of.
    pub(crate) kept: Duration,
}

impl Engines {
    /// Starts what is embedded, waits for what is not, and creates the tables.
    ///
    /// # Errors
    /// An engine that cannot be had.
    pub(crate) async fn open(args: &Args, wanted: Wanted, host: &Host) -> anyhow::Result<Self> {
        let Wanted { kafka, store, .. } = wanted;
        let mut table_prefix = args.store.table_prefix.clone();
        if kafka.is_some() && store.is_none() && table_prefix.is_empty() {
            // The topic ends with this process, and claims of it mean nothing to the next one: so each run has its tables.
            table_prefix = format!("local-{:08x}-", host.chance().token() >> 32);
        }
        let kafka = Kafka::open(kafka, args, host).await?;
        let store = Store::open(store, args, &table_prefix, host).await?;
        let cache = open_cache(args.redis.as_ref(), &table_prefix, host)?;
        host.wait_for("tables", Backoff::STORE, || dynamodb::ensure_tables(&store.tables.connection)).await?;
        Ok(Self { kafka, store, cache, table_prefix })
    }

    /// Whether everything ends with this process.
    pub(crate) fn are_embedded(&self) -> bool {
        self.kafka.embedded.is_some() && self.store.emulator.is_some()
    }
}

impl Kafka {
    /// The producer of the load. The embedded Kafka searches a partition from its oldest batch at every fetch, so it gets
    /// few large batches; a real one gets what `producer` sends it.
    pub(crate) fn for_load(&self, producer: &kafka::Producer) -> Outcome<kafka::Producer> {
        match self.embedded {
            Some(_) => kafka::Producer::gathering(&self.settings),
            None => Ok(producer.clone()),
        }
    }

    /// The embedded one, which can be bootstrapped from `listener`, or the real one where there is no listener.
    async fn open(listener: Option<std::net::TcpListener>, args: &Args, host: &Host) -> anyhow::Result<Self> {
        let Some(listener) = listener else {
            let bootstrap = args.brokers.clone().context("there are no brokers")?;
            let settings = kafka::Settings::plaintext(&bootstrap);
            let reader = kafka::TopicReader::new(&settings, "tally-localstack", TOPIC)?;
            let logs = host.wait_for("kafka", Backoff::STORE, || reader.logs()).await?;
            let partitions = u32::try_from(logs.len()).context("more partitions than can be")?;
            return Ok(Self { settings, partitions, bootstrap, embedded: None, lists: false });
        };
        let embedded = kafka::Embedded::start(&[
            (TOPIC, PARTITIONS),
            (DEAD_LETTERS, 1),
            (CHANGES, CHANGES_PARTITIONS),
            (BOARDS, 1),
            (COUNTS, CHANGES_PARTITIONS),
        ])?;
        let (listener, to) = (TcpListener::from_std(listener)?, embedded.bootstrap().to_owned());
        let bootstrap = listener.local_addr()?.to_string();
        let settings = kafka::Settings::plaintext(&to);
        host.spawn(Stage::Support, "kafka port", move |stop| forward(listener, to, stop));
        let lists = !args.no_trends;
        Ok(Self { settings, partitions: PARTITIONS, bootstrap, embedded: Some(embedded), lists })
    }
}

impl Store {
    /// The embedded one, which listens on `listener`, or the real one where there is no listener.
    async fn open(
        listener: Option<std::net::TcpListener>,
        args: &Args,
        prefix: &str,
        host: &Host,
    ) -> anyhow::Result<Self> {
        let settings = dynamodb::Settings::local(prefix);
        let Some(listener) = listener else {
            let url = args.dynamodb_endpoint.clone().context("there is no endpoint")?;
            let settings = dynamodb::Settings { endpoint: Some(url.clone()), ..settings };
            let tables = Stores::over(&Connection::open(&settings).await, host.clock());
            return Ok(Self { tables, emulator: None, url, kept: KEPT });
        };
        let emulator = Emulator::new(args.emulated());
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let served = emulator.clone();
        host.spawn(Stage::Support, "dynamodb port", move |stop: Stop| async move {
            Ok(served.serve(listener, async move { stop.requested().await }).await?)
        });
        let connection = Connection::in_process(&settings, emulator.http_client(), host.clock().now());
        let (tables, url) = (Stores::over(&connection, host.clock()), format!("http://{address}"));
        Ok(Self { tables, emulator: Some(emulator), url, kept: args.stream_retention })
    }

    /// The name of the table of rows.
    pub(crate) fn likes(&self) -> &str {
        &self.tables.connection.tables().likes
    }
}

fn open_cache(redis: Option<&Secret>, table_prefix: &str, host: &Host) -> anyhow::Result<Switchable> {
    let Some(url) = redis else {
        let cache = Switchable::embedded(memory::PartitionCache::default());
        let (held, clock) = (cache.clone(), host.clock());
        host.spawn(Stage::Support, "cache", move |stop| expire(held, clock, stop));
        return Ok(cache);
    };
    let prefix = CachePrefix::of_tables(table_prefix);
    let settings = redis::Settings { prefix, ..redis::Settings::at(vec![url.expose().to_owned()]) };
    Ok(Switchable::real(settings.open()?))
}

/// Forwards what connects to `listener` to the address `to`, both ways. A Kafka client needs it once: it is told the real port then.
async fn forward(listener: TcpListener, to: String, stop: Stop) -> anyhow::Result<()> {
    // Dropped with this task, and its connections with it.
    let mut connections = JoinSet::new();
    while let Ok(accepted) = stop.unless_requested(listener.accept()).await {
        while connections.try_join_next().is_some() {}
        // A client may be gone before it is accepted.
        let Ok((mut client, _)) = accepted else { continue };
        let to = to.clone();
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(to).await {
                // Either side may break off.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_gathers_records_into_batches_for_the_embedded_kafka_and_for_no_other() {
        let settings = kafka::Settings::plaintext("127.0.0.1:1");
        let ordinary = kafka::Producer::new(&settings).unwrap();
        let linger = |embedded| {
            let settings = settings.clone();
            let kafka = Kafka { settings, partitions: 1, bootstrap: String::new(), embedded, lists: false };
            kafka.for_load(&ordinary).unwrap().linger()
        };
        let embedded = kafka::Embedded::start(&[(TOPIC, 1)]).unwrap();
        assert!(linger(Some(embedded)) >= Duration::from_millis(100));
        assert_eq!(linger(None), ordinary.linger());
    }
}
