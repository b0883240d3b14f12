//! What the services depend on, each behind a proxy of its own: Kafka, the tables, the cache. Ports that go by no proxy
//! and see no fault of the network are for the judgement.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use tally_adapters::dynamodb::{Checkpoints, Connection, Counts, Likes, Maps, Rows, Settings, Streams, ensure_tables};
use tally_adapters::kafka;
use tally_core::definitions::Definitions;
use tally_core::fence::least_of_each;
use tally_core::ids::{Lane, ShardCount, StreamShardId};
use tally_core::ports::{ChangeStream as _, DeploymentConfig as _, FencedRows as _, Gaps as _, Positions as _};
use tally_core::time::UnixMillis;
use tally_emulator::{Config, Emulator, Fault, Policies, Rule};
use tally_service::{Host, Stage, Stop};
use tokio::net::TcpListener;

use super::proxy::{Protocol, Proxy};
use super::redis::Redis;
use crate::simulation::history::History;
use crate::undisturbed;

pub(crate) const TOPIC: &str = "likes";
const PARTITIONS: u32 = 12;

const ROLES: &str = include_str!("../../../infra/roles.yaml");

/// What a service depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dependency {
    Kafka,
    DynamoDb,
    Redis,
}

impl Dependency {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::DynamoDb => "dynamodb",
            Self::Redis => "redis",
        }
    }
}

/// The engines, their proxies, and ports for the judgement.
pub(crate) struct Engines {
    pub(crate) emulator: Emulator,
    /// By no proxy, as all below.
    pub(crate) broker: SocketAddr,
    pub(crate) redis: Option<Redis>,
    pub(crate) proxies: BTreeMap<Dependency, Proxy>,
    /// Before the tables' proxy, for the API alone.
    pub(crate) api_tables: Proxy,
    /// The rows of every post over time.
    pub(crate) history: History,
    ports: Mutex<Arc<Ports>>,
    _cluster: Option<kafka::Embedded>,
}

/// The tables of a deployment, by no proxy.
pub(crate) struct Ports {
    pub(crate) prefix: String,
    likes: Likes,
    pub(crate) rows: Rows,
    pub(crate) counts: Counts,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) maps: Maps,
    pub(crate) stream: Streams,
}

impl Ports {
    fn over(connection: &Connection, prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            likes: Likes::new(connection, ShardCount::DEFAULT),
            rows: Rows::new(connection),
            counts: Counts::new(connection),
            checkpoints: Checkpoints::new(connection),
            maps: Maps::new(connection),
            stream: Streams::new(connection),
        }
    }
}

/// Whether each process may do what its role on AWS may, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Roles {
    Kept,
    Ignored,
}

impl Engines {
    /// Starts them, but for a Kafka that is there; what serves them are tasks of `host`.
    pub(crate) async fn start(
        host: &Host,
        broker: Option<SocketAddr>,
        roles: Roles,
        counters: &Definitions,
    ) -> anyhow::Result<Self> {
        let (broker, cluster) = match broker {
            Some(broker) => (broker, None),
            None => {
                let cluster = kafka::Embedded::start(&[(TOPIC, PARTITIONS), ("likes.dlq", 2)])?;
                let broker = cluster.bootstrap().parse().context("the in-process broker is at an odd place")?;
                (broker, Some(cluster))
            }
        };
        let policies = match roles {
            Roles::Ignored => None,
            Roles::Kept => {
                let roles: serde_json::Value = serde_saphyr::from_str(ROLES).context("infra/roles.yaml")?;
                Some(Policies::of(&roles).context("infra/roles.yaml")?)
            }
        };
        let config = Config { shards: 4, split_after: Some(4_000), max_open_shards: 8, policies, ..Config::default() };
        let emulator = Emulator::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for the tables")?;
        let tables = listener.local_addr()?;
        let served = emulator.clone();
        host.worker(Stage::Support, "emulator", move |stop: Stop| async move {
            served.serve(listener, async move { stop.requested().await }).await?;
            Ok(())
        });
        let redis = Redis::start().await?;
        let mut proxies = BTreeMap::new();
        proxies.insert(Dependency::Kafka, Proxy::start(host, broker, Protocol::Kafka).await?);
        proxies.insert(Dependency::DynamoDb, Proxy::start(host, tables, Protocol::Any).await?);
        if let Some(redis) = &redis {
            proxies.insert(Dependency::Redis, Proxy::start(host, redis.address(), Protocol::Any).await?);
        }
        let connection = Connection::in_process(&Settings::local(""), emulator.http_client(), host.clock().now());
        ensure_tables(&connection).await?;
        let checkpoints = Checkpoints::new(&connection);
        checkpoints.config(Some(ShardCount::DEFAULT)).await?;
        let likes_alone = Definitions::likes_alone();
        let defined = *counters == likes_alone || checkpoints.define(&likes_alone, counters).await?;
        ensure!(defined, "the counters are defined by another");
        let tables = proxies.get(&Dependency::DynamoDb).map(Proxy::address).context("the tables have a proxy")?;
        let api_tables = Proxy::start(host, tables, Protocol::Any).await?;
        let history = History::of(&emulator)?;
        Ok(Self {
            ports: Mutex::new(Arc::new(Ports::over(&connection, ""))),
            emulator,
            broker,
            redis,
            proxies,
            api_tables,
            history,
            _cluster: cluster,
        })
    }

