//! The composition root: which adapter serves which port, and which task does what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use tally_adapters::{dynamodb, kafka, redis};
use tally_core::apply;
use tally_core::backoff::Backoff;
use tally_core::ids::CachePrefix;
use tally_core::ports::{Cache, ChangeStream, Checkpoints, Counts, Producer, Recounts, StreamInfo, Worker};
use tally_service::metrics::Catalogue;
use tally_service::{Host, Patience, Program, Stage};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::applier::Applying;
use crate::args::Args;
use crate::cache::CacheUpdates;
use crate::closing::Closing;
use crate::config::{CacheAddress, Config, Rules};
use crate::directory::Directory;
use crate::feed::FeedTopic;
use crate::follow::{Follow, Handover, Held, Sharing, Tools};
use crate::gaps::Gaps;
use crate::latest::LatestCounts;
use crate::leases::Beats;
use crate::metrics;
use crate::publisher::Publisher;
use crate::registry::{Registry, fault};
use crate::slots::Slots;
use crate::stores::Stores;
use crate::view::View;
use crate::watchdog::Watchdog;

/// Posts that may wait for the cache, or for the feed, before the oldest is dropped.
const WAITING: usize = 100_000;

/// Between two looks at the shards where there are no leases to renew.
const LONE_BEAT: Duration = Duration::from_secs(2);

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
        Ok(Self { tables: Some(connection), ..Self::with_ports(config, ports) })
    }

    /// Over any ports.
    pub fn with_ports(config: Config, ports: Ports) -> Self {
        Self { config, ports, tables: None }
    }
}

impl Ports {
    /// The tables of `connection`, without a cache and a feed.
    pub fn over(connection: &dynamodb::Connection) -> Self {
        Self {
            stream: Arc::new(dynamodb::Streams::new(connection)),
            counts: Arc::new(dynamodb::Counts::new(connection)),
            checkpoints: Arc::new(dynamodb::Checkpoints::new(connection)),
            recounts: Arc::new(dynamodb::Recounts::new(connection)),
            cache: None,
            feed: None,
        }
    }
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
        if let Some(connection) = &tables {
            host.wait_for("tables", Backoff::STORE, || dynamodb::check_tables(connection)).await?;
        }
        let created = host.wait_for("checkpoints", Backoff::STORE, || ports.checkpoints.config(config.shards)).await?;
        if let Some(told) = config.shards {
            ensure!(told == created, "--shards is {told}, but this deployment was created with {created}");
        }
        let stream = &ports.stream;
        let info = host.wait_for("stream", Backoff::STORE, || async { stream.info().await.map_err(fault) }).await?;
        spawn(&host, &config.rules, &ports, info);
        Ok(())
    }
}

/// How this process tries again; each fault is counted.
fn patience(host: &Host) -> Patience {
    Patience::new(host.clock(), host.chance().clone()).on_fault(|_, fault, _| metrics::faulted(fault))
}

/// Starts the tasks.
fn spawn(host: &Host, rules: &Rules, ports: &Ports, info: StreamInfo) {
    let (view, patience) = (View::default(), patience(host));
    let gaps = Gaps { checkpoints: Arc::clone(&ports.checkpoints), view, patience: patience.clone() };
    let (born, births) = mpsc::channel(1024);
    let directory = Directory::new(Arc::clone(&ports.stream));
    let closing = Closing {
        directory: directory.clone(),
        checkpoints: Arc::clone(&ports.checkpoints),
        patience: patience.clone(),
        born,
    };
    let stores = Stores::new(
        Arc::clone(&ports.counts),
        Arc::clone(&ports.recounts),
        gaps.clone(),
        rules.concurrency,
        spawn_publishers(host, ports),
    );
    let applying = Applying {
        stores: Arc::new(stores),
        view: gaps.view.clone(),
        closing,
        rules: apply::Rules { cut: rules.cut, window: rules.window, concurrency: rules.concurrency },
        slots: Slots::default(),
    };
    let stream = Arc::clone(&ports.stream);
    let registry = Registry::new(stream, directory, gaps.clone(), host.clock(), rules.discover, info);
    let sharing = rules.lease.map(|stale| {
        let sharing = Sharing { me: Worker(format!("{:016x}", host.chance().token())), stale, held: Held::default() };
        let handover = Handover {
            me: sharing.me.clone(),
            held: sharing.held.clone(),
            checkpoints: Arc::clone(&ports.checkpoints),
            patience: patience.clone(),
        };
        host.spawn(Stage::Support, "handover", handover);
        sharing
    });
    let stale = rules.lease.unwrap_or(LONE_BEAT * 3);
    let follow = Follow {
        host: host.clone(),
        registry,
        checkpoints: Arc::clone(&ports.checkpoints),
        tools: Tools { stream: Arc::clone(&ports.stream), gaps, poll: rules.poll, applying },
        sharing,
        beat: stale / 3,
        born: births,
        watchdog: Watchdog::new(stale * 3),
        beats: Beats::default(),
        running: BTreeMap::new(),
        gone: BTreeSet::new(),
        origin: Instant::now(),
    };
    host.spawn(Stage::Intake, "follow", follow);
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
    const METRICS: Catalogue = metrics::CATALOGUE;

    async fn build(config: Config) -> anyhow::Result<Self> {
        Self::new(config).await
    }
}
