//! Puts together the process that serves counts over HTTP. [`App`] opens its adapters, or gets those of the local stack
//! or a test, builds the read path, puts the routes behind their gates, and starts the tasks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::Router;
use axum::http::{HeaderName, Method, header};
use tally_adapters::dynamodb::Rows;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::kafka::Spreading;
use tally_adapters::{Deployment, dynamodb, kafka};
use tally_core::cached::Cache;
use tally_core::ids::ShardCount;
use tally_core::ports::{Producer, TopicReader};
use tally_service::http::Reserved;
use tally_service::metrics::Catalogue;
use tally_service::{Host, Invalid, Program, Stage};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::access::{Access, REQUEST_ID};
use crate::args::{Args, Config};
use crate::auth::Guard;
use crate::caching::Caching;
use crate::definitions::FollowDefinitions;
use crate::limits::{Gate, Rate};
use crate::metrics::{CATALOGUE, Requests};
use crate::milestones::Milestones;
use crate::partitions::{FollowPartitions, Topics};
use crate::read::Reader;
use crate::routes::{EventWriter, Front, Gates, Handles, front};
use crate::server::{Server, lowered};
use crate::tops::Tops;
use crate::watch::Watches;

/// How long browsers may remember which origins are allowed.
const PREFLIGHT: Duration = Duration::from_secs(600);

/// The name under which topics are read; the reader joins no group and commits nothing.
const READER: &str = "tally-count-api";

/// The adapters that the API reads and writes through.
#[derive(Clone)]
pub struct Ports {
    /// The tables, which are checked and watched.
    pub tables: dynamodb::Connection,
    /// The shared cache. The API runs without one, too.
    pub cache: Option<Arc<dyn Cache>>,
    /// The writer to Kafka; `None` refuses writes.
    pub producer: Option<Arc<dyn Producer>>,
}

impl Ports {
    /// The tables of `connection`, without a cache, refusing writes.
    pub fn over(connection: &dynamodb::Connection) -> Self {
        Self { tables: connection.clone(), cache: None, producer: None }
    }
}

/// The API, before it starts.
pub struct App {
    /// The number of shards that the deployment must have, if one was given.
    pub shards: Option<ShardCount>,
    pub config: Config,
    pub ports: Ports,
    /// The listener to serve on. Without one, the app binds `--listen`.
    pub listener: Option<TcpListener>,
    /// Receives the routes once the app has started, see [`in_process`](Self::in_process).
    pub in_process: Option<oneshot::Sender<Front>>,
    /// Routes to serve as well, behind the same limits.
    pub own: Router,
    /// Whether to answer only programs and pages of its own host, and only if that host is certainly this machine. It is
    /// for a process on a person's machine, whose browser has other pages open.
    pub own_pages: bool,
    /// Chooses the partitions that events of sums go to.
    pub spreading: Spreading,
    /// How to read topics and their partitions; `None` if another part of the process does that.
    pub partitions: Option<Topics>,
    /// The topic of boards, from which lists are answered.
    pub boards: Option<Arc<dyn TopicReader>>,
    /// The topic of ids that lists leave out.
    pub blocks: Option<Arc<dyn TopicReader>>,
}

impl App {
    /// Uses these adapters, which decide whether there is a cache and whether writes are accepted.
    /// `shards` is the number that the deployment must have, if one was given.
    pub fn with_ports(shards: Option<ShardCount>, config: Config, ports: Ports) -> Self {
        Self {
            shards,
            spreading: Spreading::new(config.sum_policy),
            config,
            ports,
            listener: None,
            in_process: None,
            own: Router::new(),
            own_pages: false,
            partitions: None,
            boards: None,
            blocks: None,
        }
    }

    /// Listens nowhere, and sends the routes once the app has started, for requests of the same process. Sockets do not
    /// work with paused time.
    #[must_use]
    pub fn in_process(self) -> (Self, oneshot::Receiver<Front>) {
        let (sender, front) = oneshot::channel();
        (Self { in_process: Some(sender), ..self }, front)
    }
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let listener = self.listener;
        let reserves = listener.is_none() && self.in_process.is_none();
        let reserved = reserves.then(|| Reserved::new("listen", self.config.listen)).transpose()?;
        let (config, ports) = (self.config, self.ports);
        let shards = Deployment { tables: &ports.tables, shards: self.shards }.join(&host).await?;
        let definitions = FollowDefinitions::begin(&ports.tables, &config.likes.topic, &host).await?;
        let (defined, topic) = (definitions.defined(), config.likes.topic.clone());
        let defined_too = definitions.defined();
        let (watch, claims) = (ports.tables.tables_watch(), Claims::new(&ports.tables, host.clock()));
        let whole = Arc::new(move || watch.is_whole());
        let reader = Reader::open(&config, &ports.tables, ports.cache, shards, definitions, whole, &host).await?;
        let (table, standings) = (reader.gate(), reader.standings().clone());

