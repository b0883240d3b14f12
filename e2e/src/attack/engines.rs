//! Starts what the services under attack depend on, each behind a proxy that can imitate a bad network: Kafka, the
//! tables (a DynamoDB emulator), and Redis if it is installed. The checks after an attack connect without a proxy and
//! without faults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use tally_adapters::dynamodb::{Checkpoints, Connection, Settings, Stores, ensure_tables};
use tally_adapters::kafka;
use tally_adapters::redis::{self, PartitionCache};
use tally_core::definitions::Definitions;
use tally_core::ids::{CachePrefix, ShardCount};
use tally_core::time::UnixMillis;
use tally_emulator::{Config, Emulator, Fault, Policies, Rule};
use tally_service::{Clock, Host, Stage, Stop};
use tally_testkit::{Redis, until};
use tokio::net::TcpListener;

use crate::attack::ledger::definitions;
use crate::attack::proxy::{Mode, Proxy};
use crate::simulation::events::TOPIC;
use crate::simulation::history::History;

const PARTITIONS: u32 = 12;
/// The log of changes.
const CHANGES: &str = "changes";
pub(crate) const CHANGES_PARTITIONS: u32 = 6;
/// Another topic for the log of changes, for tables that were restored or adopted.
pub(crate) const ANEW: &str = "changes.anew";

const ROLES: &str = include_str!("../../../infra/roles.yaml");

/// A dependency of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Dependency {
    Kafka,
    DynamoDb,
    Redis,
}

impl Dependency {
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// The engines, their proxies, and the ports of the judgement.
pub(crate) struct Engines {
    pub(crate) clock: Clock,
    pub(crate) emulator: Emulator,
    pub(crate) roles: Roles,
    /// Without a proxy, like everything below.
    pub(crate) broker: SocketAddr,
    redis: Mutex<Option<Arc<Redis>>>,
    pub(crate) proxies: BTreeMap<Dependency, Proxy>,
    /// The proxy between the API and the tables.
    pub(crate) api_tables: Proxy,
    /// The history of the rows of every post.
    pub(crate) history: History,
    /// The prefix of the tables of the current deployment, and the tables.
    deployment: Mutex<(&'static str, Arc<Stores>)>,
    _cluster: Option<kafka::Embedded>,
}

/// Whether the emulator enforces the IAM roles of the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Roles {
    Kept,
    Ignored,
}

/// Starts a Kafka in this process, with a few more topics of counts.
fn embedded(counts: &[&str]) -> anyhow::Result<(SocketAddr, kafka::Embedded)> {
    let logs: Vec<_> = [CHANGES, ANEW].iter().chain(counts).map(|topic| (*topic, CHANGES_PARTITIONS)).collect();
    let cluster = kafka::Embedded::start(&[&[(TOPIC, PARTITIONS), ("likes.dlq", 2)], &logs[..]].concat())?;
    let broker = cluster.bootstrap().parse().context("cannot parse the address of the in-process broker")?;
    Ok((broker, cluster))
}

impl Engines {
    /// Starts them, except a Kafka that runs already. The `tasks` serve them. `counts` are topics that one Region of
    /// several needs.
    pub(crate) async fn start(
        tasks: &Host,
        broker: Option<SocketAddr>,
        roles: Roles,
        needs_redis: bool,
        counts: &[&str],
    ) -> anyhow::Result<Self> {
        let (broker, cluster) = match broker {
            Some(broker) => (broker, None),
            None => embedded(counts).map(|(broker, cluster)| (broker, Some(cluster)))?,
        };
        let allowed = serde_saphyr::from_str::<serde_json::Value>(ROLES).context("infra/roles.yaml")?;
        let policies =
            if roles == Roles::Kept { Some(Policies::of(&allowed).context("infra/roles.yaml")?) } else { None };
        let clock = Host::new("attack").clock();
        let config = Config { shards: 4, split_after: Some(4_000), max_open_shards: 8, policies, ..Config::default() };
        let emulator = Emulator::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on a port for the tables")?;
        let tables = listener.local_addr()?;
        let served = emulator.clone();
        tasks.worker(Stage::Support, "emulator", move |stop: Stop| async move {
            served.serve(listener, async move { stop.requested().await }).await?;
            Ok(())
        });
        ensure!(
            Redis::is_installed() || !needs_redis,
            "redis-server is not installed: install it, or set TALLY_REDIS_SERVER"
        );
        let redis = if Redis::is_installed() { Some(Redis::start(&[]).await?) } else { None };
        let start = async |of, target| anyhow::Ok((of, Proxy::start(tasks, of, target).await?));
        let mut proxies =
            BTreeMap::from([start(Dependency::Kafka, broker).await?, start(Dependency::DynamoDb, tables).await?]);
        if let Some(redis) = &redis {
            proxies.extend([start(Dependency::Redis, redis.address()).await?]);
        }
        let connection = Connection::in_process(&Settings::local(""), emulator.http_client(), clock.now());
        ensure_tables(&connection).await?;
        let checkpoints = Checkpoints::new(&connection);
        checkpoints.config(Some(ShardCount::DEFAULT)).await?;
        let defined = checkpoints.define(&Definitions::likes_alone(), &definitions()).await?;
        ensure!(defined, "the counters are already defined");
        let (of, tables) = (Dependency::DynamoDb, proxies[&Dependency::DynamoDb].address());
        let api_tables = Proxy::start(tasks, of, tables).await?;
        let history = History::of(&emulator)?;
        Ok(Self {
            deployment: Mutex::new(("", Arc::new(Stores::over(&connection, clock)))),
            clock,
            emulator,
            roles,
            broker,
            redis: Mutex::new(redis.map(Arc::new)),
            proxies,
            api_tables,
            history,
            _cluster: cluster,
        })
    }