    /// The tables of the deployment as it is now.
    pub(crate) fn ports(&self) -> Arc<Ports> {
        Arc::clone(&self.ports.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The tables as the deployment has them now.
    pub(crate) fn connection(&self) -> Connection {
        let now = UnixMillis(self.emulator.stats().now_ms);
        Connection::in_process(&Settings::local(&self.ports().prefix), self.emulator.http_client(), now)
    }

    /// The deployment is under another prefix from now on.
    pub(crate) fn move_to(&self, prefix: &str, now: UnixMillis) {
        let connection = Connection::in_process(&Settings::local(prefix), self.emulator.http_client(), now);
        let ports = Arc::new(Ports::over(&connection, prefix));
        *self.ports.lock().unwrap_or_else(PoisonError::into_inner) = ports;
    }

    /// Where services find a dependency.
    pub(crate) fn address(&self, dependency: Dependency) -> Option<SocketAddr> {
        self.proxies.get(&dependency).map(Proxy::address)
    }

    /// Everything passes, and no request goes wrong any more.
    pub(crate) fn calm(&self) {
        self.emulator.set_faults(Vec::new());
        self.proxies.values().for_each(Proxy::calm);
        self.api_tables.calm();
    }

    /// Now and then a request is late, lost after it was done, or done long after its client has given up.
    pub(crate) fn storm(&self) {
        let on = |operation: &'static str| move |fault: Fault, chance| Rule::new(fault).on(operation).chance(chance);
        let (rows, counts) = (on("TransactWriteItems"), on("UpdateItem"));
        let late = Fault::Latency { min_ms: 50, max_ms: 300 };
        let ghost = Fault::Ghost { max_delay_ms: 3_000, hang_ms: 0 };
        self.emulator.set_faults(vec![
            rows(late, 0.2),
            counts(late, 0.05),
            rows(ghost, 0.01),
            counts(ghost, 0.005),
            rows(Fault::DropReply, 0.01),
            counts(Fault::DropReply, 0.005),
        ]);
    }

    /// Where the fence of each partition stands.
    pub(crate) async fn fences(&self) -> BTreeMap<u32, u64> {
        let fences = self.ports().likes.fences(TOPIC).await.unwrap_or_default();
        least_of_each(&fences).into_iter().map(|(index, offset)| (index, offset.0)).collect()
    }

    /// Whether every partition has so many lanes.
    pub(crate) async fn have_lanes(&self, lanes: usize) -> bool {
        let fences = self.ports().likes.fences(TOPIC).await.unwrap_or_default();
        let mut stated = fences.iter().filter(|(_, fence)| fence.lane == Lane::FIRST);
        stated.clone().count() > 0 && stated.all(|(_, fence)| fence.terms.lanes.get() == lanes)
    }

    /// Whether every stream shard that there is was read past `since`: all rows of before are counted.
    pub(crate) async fn counted_past(&self, since: UnixMillis) -> anyhow::Result<bool> {
        let ports = self.ports();
        let label = ports.stream.info().await?.label;
        let states = ports.checkpoints.shards(&label).await?;
        let known: BTreeMap<StreamShardId, _> =
            states.into_iter().map(|state| (state.checkpoint.id.clone(), state.checkpoint)).collect();
        let listed = ports.stream.shards(&label).await?;
        Ok(listed.iter().all(|shard| known.get(&shard.id).is_some_and(|known| known.closed || known.at > since)))
    }

    /// Waits out requests that are done after their clients have given up.
    pub(crate) async fn without_ghosts(&self) -> anyhow::Result<()> {
        let landed = async || self.emulator.stats().ghosts_pending == 0;
        super::wait::until("every late request to land", Duration::from_secs(330), landed).await?;
        Ok(())
    }

    /// Drops every record of the stream shards that have a checkpoint; returns how many there were. The service trims
    /// nothing that is younger than a day, and a shard of that age has one.
    pub(crate) async fn trim(&self) -> anyhow::Result<usize> {
        let ports = self.ports();
        let label = ports.stream.info().await?.label;
        let mut trimmed = 0;
        for state in ports.checkpoints.shards(&label).await? {
            if state.checkpoint.sequence.is_some() {
                let shard = state.checkpoint.id.as_str();
                // A shard that is gone has no records.
                trimmed += self.emulator.trim("likes", Some(shard), None).unwrap_or(0);
            }
        }
        Ok(trimmed)
    }

    /// Switches the stream on or off.
    pub(crate) async fn switch_stream(&self, on: bool) -> anyhow::Result<()> {
        anyhow::ensure!(undisturbed::switch_stream(&self.emulator, on).await, "the stream could not be switched");
        Ok(())
    }

    pub(crate) async fn open_gaps(&self) -> anyhow::Result<usize> {
        Ok(self.ports().checkpoints.gaps().await?.len())
    }
}