        let milestones = Milestones::over(&ports.tables, &table, &standings);
        let watches = Watches::new(config.listeners, standings);
        let (watched, watching, clock) = (watches.clone(), reader.clone(), host.clock());
        let given = listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let address = reserved.as_ref().map(Reserved::address).or(given);
        let gates = gates(&config, self.own_pages, address, &host)?;
        [&gates.reads, &gates.writes].iter().for_each(|gate| gate.guard.follow(&host));
        if !gates.admin.guard.shares(&gates.writes.guard) {
            gates.admin.guard.follow(&host);
        }
        [&gates.reads, &gates.writes].iter().for_each(|gate| gate.rate.follow(&host));
        let api = Arc::new(Handles {
            reader,
            table,
            rows: Rows::new(&ports.tables),
            shards,
            defined: defined_too.clone(),
            watches,
            milestones,
            heartbeat: config.heartbeat,
            caching: Caching::new(config.max_age, config.fresh_within, gates.reads.guard.is_closed()),
            writer: ports
                .producer
                .map(|producer| EventWriter::new(producer, &config, defined_too, self.spreading.clone(), &host)),
            stop: host.stop(),
            clock: host.clock(),
            tops: self.boards.map(|boards| Tops::follow(boards, self.blocks, ports.tables.deployment(), &host)),
        });
        let writes = api.writer.is_some() && !matches!(gates.writes.guard, Guard::Shut);
        let front = front(api, gates, self.own);

        if let Some(topics) = self.partitions {
            let (spreading, readers, readiness) = (self.spreading, BTreeMap::new(), host.readiness().clone());
            let follow = FollowPartitions { topics, claims, spreading, defined, topic, clock, readiness, readers };
            host.spawn(Stage::Support, "partitions", follow);
        }
        host.spawn(Stage::Work, "watcher", move |stop| watched.follow(watching, clock, stop));
        if let Some(in_process) = self.in_process {
            // The receiver may be gone; then it has no requests.
            let _ = in_process.send(front.clone());
        }
        // Until here, connections were refused.
        if let Some(listener) = reserved.map(Reserved::listen).transpose()?.or(listener) {
            tracing::info!(address = %listener.local_addr()?, writes, "listening");
            let limits = lowered(config.limits, tally_service::open_files());
            host.spawn(Stage::Intake, "server", Server::new(listener, front, limits));
        }
        Ok(())
    }
}

impl Program for App {
    type Args = Args;
    const METRICS: &'static [Catalogue] = &[CATALOGUE];

    async fn build(Args { store, kafka, cache, api: config, .. }: Args) -> anyhow::Result<Self> {
        let (kafka, cache) = (kafka.optional()?, cache.settings(&store.table_prefix)?);
        let connection = dynamodb::Connection::open(&dynamodb::Settings::of(&store)).await;
        let mut ports = Ports::over(&connection);
        ports.cache = cache.map(|cache| cache.open()).transpose().context("cannot set up the cache")?;
        let producer = kafka.as_ref().map(kafka::Producer::new).transpose();
        ports.producer = producer.context("cannot set up writing to Kafka")?.map(|producer| Arc::new(producer) as _);
        let reader = |topic: &Option<String>| {
            let topic = topic.as_deref().zip(kafka.as_ref());
            let reader = topic.map(|(topic, settings)| kafka::TopicReader::new(settings, READER, topic)).transpose();
            Ok::<_, anyhow::Error>(reader.context("cannot set up reading lists")?.map(|reader| Arc::new(reader) as _))
        };
        let (boards, blocks) = (reader(&config.boards.boards_topic)?, reader(&config.blocks.blocks_topic)?);
        let partitions = kafka.map(|settings| -> Topics {
            Arc::new(move |topic| Ok(Arc::new(kafka::TopicReader::new(&settings, READER, topic)?) as Arc<_>))
        });
        Ok(Self { partitions, boards, blocks, ..Self::with_ports(store.shards, config, ports) })
    }
}

/// Returns the rates and tokens that `config` asks for. A process that listens only on this machine answers only
/// programs and pages of it or of the origins that `config` names, unless there is a token or a proxy.
fn gates(config: &Config, own_pages: bool, address: Option<SocketAddr>, host: &Host) -> anyhow::Result<Gates> {
    let mut invalid = Invalid::none();
    let ([read, write, admin], cors) = (config.tokens(&mut invalid), config.cors().map_err(anyhow::Error::msg)?);
    ensure!(invalid.is_empty(), invalid);
    let is_local = address.is_some_and(|address| address.ip().is_loopback()) && read.is_none() && write.is_none();
    let origins = || config.cors_origins.iter().map(|origin| origin.trim().to_owned()).collect();
    let own_pages = (own_pages || is_local && config.forwarded_hops == 0).then(origins);
    let gate = |rate, tokens| Gate { rate: Rate::new(rate, config.forwarded_hops), guard: Guard::new(tokens) };
    let mut writes = gate(config.write_rate, write);
    if !writes.guard.is_closed() {
        if !config.open_writes {
            writes.guard = Guard::Shut;
        } else if !is_local || config.forwarded_hops > 0 {
            tracing::warn!(
                "--open-writes lets every caller like and unlike in the name of any user: set --write-token-file"
            );
        }
    }
    // An administrator's request counts towards its client's rate of writes.
    let admin = admin.map(|tokens| Guard::new(Some(tokens)));
    let admin = Gate { guard: admin.unwrap_or_else(|| writes.guard.clone()), ..writes.clone() };
    Ok(Gates {
        access: Access { chance: host.chance().fork(), requests: Arc::new(Requests::default()) },
        reads: gate(config.read_rate, read),
        writes,
        admin,
        own_pages,
        cors: cors.map(allowing),
    })
}

fn allowing(origins: AllowOrigin) -> CorsLayer {
    let last_event_id = HeaderName::from_static("last-event-id");
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, header::IF_NONE_MATCH, last_event_id])
        .expose_headers([header::ETAG, header::RETRY_AFTER, REQUEST_ID.clone()])
        .max_age(PREFLIGHT)
}
