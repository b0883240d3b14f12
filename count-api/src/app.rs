//! The composition root: real adapters or others, the read path, the routes behind their gates, and the tasks.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::Router;
use axum::http::{HeaderName, HeaderValue, Method, header};
use tally_adapters::{dynamodb, kafka, redis};
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::{CachePrefix, ShardCount};
use tally_core::ports::{Cache, ChangeStream, Checkpoints, Counts, Producer, Recounts, Rows};
use tally_service::metrics::Catalogue;
use tally_service::{Host, Program, Stage, http};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::access::{Access, REQUEST_ID};
use crate::args::Args;
use crate::auth::Guard;
use crate::config::{CacheAddress, Config};
use crate::limits::{Forgetting, Rate};
use crate::metrics::{Layers, METRICS, Requests};
use crate::read::{Fills, FollowStanding, Layer, Layered, Local, Negatives, Reader, Source, Table};
use crate::routes::{Api, Front, Gates, Outlet, Parts, front};
use crate::server::Server;
use crate::watch::{Watcher, Watches};

/// How long browsers may remember whose pages may ask.
const PREFLIGHT: Duration = Duration::from_secs(600);

/// What the API reads and writes through.
#[derive(Clone)]
pub struct Ports {
    /// The counts table.
    pub counts: Arc<dyn Counts>,
    /// The likes table.
    pub rows: Arc<dyn Rows>,
    /// Open gaps, and how far the stream is applied.
    pub checkpoints: Arc<dyn Checkpoints>,
    /// Which stream that is.
    pub stream: Arc<dyn ChangeStream>,
    /// Where recounts are asked for.
    pub recounts: Arc<dyn Recounts>,
    /// The shared cache; none is a supported way to run.
    pub cache: Option<Arc<dyn Cache>>,
    /// Where events are written; with none, no writes are taken.
    pub producer: Option<Arc<dyn Producer>>,
}

impl Ports {
    /// The tables of `connection`, without a cache and without writes.
    pub fn over(connection: &dynamodb::Connection) -> Self {
        Self {
            counts: Arc::new(dynamodb::Counts::new(connection)),
            // Rows are only read here, and whoever reads one says in which shard it is.
            rows: Arc::new(dynamodb::Rows::new(connection)),
            checkpoints: Arc::new(dynamodb::Checkpoints::new(connection)),
            stream: Arc::new(dynamodb::Streams::new(connection)),
            recounts: Arc::new(dynamodb::Recounts::new(connection)),
            cache: None,
            producer: None,
        }
    }
}

