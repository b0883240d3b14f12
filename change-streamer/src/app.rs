//! The composition root: which adapter serves which port, and which task does what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tally_adapters::{Deployment, dynamodb, kafka, redis};
use tally_core::apply;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::CachePrefix;
use tally_core::milestone::Ladder;
use tally_core::ports::{
    Cache, ChangeStream, Checkpoints, Counts, DeploymentConfig, Producer, Recounts, StreamInfo, Worker,
};
use tally_core::shards::{self, Shards, Sharing};
use tally_service::metrics::Catalogue;
use tally_service::{Host, Invalid, Patience, Program, Stage};
use tokio::sync::watch;

use crate::applier::Applying;
use crate::args::Args;
use crate::cache::CacheUpdates;
use crate::calls::Calls;
use crate::config::{CacheAddress, Config, FeedConfig, Rules};
use crate::feed::FeedTopic;
use crate::follow::Follow;
use crate::ladder::{self, FollowLadder};
use crate::latest::LatestCounts;
use crate::ledger::{self, ChangesPort, DropLapses};
use crate::metrics;
use crate::publisher::Publisher;
use crate::readers::Readers;
use crate::recorder::Recording;
use crate::reports::Reports;
use crate::slots::Slots;
use crate::stores::Stores;
use crate::tell::Tell;

/// Posts that may wait for the cache, or for the feed, before the oldest is dropped.
const WAITING: usize = 100_000;

/// The longest wait between two looks at the shards: a reading of the gaps that is some seconds old calls no count exact.
const LOOK: Duration = Duration::from_secs(2);

/// What the streamer works on.
#[derive(Clone)]
pub struct Ports {
    /// The change stream of the likes table.
    pub stream: Arc<dyn ChangeStream>,
    /// The counters.
    pub counts: Arc<dyn Counts>,
    /// Checkpoints, leases, gaps.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// Where recounts are queued and windows reported.
    pub recounts: Arc<dyn Recounts>,
    /// The cache, where there is one.
    pub cache: Option<Arc<dyn Cache>>,
    /// The change feed, where there is one.
    pub feed: Option<FeedPort>,
    /// The ledger of changes, where there is one.
    pub changes: Option<ChangesPort>,
}

/// Where new counts are published.
#[derive(Clone)]
pub struct FeedPort {
    /// Writes them.
    pub producer: Arc<dyn Producer>,
    /// The topic.
    pub topic: String,
}

/// The streamer, wired.
pub struct App {
    config: Config,
    ports: Ports,
    /// The tables to be checked before anything is written; `None` where the ports are not over them.
    tables: Option<dynamodb::Connection>,
}

impl App {
    /// Over DynamoDB, Redis and Kafka, as `config` and the standard AWS variables say.
    ///
    /// # Errors
    /// An address that cannot be one.
    pub async fn new(config: Config) -> anyhow::Result<Self> {
        let settings =
            dynamodb::Settings { table_prefix: config.table_prefix.clone(), ..dynamodb::Settings::default() };
        let connection = dynamodb::Connection::open(&settings).await;
        let mut ports = Ports::over(&connection);
        ports.cache = config.cache.as_ref().map(|address| open_cache(address, &config.table_prefix)).transpose()?;
        ports.feed = match &config.feed {
            None => None,
            Some(feed) => {
                let producer = kafka::Producer::new(&feed.kafka);
                let producer = Arc::new(producer.context("cannot set up the change feed")?);
                Some(FeedPort { producer, topic: feed.topic.clone() })
            }
        };
        ports.changes = config.changes.as_ref().map(open_changes).transpose()?;
        Ok(Self { tables: Some(connection), ..Self::with_ports(config, ports) })
    }

    /// Over any ports.
    pub fn with_ports(config: Config, ports: Ports) -> Self {
        Self { config, ports, tables: None }
    }
}

impl Ports {
    /// The tables of `connection`, without a cache, a feed and a ledger of changes.
    pub fn over(connection: &dynamodb::Connection) -> Self {
        Self {
            stream: Arc::new(dynamodb::Streams::new(connection)),
            counts: Arc::new(dynamodb::Counts::new(connection)),
            checkpoints: Arc::new(dynamodb::Checkpoints::new(connection)),
            recounts: Arc::new(dynamodb::Recounts::new(connection)),
            cache: None,
            feed: None,
            changes: None,
        }
    }
}

fn open_changes(FeedConfig { kafka, topic }: &FeedConfig) -> anyhow::Result<ChangesPort> {
    const WHAT: &str = "cannot set up the ledger of changes";
    let producer = Arc::new(kafka::Producer::new(kafka).context(WHAT)?);
    let log = Arc::new(kafka::TopicReader::new(kafka, "tally-change-streamer", topic).context(WHAT)?);
    Ok(ChangesPort { producer, topic: topic.clone(), log })
}

