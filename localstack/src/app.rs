//! The composition root: engines, services, load, page, and the tasks that watch over them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tally_adapters::{dynamodb, kafka};
use tally_core::backoff::Backoff;
use tally_core::ids::ShardCount;
use tally_core::ports::{Checkpoints as _, Producer, Recounts};
use tally_service::metrics::Catalogue;
use tally_service::{Clock, Host, Program, Stage, Stop};

use crate::args::Args;
use crate::chaos::Chaos;
use crate::config::{Config, LoadConfig};
use crate::control::Control;
use crate::engine::{Engines, TOPIC};
use crate::fences;
use crate::gate::{Gate, Gated};
use crate::ledger::Ledger;
use crate::load::Speaker;
use crate::names::Names;
use crate::observe::{Board, Observer, View};
use crate::page::{self, Endpoints};
use crate::screen::Screen;
use crate::services::{Plan, Services};
use crate::session::{Saying, Session};
use crate::stack::LocalStack;
use crate::staleness::Staleness;
use crate::verify::Verify;

/// How much of a partition may be unread while the load still writes, and while likes over HTTP are still taken: both
/// far below the 5 MiB at which the embedded Kafka begins to trim.
const LOAD_BYTES: u64 = 256 << 10;
const HTTP_BYTES: u64 = 1 << 20;

/// The local stack, ready to start.
pub struct App {
    config: Config,
}

impl App {
    /// With its ports taken, and nothing else.
    pub fn new(config: Config) -> Self {
        Self { config }
    }
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let Config { engines, shards, api, load, duration, verify, chaos, seed, recount_every } = self.config;
        let engines = Arc::new(Engines::open(engines, &host).await?);
        // Services that only read would wait for those that write to say how many shards there are.
        let checkpoints = dynamodb::Checkpoints::new(&engines.store.connection);
        host.wait_for("deployment", Backoff::STORE, || checkpoints.config(shards)).await?;
        let parts = Parts::new(&engines, api.local_addr()?, load, &host);
        let board = parts.watch(load, &host);
        parts.screen.say(&banner(&board.snapshot().endpoints, &engines, load, chaos));
        let producer = kafka::Producer::new(&engines.kafka.settings)?;
        let of_load = match engines.kafka.embedded {
            Some(_) => kafka::Producer::gathering(&engines.kafka.settings)?,
            None => producer.clone(),
        };
        let plan = Plan {
            shards,
            listener: api,
            routes: page::routes(Arc::new(parts.stack(&board, load.is_some())), host.stop()),
            producer: parts.gated(&producer, HTTP_BYTES),
        };
        parts.services.start(&engines, plan, &host)?;
        if let Some(every) = recount_every {
            let (recounts, clock) = (Arc::clone(&parts.recounts), host.clock());
            host.spawn(Stage::Output, "recount timer", move |stop| remind(recounts, clock, every, stop));
        }
        let session = Session {
            host: host.clone(),
            services: parts.services.clone(),
            screen: parts.screen.clone(),
            board,
            staleness: Arc::clone(&parts.staleness),
            saying: load.map(|config| parts.saying(config, seed, &of_load, &host)),
            api: parts.api,
            chaos: if chaos { parts.chaos(seed) } else { None },
            duration,
            verify: verify.then(|| parts.verify()),
        };
        host.job("session", move |stop| session.run(stop));
        Ok(())
    }
}

/// What load, watchers and page share.
struct Parts {
    engines: Arc<Engines>,
    services: Services,
    api: SocketAddr,
    gate: Arc<Gate>,
    names: Arc<Names>,
    ledger: Arc<Ledger>,
    applied: Arc<AtomicU64>,
    staleness: Arc<Staleness>,
    control: Control,
    injected: Arc<AtomicU64>,
    recounts: Arc<dyn Recounts>,
    clock: Clock,
    screen: Screen,
}

impl Parts {
    fn new(engines: &Arc<Engines>, api: SocketAddr, load: Option<LoadConfig>, host: &Host) -> Self {
        let partitions = engines.kafka.partitions;
        let run = format!("{:08x}", host.chance().token() >> 32);
        let run = (!engines.are_embedded()).then_some(run.as_str());
        let names = match load {
            Some(LoadConfig { posts, users, .. }) => Names::new(posts, users, partitions, run),
            None => Names::new(0, 0, 0, run),
        };
        Self {
            services: Services::new(host),
            api,
            gate: Arc::new(Gate::new(partitions)),
            ledger: Arc::new(Ledger::new(names.posts().len(), names.users())),
            names: Arc::new(names),
            applied: Arc::default(),
            staleness: Arc::default(),
            control: Control::default(),
            injected: Arc::default(),
            recounts: Arc::new(dynamodb::Recounts::new(&engines.store.connection)),
            clock: host.clock(),
            screen: Screen::new(),
            engines: Arc::clone(engines),
        }
    }