/// The API, wired.
pub struct App {
    config: Config,
    ports: Ports,
    listener: Option<TcpListener>,
    in_process: Option<oneshot::Sender<Front>>,
    own: Router,
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
        ports.producer = config.kafka.as_ref().map(open_producer).transpose()?;
        Ok(Self::with_ports(config, ports))
    }

    /// Over any ports; those decide whether there is a cache and whether writes are taken.
    pub fn with_ports(config: Config, ports: Ports) -> Self {
        Self { config, ports, listener: None, in_process: None, own: Router::new() }
    }

    /// Serves on `listener` instead of one of its own.
    #[must_use]
    pub fn listening_on(self, listener: TcpListener) -> Self {
        Self { listener: Some(listener), ..self }
    }

    /// Listens nowhere: the routes are sent once the app has started, for requests of the same process. Sockets and paused
    /// time do not go together.
    #[must_use]
    pub fn in_process(self) -> (Self, oneshot::Receiver<Front>) {
        let (sender, front) = oneshot::channel();
        (Self { in_process: Some(sender), ..self }, front)
    }

    /// Serves `own` routes as well, behind the same limits.
    #[must_use]
    pub fn with_routes(self, own: Router) -> Self {
        Self { own, ..self }
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

fn open_producer(settings: &kafka::Settings) -> anyhow::Result<Arc<dyn Producer>> {
    let producer = kafka::Producer::new(settings);
    Ok(Arc::new(producer.context("cannot set up writing to Kafka")?))
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Self { config, ports, mut listener, in_process, own } = self;
        if listener.is_none() && in_process.is_none() {
            listener = Some(http::bind("listen", config.listen).await?);
        }
        let source = Source { checkpoints: ports.checkpoints.clone(), stream: ports.stream.clone() };
        let standing = FollowStanding::begin(source, &host).await?;
        let view = standing.view();
        host.spawn(Stage::Support, "standing", standing);
        let shards = deployed_shards(&config, &ports, &host).await?;

        let table = Arc::new(Table::new(config.table));
        let layer = ports.cache.clone().map(|cache| Layer::new(cache, config.cache_budget));
        let (fills, filler) = Fills::new(layer.clone());
        let (negatives, recounter) = Negatives::new(ports.counts.clone(), ports.recounts.clone(), host.clock());
        let layered = Layered {
            cache: layer,
            fills,
            table: Arc::clone(&table),
            counts: ports.counts.clone(),
            standing: view,
            negatives,
            layers: Layers::default(),
        };
        let (reader, readings) = Reader::new(Local::new(config.local_posts, config.local_ttl), layered);
        let watches = Watches::new(config.listeners);
        let watcher = Watcher { watches: watches.clone(), reader: reader.clone(), clock: host.clock() };
        let gates = gates(&config, &host);
        let forgetting =
            Forgetting { rates: vec![gates.read_rate.clone(), gates.write_rate.clone()], clock: host.clock() };
        let api = Api::from(Parts {
            reader,
            table,
            rows: ports.rows,
            shards,
            watches,
            heartbeat: config.heartbeat,
            cache_control: cache_control(config.max_age, gates.readers.is_closed()),
            outlet: ports.producer.map(|producer| Outlet::new(producer, config.write, shards, host.clock())),
            stop: host.stop(),
        });
        let writes = api.outlet.is_some();
        let front = front(api, gates, own);

        host.spawn(Stage::Support, "forgetting", forgetting);
        host.spawn(Stage::Output, "filler", filler);
        host.spawn(Stage::Output, "readings", readings);
        host.spawn(Stage::Output, "recounter", recounter);
        host.spawn(Stage::Work, "watcher", watcher);
        if let Some(in_process) = in_process {
            // A receiver that is gone has no requests.
            let _ = in_process.send(front.clone());
        }
        if let Some(listener) = listener {
            tracing::info!(address = %listener.local_addr()?, writes, "listening");
            host.spawn(Stage::Intake, "server", Server::new(listener, front, config.limits));
        }
        Ok(())
    }
}

impl Program for App {
    type Args = Args;
    type Config = Config;
    const METRICS: Catalogue = METRICS;

    async fn build(config: Config) -> anyhow::Result<Self> {
        Self::new(config).await
    }
}

/// How many shards a post has: what the deployment was created with. That is for those who write: a process that reads
/// waits until one of them has.
async fn deployed_shards(config: &Config, ports: &Ports, host: &Host) -> anyhow::Result<ShardCount> {
    let deployed = || async {
        let not_yet = || Fault::Transient("no consumer has created this deployment yet".to_owned());
        ports.checkpoints.deployed().await?.ok_or_else(not_yet)
    };
    let created = host.wait_for("deployment", Backoff::STORE, deployed).await?;
    if let Some(told) = config.shards {
        ensure!(told == created, "--shards is {told}, but this deployment was created with {created}");
    }
    Ok(created)
}

fn gates(config: &Config, host: &Host) -> Gates {
    Gates {
        access: Access { chance: host.chance().fork(), requests: Arc::new(Requests::default()) },
        readers: Guard::new(config.tokens.read.clone()),
        writers: Guard::new(config.tokens.write.clone()),
        read_rate: Rate::new(config.read_rate, config.forwarded_hops),
        write_rate: Rate::new(config.write_rate, config.forwarded_hops),
        cors: config.cors.clone().map(cors),
    }
}

fn cors(origins: AllowOrigin) -> CorsLayer {
    let last_event_id = HeaderName::from_static("last-event-id");
    CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, header::IF_NONE_MATCH, last_event_id])
        .expose_headers([header::ETAG, header::RETRY_AFTER, REQUEST_ID.clone()])
        .max_age(PREFLIGHT)
}

/// How long whoever stands between may keep a count; only a browser of its own where reading takes a token.
fn cache_control(max_age: Duration, closed: bool) -> HeaderValue {
    let whose = if closed { "private" } else { "public" };
    let kept = match max_age.as_secs() {
        0 => "no-cache".to_owned(),
        seconds => format!("{whose}, max-age={seconds}"),
    };
    HeaderValue::from_str(&kept).expect("words and digits make a header")
}