fn open_cache(address: &CacheAddress, table_prefix: &str) -> anyhow::Result<Arc<dyn Cache>> {
    let nodes = address.nodes.iter().map(|node| node.expose().to_owned()).collect();
    let settings = redis::Settings {
        cluster: address.cluster,
        prefix: CachePrefix::of_tables(table_prefix),
        ..redis::Settings::at(nodes)
    };
    Ok(Arc::new(redis::Cache::new(&settings).context("cannot set up the cache")?))
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { config, ports, tables } = self;
        let (tables, checkpoints) = (tables.as_ref(), ports.checkpoints.clone());
        Deployment { tables, checkpoints, shards: config.shards }.create(&host).await?;
        if let Some(connection) = tables {
            host.wait_for("stream shards", Backoff::STORE, || dynamodb::Numbers::check(connection)).await?;
        }
        let stream = &ports.stream;
        let info =
            host.wait_for("stream", Backoff::STORE, || async { stream.info().await.map_err(Fault::from) }).await?;
        let ladder = ladder::raised(&host, &*ports.checkpoints, config.rules.milestones).await?;
        let (checkpoints, patience) = (&ports.checkpoints, patience(&host));
        let recording = ledger::joined(&host, checkpoints, ports.changes.as_ref(), &info.label, patience).await?;
        spawn(&host, &config.rules, &ports, info, Joined { ladder, recording });
        Ok(())
    }
}

/// How this process tries again; each fault is counted.
fn patience(host: &Host) -> Patience {
    Patience::new(host.clock(), host.chance().clone()).on_fault(|_, fault, _| metrics::faulted(fault))
}

/// What the deployment says that this process goes by.
struct Joined {
    ladder: Ladder,
    recording: Option<Recording>,
}

/// Starts the tasks.
fn spawn(host: &Host, rules: &Rules, ports: &Ports, info: StreamInfo, Joined { ladder, recording }: Joined) {
    let patience = patience(host);
    let (reports, reported) = Reports::new();
    let (pictures, known) = (watch::Sender::default(), watch::Sender::new(ladder));
    let stores = Stores::new(
        Arc::clone(&ports.counts),
        Arc::clone(&ports.recounts),
        Arc::clone(&ports.checkpoints),
        reports.clone(),
        patience.clone(),
        rules.concurrency,
        spawn_publishers(host, ports),
    );
    let applying = Applying {
        stores: Arc::new(stores),
        pictures: pictures.subscribe(),
        ladder: known.subscribe(),
        reports,
        rules: apply::Rules { cut: rules.cut, window: rules.window, concurrency: rules.concurrency },
        slots: Slots::default(),
    };
    let me = rules.lease.map(|_| Worker(format!("{:016x}", host.chance().token())));
    let readers = Readers {
        host: host.clone(),
        stream: Arc::clone(&ports.stream),
        patience: patience.clone(),
        poll: rules.poll,
        applying,
        recording,
        running: BTreeMap::new(),
    };
    let (mut machine, feeds) = (Shards::new(following(rules, me.as_ref()), info), readers.recording.is_some());
    if feeds {
        machine = machine.feeding();
        let (checkpoints, clock) = (Arc::clone(&ports.checkpoints), host.clock());
        host.spawn(Stage::Support, "lapses", DropLapses { checkpoints, clock });
    }
    let (stream, checkpoints) = (Arc::clone(&ports.stream), Arc::clone(&ports.checkpoints));
    let (clock, chance) = (host.clock(), host.chance().fork());
    let tell = Tell { checkpoints: Arc::clone(&checkpoints), stream: Arc::clone(&stream), clock, chance };
    host.spawn(Stage::Support, "tell", tell);
    let calls = Calls { stream, checkpoints, patience, feeds, me };
    let deployment = Arc::clone(&ports.checkpoints) as Arc<dyn DeploymentConfig>;
    host.spawn(Stage::Support, "ladder", FollowLadder { deployment, known, clock: host.clock() });
    host.spawn(Stage::Support, "follow", Follow::new(host.clone(), machine, calls, readers, reported, pictures));
}

/// How the stream is followed: a lease is renewed three times before it is stale, or more often.
fn following(rules: &Rules, me: Option<&Worker>) -> shards::Rules {
    let stale = rules.lease.unwrap_or(LOOK * 3);
    let sharing = me.map(|me| Sharing { me: me.clone(), stale });
    shards::Rules { sharing, look: LOOK.min(stale / 3), listing: rules.discover, unread: stale * 3 }
}

/// Starts the publishers; the queues that they empty.
fn spawn_publishers(host: &Host, ports: &Ports) -> Vec<LatestCounts> {
    let mut queues = Vec::new();
    let mut queue = |on_dropped: fn(usize)| {
        queues.push(LatestCounts::new(WAITING, on_dropped));
        queues[queues.len() - 1].clone()
    };
    let (clock, chance) = (host.clock(), host.chance().fork());
    if let Some(cache) = &ports.cache {
        let latest = queue(|dropped| metrics::cached("dropped", dropped));
        let destination = CacheUpdates(Arc::clone(cache));
        host.spawn(Stage::Output, "cache", Publisher::new(latest, destination, clock, chance.clone()));
    }
    if let Some(FeedPort { producer, topic }) = &ports.feed {
        let latest = queue(|dropped| metrics::fed("dropped", dropped));
        let destination = FeedTopic { producer: Arc::clone(producer), topic: topic.clone() };
        host.spawn(Stage::Output, "feed", Publisher::new(latest, destination, clock, chance));
    }
    queues
}

impl Program for App {
    type Args = Args;
    type Config = Config;
    const METRICS: &'static [Catalogue] = &[metrics::CATALOGUE];

    async fn build(config: Config) -> anyhow::Result<Self> {
        Self::new(config).await
    }

    fn environment(_: &Args) -> Invalid {
        dynamodb::environment()
    }
}
