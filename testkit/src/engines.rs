//! Starts what processes under test depend on, on loopback ports: the tables (a DynamoDB emulator) and a Kafka cluster
//! that librdkafka imitates in this process.

use std::process::Command;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tally_adapters::kafka;
use tally_emulator::Config;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use crate::Store;
use crate::process::{command, no_spawning};

/// Closes the inherited file descriptors and runs a program. Otherwise the child would share the cluster's connections:
/// closed in this process, they would stay open in the child, and a client would not notice that the broker is gone.
const ALONE: &str = r#"for fd in /dev/fd/*; do fd=${fd##*/}; ((fd < 3)) || eval "exec $fd>&-"; done; exec "$@""#;

/// Tables and a Kafka cluster that other processes can connect to. They end when this is dropped.
pub struct Engines {
    /// The tables, without a socket.
    pub store: Store,
    /// The URL at which the tables are served.
    pub tables: String,
    /// The in-process cluster of librdkafka.
    pub cluster: MockCluster<'static, DefaultProducerContext>,
    /// The cluster's bootstrap servers.
    pub brokers: String,
    /// Reserves the broker's port from its first outage on.
    port: Option<TcpSocket>,
    _serving: JoinSet<()>,
}

impl Engines {
    /// Starts empty tables, and a cluster with these topics and their numbers of partitions.
    ///
    /// # Panics
    /// If no port is free or an engine does not start.
    pub async fn start(config: Config, topics: &[(&str, u32)]) -> Self {
        let cluster = MockCluster::new(1).expect("a cluster starts");
        for (topic, partitions) in topics {
            let partitions = i32::try_from(*partitions).expect("few partitions");
            cluster.create_topic(topic, partitions, 1).expect("it takes topics");
        }
        let store = Store::in_real_time(config).await;
        let (tables, _serving) = store.serve().await;
        let brokers = cluster.bootstrap_servers();
        Self { store, tables, cluster, brokers, port: None, _serving }
    }

    /// The settings of Kafka clients.
    pub fn kafka(&self) -> kafka::Settings {
        kafka::Settings::plaintext(&self.brokers)
    }

    /// A command for a program that uses these engines and inherits none of this process's connections.
    pub fn command(&self, program: &str) -> Command {
        let mut command = command("bash");
        command.args(["-c", ALONE, "alone", program]);
        command.env("TALLY_BROKERS", &self.brokers).env("AWS_ENDPOINT_URL", &self.tables);
        command.env("AWS_REGION", "us-east-1").env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "local");
        command
    }

    /// Takes the broker down. Its port is reserved: while a socket is bound but does not listen, the system refuses
    /// connections and gives the port to no other process.
    ///
    /// # Panics
    /// If the broker does not go down.
    pub fn broker_down(&mut self) {
        // librdkafka aborts this process if it cannot bind the port again, so no child may share it.
        let _held = no_spawning();
        self.cluster.broker_down(-1).expect("the broker goes away");
        self.port.get_or_insert_with(|| {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_reuseaddr(true).expect("it may be bound again");
            socket.bind(self.brokers.parse().expect("one address")).expect("the port is free");
            socket
        });
    }

    /// Brings the broker back.
    ///
    /// # Panics
    /// If the broker does not come back.
    pub fn broker_up(&self) {
        self.cluster.broker_up(-1).expect("the broker comes back");
    }
}