    /// The current Redis, if one is installed.
    pub(crate) fn redis(&self) -> Option<Arc<Redis>> {
        self.redis.lock().clone()
    }

    /// Kills the current Redis, and replaces it by its replica.
    pub(crate) async fn fail_over(&self, primary: Arc<Redis>, replica: Redis) -> anyhow::Result<()> {
        let proxy = self.proxies.get(&Dependency::Redis).context("Redis has a proxy")?;
        primary.kill();
        proxy.set(Mode::Reset);
        proxy.lead_to(replica.address());
        *self.redis.lock() = Some(Arc::new(replica));
        tokio::task::yield_now().await;
        proxy.calm();
        Ok(())
    }

    /// The tables of the current deployment.
    pub(crate) fn tables(&self) -> Arc<Stores> {
        Arc::clone(&self.deployment.lock().1)
    }

    /// Switches to another table prefix.
    pub(crate) fn move_to(&self, prefix: &'static str) {
        let (settings, now) = (Settings::local(prefix), self.clock.now());
        let connection = Connection::in_process(&settings, self.emulator.http_client(), now);
        *self.deployment.lock() = (prefix, Arc::new(Stores::over(&connection, self.clock)));
    }

    /// The current cache of the deployment, without a proxy, if Redis is installed.
    pub(crate) fn cache(&self) -> anyhow::Result<Option<PartitionCache>> {
        let Some(server) = self.redis() else { return Ok(None) };
        let (prefix, at) = (CachePrefix::of_tables(self.deployment.lock().0), redis::Settings::at(vec![server.url()]));
        let settings = redis::Settings { timeout: Duration::from_secs(2), prefix, ..at };
        Ok(Some(PartitionCache::new(&settings)?))
    }

    /// Removes every fault of the network and the store.
    pub(crate) fn calm(&self) {
        self.emulator.set_faults(Vec::new());
        self.proxies.values().for_each(Proxy::calm);
        self.api_tables.calm();
    }

    /// Makes some requests late, loses some answers, and carries some out long after the client has given up.
    pub(crate) fn storm(&self) {
        let on = |operation: &'static str| move |fault: Fault, chance| Rule::new(fault).on(operation).chance(chance);
        let (statements, items) = (on("BatchExecuteStatement"), on("UpdateItem"));
        let late = Fault::Latency { min_ms: 50, max_ms: 300 };
        let ghost = Fault::Ghost { max_delay_ms: 3_000, hang_ms: 0 };
        self.emulator.set_faults(vec![
            statements(late, 0.1),
            statements(ghost, 0.01),
            statements(Fault::DropReply, 0.01),
            items(ghost, 0.005),
            items(Fault::DropReply, 0.005),
        ]);
    }

    /// The finished offset of each partition.
    pub(crate) async fn finished(&self) -> BTreeMap<u32, u64> {
        let claims = self.tables().claims.all(TOPIC, PARTITIONS).await.unwrap_or_default();
        (0..).zip(claims).filter_map(|(index, claim)| Some((index, claim.kept?.safe.0))).collect()
    }

    /// Whether every partition of the log was folded past `since`, so that all earlier rows are counted.
    pub(crate) async fn counted_past(&self, since: UnixMillis) -> anyhow::Result<bool> {
        let log = &self.tables().changes;
        let Some(config) = log.config().await? else { return Ok(false) };
        let standings = log.standings(config.partitions).await?;
        let is_past = |partition| standings.get(&partition).is_some_and(|stated| stated.standing.as_of > Some(since));
        Ok((0..config.partitions).all(is_past))
    }

    /// Waits until all requests whose clients have given up are carried out.
    pub(crate) async fn without_ghosts(&self) -> anyhow::Result<()> {
        let landed = async || self.emulator.stats().ghosts_pending == 0;
        until("every late request to land", Duration::from_secs(330), landed).await?;
        Ok(())
    }

    /// The number of losses that no audit has closed.
    pub(crate) async fn open_losses(&self) -> anyhow::Result<usize> {
        Ok(self.tables().changes.losses().await?.open().count())
    }
}

/// How long a server may take to follow another.
const FOLLOW: Duration = Duration::from_secs(20);

/// Starts another server that replicates `primary`.
pub(crate) async fn replica(primary: &Redis) -> anyhow::Result<Redis> {
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &primary.address().port().to_string()]).await?;
    let follows =
        async || replica.ask("INFO replication").await.is_ok_and(|said| said.contains("master_link_status:up"));
    until("the replica to follow", FOLLOW, follows).await?;
    Ok(replica)
}
