//! Puts the streamer together: opens the clients that the configuration names, and starts the tasks of the relay, of
//! the fold and of a named Region. Production, the local stack and the tests run the same [`App`] over other ports.

use std::sync::Arc;

use anyhow::Context;
use tally_adapters::dynamodb::Checkpoints;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::cached::Cache;
use tally_core::ids::ShardCount;
use tally_core::ports::ChangeStream;
use tally_service::metrics::Catalogue;
use tally_service::{Host, Program, Stage};
use tokio::sync::watch;

use crate::args::{Args, Role, Settings};
use crate::fold::Folding;
use crate::ladder;
use crate::log::{LogPorts, group_of, joined, name_others};
use crate::metrics;
use crate::regions::{self, RegionPorts};
use crate::relay::Relaying;

/// The clients through which the streamer reaches the tables, the cache and Kafka.
#[derive(Clone)]
pub struct Ports {
    /// The change stream of the likes table.
    pub stream: Arc<dyn ChangeStream>,
    /// The other tables, which are checked before anything is written, and watched.
    pub tables: dynamodb::Connection,
    /// The cache, where there is one.
    pub cache: Option<Arc<dyn Cache>>,
    /// The log.
    pub log: LogPorts,
    /// The topics of Regions, where this one has a name.
    pub regions: Option<RegionPorts>,
}

/// The streamer: its settings, and the ports that it works on.
pub struct App {
    shards: Option<ShardCount>,
    settings: Settings,
    ports: Ports,
}

impl App {
    /// Takes any ports. `shards` is the number that the deployment must have, if one was given.
    pub fn with_ports(shards: Option<ShardCount>, settings: Settings, ports: Ports) -> Self {
        Self { shards, settings, ports }
    }
}

impl Ports {
    /// Returns ports over the tables of `connection` and a log, without a cache or Regions.
    pub fn over(connection: &dynamodb::Connection, log: LogPorts) -> Self {
        let stream = Arc::new(dynamodb::Streams::new(connection));
        Self { stream, tables: connection.clone(), cache: None, log, regions: None }
    }
}

impl LogPorts {
    /// Returns ports over a topic of a real Kafka, which `group` folds.
    ///
    /// # Errors
    /// Settings that a client does not take.
    pub fn over(
        kafka: &kafka::Settings,
        topic: &str,
        group: &str,
        connection: &dynamodb::Connection,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            topic: topic.to_owned(),
            producer: Arc::new(kafka::Producer::at_once(kafka)?),
            reader: Arc::new(kafka::TopicReader::new(kafka, "tally-change-streamer", topic)?),
            join: Arc::new(kafka::joining(kafka, group, topic, Some(connection))),
        })
    }
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { shards, settings: Settings { role, milestones, rules }, ports } = self;
        Deployment { tables: &ports.tables, shards }.create(&host).await?;
        let (changes, deployment) = (Arc::new(Changes::new(&ports.tables)), Checkpoints::new(&ports.tables));
        let patience = host.patience().on_fault(|_, fault, _| metrics::FAULTS.counter(&[fault.class()]).increment(1));
        let log = joined(&host, &changes, &ports.log).await?;
        let ladder = ladder::raised(&host, &deployment, milestones.unwrap_or_default()).await?;
        if role != Role::Fold {
            name_others(&host, &log, &ports.log).await?;
            let known = watch::Sender::new(ladder);
            let relaying = Relaying {
                stream: Arc::clone(&ports.stream),
                store: Arc::clone(&changes),
                producer: Arc::clone(&ports.log.producer),
                topic: ports.log.topic.as_str().into(),
                partitions: log.partitions,
                deployment: log.deployment.clone(),
                rules,
                ladder: known.subscribe(),
            };
            relaying.spawn(&host, &patience);
            let clock = host.clock();
            host.spawn(Stage::Support, "ladder", move |stop| ladder::follow(deployment, known, clock, stop));
        }
        if role != Role::Relay {
            let publishing = match ports.regions {
                Some(topics) => Some(regions::begin(&host, topics, &ports.tables, &log, &patience).await?),
                None => None,
            };
            let intake = (ports.log.join)().context("cannot join the group")?;
            let (counters, publishing) = (Arc::new(Counters::new(&ports.tables)), publishing.map(Arc::new));
            let (cache, store, deployment) = (ports.cache, changes, log.deployment);
            Folding { counters, cache, store, deployment, rules, publishing }.spawn(intake, &host, &patience);
        }
        Ok(())
    }
}

impl Program for App {
    type Args = Args;
    const METRICS: &'static [Catalogue] = &[metrics::CATALOGUE];

    async fn build(args: Args) -> anyhow::Result<Self> {
        let Args { store, kafka, cache, changes, likes, settings, regions, .. } = args;
        let (kafka, prefix) = (kafka.settings()?, &store.table_prefix);
        let cache = cache.settings(prefix)?;
        let (connection, group) = (dynamodb::Connection::open(&dynamodb::Settings::of(&store)).await, group_of(prefix));
        let log = LogPorts::over(&kafka, &changes.changes_topic, &group, &connection);
        let mut ports = Ports::over(&connection, log.context("cannot set up the log of changes")?);
        ports.cache = cache.map(|cache| cache.open()).transpose().context("cannot set up the cache")?;
        let regions = RegionPorts::over(&kafka, &regions, &likes.topic, &group);
        ports.regions = regions.context("cannot set up the topics of Regions")?;
        Ok(Self { shards: store.shards, settings, ports })
    }
}