    /// Starts the tasks that look at the pipeline.
    fn watch(&self, load: Option<LoadConfig>, host: &Host) -> Board {
        let connection = &self.engines.store.connection;
        let follow = fences::Follow {
            // Fences are only read here, and those of all shards are the same.
            rows: Arc::new(dynamodb::Likes::new(connection, ShardCount::DEFAULT)),
            topic: TOPIC.to_owned(),
            gate: Arc::clone(&self.gate),
            applied: Arc::clone(&self.applied),
            clock: self.clock,
        };
        host.spawn(Stage::Support, "fences", follow);
        let (observer, board) = Observer::new(View {
            clock: self.clock,
            endpoints: Endpoints {
                kafka: self.engines.kafka.bootstrap.clone(),
                dynamodb: self.engines.store.url.clone(),
                api: format!("http://{}", self.api),
            },
            rate: load.map_or(0, |load| load.rate.into()),
            control: self.control.clone(),
            names: Arc::clone(&self.names),
            ledger: Arc::clone(&self.ledger),
            applied: Arc::clone(&self.applied),
            staleness: Arc::clone(&self.staleness),
            services: self.services.clone(),
            cache: self.engines.cache.clone(),
            emulator: self.engines.store.emulator.clone(),
            likes: connection.tables().likes.clone(),
            stream: Arc::new(dynamodb::Streams::new(connection)),
            checkpoints: Arc::new(dynamodb::Checkpoints::new(connection)),
            recounts: Arc::clone(&self.recounts),
        });
        host.spawn(Stage::Support, "observer", observer);
        board
    }

    /// Writes to Kafka while less than `limit` bytes of a partition are unread.
    fn gated(&self, producer: &kafka::Producer, limit: u64) -> Arc<dyn Producer> {
        Arc::new(Gated { producer: producer.clone(), gate: Arc::clone(&self.gate), limit })
    }

    fn saying(&self, config: LoadConfig, seed: u64, producer: &kafka::Producer, host: &Host) -> Saying {
        let speaker = Speaker {
            producer: self.gated(producer, LOAD_BYTES),
            topic: TOPIC.to_owned(),
            names: Arc::clone(&self.names),
            ledger: Arc::clone(&self.ledger),
            clock: self.clock,
            chance: host.chance().fork(),
        };
        Saying { speaker, config, control: self.control.clone(), seed }
    }

    fn chaos(&self, seed: u64) -> Option<Chaos> {
        Some(Chaos {
            emulator: self.engines.store.emulator.clone()?,
            likes: self.engines.store.connection.tables().likes.clone(),
            services: self.services.clone(),
            cache: self.engines.cache.clone(),
            recounts: Arc::clone(&self.recounts),
            clock: self.clock,
            seed,
        })
    }

    fn verify(&self) -> Verify {
        let connection = &self.engines.store.connection;
        Verify {
            names: Arc::clone(&self.names),
            ledger: Arc::clone(&self.ledger),
            gate: Arc::clone(&self.gate),
            // Rows are only read here.
            rows: Arc::new(dynamodb::Likes::new(connection, ShardCount::DEFAULT)),
            counts: Arc::new(dynamodb::Counts::new(connection)),
            checkpoints: Arc::new(dynamodb::Checkpoints::new(connection)),
            stream: Arc::new(dynamodb::Streams::new(connection)),
            recounts: Arc::clone(&self.recounts),
            injected: Arc::clone(&self.injected),
            emulator: self.engines.store.emulator.clone(),
            api: self.api,
            clock: self.clock,
            screen: self.screen.clone(),
        }
    }

    fn stack(&self, board: &Board, load: bool) -> LocalStack {
        let (store, tables) = (&self.engines.store, self.engines.store.connection.tables());
        LocalStack {
            board: board.clone(),
            control: load.then(|| self.control.clone()),
            services: self.services.clone(),
            cache: self.engines.cache.clone(),
            emulator: store.emulator.clone(),
            store: store.address,
            likes: tables.likes.clone(),
            counters: tables.counts.clone(),
            counts: Arc::new(dynamodb::Counts::new(&store.connection)),
            recounts: Arc::clone(&self.recounts),
            clock: self.clock,
            injected: Arc::clone(&self.injected),
        }
    }
}

/// Asks for a recount of everything, again and again.
async fn remind(recounts: Arc<dyn Recounts>, clock: Clock, every: Duration, stop: Stop) -> anyhow::Result<()> {
    loop {
        stop.unless_requested(clock.sleep(every)).await?;
        // One that cannot be asked for now is asked for the next time.
        let _ = stop.unless_requested(recounts.enqueue_audit(clock.now())).await?;
    }
}

/// What people read first.
fn banner(endpoints: &Endpoints, engines: &Engines, load: Option<LoadConfig>, chaos: bool) -> String {
    let Endpoints { kafka, dynamodb, api } = endpoints;
    let gone = if engines.are_embedded() { ", gone when it ends" } else { "" };
    let kept = if engines.kafka.embedded.is_some() { "; keeps 5 MiB of a partition" } else { "" };
    let load = match load {
        None => "none: like something on the page".to_owned(),
        Some(LoadConfig { rate, posts, users, .. }) => {
            format!(
                "up to {rate} events/s about {posts} posts by {users} users; it holds back where rows do not keep up"
            )
        }
    };
    let chaos = if chaos { "\n  chaos      on: requests fail, stream shards split, services are killed" } else { "" };
    format!(
        "tally: the whole pipeline on this machine{gone}\n\n  \
         page       {api}/\n  \
         API        {api}/v1/posts/post-1/likes   docs at {api}/docs\n  \
         Kafka      {kafka}   topic {TOPIC}, keyed by post id, murmur2{kept}\n  \
         DynamoDB   {dynamodb}\n  \
         load       {load}{chaos}\n"
    )
}

impl Program for App {
    type Args = Args;
    type Config = Config;
    /// Those of the four services.
    const METRICS: Catalogue = Catalogue(&[]);

    async fn build(config: Config) -> anyhow::Result<Self> {
        for services in [
            tally_consumer::metrics::CATALOGUE,
            tally_change_streamer::CATALOGUE,
            tally_batch_recount::CATALOGUE,
            tally_count_api::metrics::METRICS,
        ] {
            services.describe();
        }
        Ok(Self::new(config))
    }
}
