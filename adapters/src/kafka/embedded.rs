//! Kafka inside this process, for a stack on one machine and for tests: librdkafka's own in-memory cluster, which
//! speaks the real protocol on loopback and ends when it is dropped.
//!
//! It keeps 5 MiB of each partition and deletes what is older, acknowledged or not, read or not, without an error: its
//! producers have to hold back. It picks its own port, and has one broker.

use rdkafka::producer::{FutureProducer, Producer as _};
use tally_core::ports::Outcome;

use super::args::Settings;
use super::context::Context;
use super::convert::fault_of;

/// A Kafka cluster inside this process.
pub struct Embedded {
    /// The client that the cluster lives and ends with.
    _client: FutureProducer<Context>,
    bootstrap: String,
}

impl Embedded {
    /// Starts a cluster with these topics, each with so many partitions. Other topics are created when they are first
    /// written to.
    ///
    /// # Errors
    /// A cluster that cannot be started, and a topic it does not take.
    pub fn start(topics: &[(&str, u32)]) -> Outcome<Self> {
        // The address is not used: the client is connected to the cluster it brings along.
        let settings = Settings::plaintext("127.0.0.1:1");
        let mut config = settings.client.clone();
        config.set("test.mock.num.brokers", "1");
        let failed = |error| fault_of("starting Kafka in this process", &error);
        let client: FutureProducer<Context> = config.create_with_context(Context::new(&settings)).map_err(failed)?;
        let Some(cluster) = client.client().mock_cluster() else {
            unreachable!("a client set up with brokers of its own has a cluster");
        };
        for (topic, partitions) in topics {
            let partitions = i32::try_from(*partitions).unwrap_or(i32::MAX);
            cluster.create_topic(topic, partitions, 1).map_err(failed)?;
        }
        let bootstrap = cluster.bootstrap_servers();
        drop(cluster);
        Ok(Self { _client: client, bootstrap })
    }

    /// Returns the address for clients.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }
}
