//! What processes depend on: the tables and a Kafka, on ports of the loopback.

use std::process::Command;

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use tally_adapters::kafka;
use tally_emulator::Config;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use crate::Store;
use crate::process::{command, no_spawning};

/// Closes what this process has open and runs a program. The cluster's connections would otherwise be the child's too:
/// closed here, they would stay open there, and a client would never hear that the broker is gone.
const ALONE: &str = r#"for fd in /dev/fd/*; do fd=${fd##*/}; ((fd < 3)) || eval "exec $fd>&-"; done; exec "$@""#;

/// Tables and a Kafka that processes reach, gone when dropped.
pub struct Engines {
    /// The tables, by no socket.
    pub store: Store,
    /// Where the tables are served.
    pub tables: String,
    /// librdkafka's in-process cluster.
    pub cluster: MockCluster<'static, DefaultProducerContext>,
    /// Where it is.
    pub brokers: String,
    /// The broker's port, from its first outage on.
    port: Option<TcpSocket>,
    _serving: JoinSet<()>,
}

impl Engines {
    /// Empty tables, and these topics with so many partitions.
    ///
    /// # Panics
    /// There is no port, or an engine does not start.
    pub async fn start(config: Config, topics: &[(&str, u32)]) -> Self {
        let cluster = MockCluster::new(1).expect("a cluster starts");
        for (topic, partitions) in topics {
            let partitions = i32::try_from(*partitions).expect("few partitions");
            cluster.create_topic(topic, partitions, 1).expect("it takes topics");
        }
        let store = Store::in_real_time(config).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let tables = format!("http://{}", listener.local_addr().expect("it is bound"));
        let (emulator, mut serving) = (store.emulator.clone(), JoinSet::new());
        serving.spawn(async move { emulator.serve(listener, std::future::pending()).await.expect("it serves") });
        let brokers = cluster.bootstrap_servers();
        Self { store, tables, cluster, brokers, port: None, _serving: serving }
    }

    /// How clients reach the Kafka.
    pub fn kafka(&self) -> kafka::Settings {
        kafka::Settings::plaintext(&self.brokers)
    }

    /// A program that finds these engines and has none of this process's connections.
    pub fn command(&self, program: &str) -> Command {
        let mut command = command("bash");
        command.args(["-c", ALONE, "alone", program]);
        command.env("TALLY_BROKERS", &self.brokers).env("AWS_ENDPOINT_URL", &self.tables);
        command.env("AWS_REGION", "us-east-1").env("AWS_EC2_METADATA_DISABLED", "true");
        command.env("AWS_ACCESS_KEY_ID", "local").env("AWS_SECRET_ACCESS_KEY", "local");
        command
    }

    /// The broker is away from now on. Its port is kept: a socket that is bound and does not listen lets the system refuse
    /// connections and give the port to no other process.
    ///
    /// # Panics
    /// The broker does not go away.
    pub fn broker_down(&mut self) {
        // librdkafka ends this process where it cannot bind again at once: no child may share the port.
        let _held = no_spawning();
        self.cluster.broker_down(-1).expect("the broker goes away");
        self.port.get_or_insert_with(|| {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_reuseaddr(true).expect("it may be bound again");
            socket.bind(self.brokers.parse().expect("one address")).expect("the port is free");
            socket
        });
    }

    /// The broker is back.
    ///
    /// # Panics
    /// It does not come back.
    pub fn broker_up(&self) {
        self.cluster.broker_up(-1).expect("the broker comes back");
    }
}
