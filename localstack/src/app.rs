//! The composition root of the local stack: opens Kafka, DynamoDB and the cache, and starts the services, the load and
//! the page, in one Region or two. It also carries one run from start to end: waits until everything is ready, writes
//! the load, with chaos if asked for, and compares what is stored with what was sent.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt;
use tally_adapters::{Deployment, kafka};
use tally_core::ids::PostId;
use tally_core::ports::Producer;
use tally_service::metrics::Catalogue;
use tally_service::{Exit, Host, Program, Stage, Stop, Worker};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::args::{Args, LoadArgs, Taken, Wanted};
use crate::chaos::Chaos;
use crate::counters::{self, Counted};
use crate::engine::{Engines, TOPIC};
use crate::gate::{Gated, LedgerProducer, follow_claims};
use crate::load::{Load, Writer, over};
use crate::local::Local;
use crate::observe::Observer;
use crate::page::{self, Endpoints};
use crate::probe::Probe;
use crate::regions::{Abroad, Home};
use crate::screen::live_line;
use crate::services::{NAMES, Plan, SECOND_NAMES, WINDOWS};
use crate::verify;
use crate::verify::sightings::watch;

/// How much of a partition may be unread while the load still writes, and while likes over HTTP are still taken: both
/// far below the 5 MiB at which the embedded Kafka begins to trim.
const LOAD_BYTES: u64 = 1 << 20;
const HTTP_BYTES: u64 = 2 << 20;

/// The local stack, ready to start: with its ports taken, and nothing else.
pub struct App {
    args: Args,
    taken: Taken,
}

impl tally_service::App for App {
    async fn start(self, host: Host) -> anyhow::Result<()> {
        let given = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        for variable in tally_service::unread::<Args>(given) {
            tracing::warn!(
                variable,
                "the local stack does not read this variable: its services have settings of their own"
            );
        }
        let Self { args, taken: Taken { wanted, second } } = self;
        let (load, milestones) = (args.load(), args.milestones);
        let listener = wanted.api.try_clone()?;
        let mut local = begin(&args, wanted, load, NAMES, &host).boxed().await?;
        let abroad = match second {
            Some((args, wanted)) => Some(begin_abroad(&args, wanted, load, &mut local, &host).boxed().await?),
            None => None,
        };
        local.is_disturbed = args.chaos;
        let local = Arc::new(local);
        local.screen.say(&banner(&local));
        host.spawn(Stage::Support, "observer", Observer::new(Arc::clone(&local)));
        let routes = page::routes(local.clone(), host.stop());
        let home = abroad.as_ref().map(|(home, _)| home.clone());
        let (shards, sums) = (args.store.shards, local.sums.clone());
        let writer = open(&local, Plan { shards, milestones, home, listener, routes, sums }, &args, &host)?;
        let writers = writer.into_iter().chain(abroad.and_then(|(_, writer)| writer)).collect();
        let session = Session { host: host.clone(), writers, local, args };
        host.job("session", move |stop| session.run(stop));
        Ok(())
    }
}

/// Opens the engines of a Region, and creates what its services need.
async fn begin(
    args: &Args,
    wanted: Wanted,
    load: Option<LoadArgs>,
    services: [&'static str; 4],
    host: &Host,
) -> anyhow::Result<Local> {
    let api = wanted.api.local_addr()?;
    let engines = Box::pin(Engines::open(args, wanted, host)).await?;
    // Services that only read would wait for those that write to say how many shards there are.
    Deployment { tables: &engines.store.tables.connection, shards: args.store.shards }.create(host).await?;
    let counters = counters::define(&engines.store.tables.checkpoints, host).await?;
    Ok(Local::new(engines, counters, api, load, args.sum_policy, services, host))
}

/// Begins the second Region and the mirror between it and `first`: what the first is called then, and what the second one's load
/// writes through.
async fn begin_abroad(
    args: &Args,
    wanted: Wanted,
    load: Option<LoadArgs>,
    first: &mut Local,
    host: &Host,
) -> anyhow::Result<(Home, Option<Writer>)> {
    let listener = wanted.api.try_clone()?;
    let mut us = begin(args, wanted, load, SECOND_NAMES, host).boxed().await?;
    us.screen = Arc::clone(&first.screen);
    let (us, eu, home) = (Arc::new(us), Home::new("eu", "us"), Home::new("us", "eu"));
    let mirror = watch::Sender::new(true);
    eu.mirror(&us.engines, mirror.subscribe(), host)?;
    home.mirror(&first.engines, mirror.subscribe(), host)?;
    let (shards, milestones, home) = (args.store.shards, None, Some(home));
    let plan = Plan { shards, milestones, home, listener, routes: Router::new(), sums: us.sums.clone() };
    let writer = open(&us, plan, args, host)?;
    first.abroad = Some(Abroad { us, mirror });
    Ok((eu, writer))
}

/// Starts the services and what they need; what the load writes through, if there is one.
fn open(local: &Arc<Local>, plan: Plan, args: &Args, host: &Host) -> anyhow::Result<Option<Writer>> {
    let followed = Arc::clone(local);
    host.spawn(Stage::Support, "claims", move |stop| follow_claims(followed, stop));
    let producer = kafka::Producer::new(&local.engines.kafka.settings)?;
    let taken = LedgerProducer { producer: gated(local, &producer, HTTP_BYTES), local: Arc::clone(local) };
    local.services.start(&local.engines, plan, Arc::new(taken), host)?;
    if !args.recount_every.is_zero() {
        let (local, every) = (Arc::clone(local), args.recount_every);
        host.spawn(Stage::Output, "recount timer", move |stop| remind(local, every, stop));
    }
    if local.load.is_none() {
        return Ok(None);
    }
    let producer = gated(local, &local.engines.kafka.for_load(&producer)?, LOAD_BYTES);
    Ok(Some(Writer { local: Arc::clone(local), producer, chance: host.chance().fork() }))
}

/// Writes to Kafka while less than `limit` bytes of a partition are unread.
fn gated(local: &Local, producer: &kafka::Producer, limit: u64) -> Arc<dyn Producer> {
    Arc::new(Gated { producer: producer.clone(), gate: Arc::clone(&local.gate), limit })
}

/// Asks for a recount of everything, again and again.
async fn remind(local: Arc<Local>, every: Duration, stop: Stop) -> anyhow::Result<()> {
    loop {
        stop.unless_requested(local.clock.sleep(every)).await?;
        // A request that fails is made again the next time.
        let _ = stop.unless_requested(local.engines.store.tables.recounts.enqueue_audit(local.clock.now())).await?;
    }
}

/// What people read first.
fn banner(local: &Local) -> String {
    let Local { engines, counters, load, ledger, abroad, .. } = local;
    let Endpoints { kafka, dynamodb, api } = local.board.lock().endpoints.clone();
    let abroad = abroad.as_ref().map(|abroad| {
        let Endpoints { kafka, dynamodb, api } = abroad.us.board.lock().endpoints.clone();
        format!("\n  Region us  API {api}   Kafka {kafka}   DynamoDB {dynamodb}")
    });
    let abroad = abroad.unwrap_or_default();
    let gone = if engines.are_embedded() { ", gone when it ends" } else { "" };
    let prefix = match &engines.table_prefix {
        prefix if prefix.is_empty() => String::new(),
        prefix => format!(" TALLY_TABLE_PREFIX={prefix}"),
    };
    let kept = if engines.kafka.embedded.is_some() { "; keeps 5 MiB of a partition" } else { "" };
    let trends =
        if engines.kafka.lists { format!("\n  trends     {api}/v1/top?window={}", WINDOWS[0]) } else { String::new() };
    let counters: Vec<&str> = counters.ours.keys().copied().map(Counted::name).collect();
    let counters = counters.join(", ");
    let post = ledger.names.posts.first().map_or("post-1", PostId::as_str);
    let load = match load {
        None => "none: like something on the page".to_owned(),
        Some(LoadArgs { rate, posts, users, .. }) => {
            format!(
                "up to {rate} events/s about {posts} posts by {users} users; it holds back where rows do not keep up"
            )
        }
    };
    let chaos = if local.is_disturbed {
        "\n  chaos      on: requests fail, stream shards split, services are killed"
    } else {
        ""
    };
    format!(
        "tally: the whole pipeline on this machine{gone}\n\n  \
         page       {api}/\n  \
         API        {api}/v1/posts/{post}/likes   docs at {api}/docs{trends}\n  \
         Kafka      {kafka}   topic {TOPIC}, keyed by post id, murmur2{kept}\n  \
         DynamoDB   {dynamodb}\n  \
         counters   {counters}\n  \
         load       {load}{chaos}{abroad}\n  \
         operate    export TALLY_BROKERS={kafka} AWS_ENDPOINT_URL={dynamodb} AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=any \
         AWS_SECRET_ACCESS_KEY=any{prefix}; tally status\n"
    )
}

impl Program for App {
    type Args = Args;
    const METRICS: &'static [Catalogue] = &[
        tally_consumer::metrics::CATALOGUE,
        tally_change_streamer::CATALOGUE,
        tally_batch_recount::CATALOGUE,
        tally_count_api::metrics::CATALOGUE,
        tally_trends::CATALOGUE,
    ];

    async fn build(args: Args) -> anyhow::Result<Self> {
        Ok(Self { taken: args.take()?, args })
    }
}

/// What a run consists of.
struct Session {
    host: Host,
    local: Arc<Local>,
    /// What the load of each Region writes through, if there is a load.
    writers: Vec<Writer>,
    args: Args,
}

impl Session {
    /// Runs until its time is over or it is stopped, says what was done on purpose, and compares where its time was over.
    ///
    /// # Errors
    /// What it cannot go on after.
    async fn run(mut self, stop: Stop) -> anyhow::Result<Exit> {
        let over = self.until_over(&stop).await;
        self.say_what_happened();
        over?;
        self.compare(&stop).await
    }

    async fn until_over(&mut self, stop: &Stop) -> anyhow::Result<()> {
        for service in self.local.regions().flat_map(|region| region.services.needed()) {
            stop.unless_requested(service.ready()).await?;
        }
        self.local.screen.say("ready");
        let local = Arc::clone(&self.local);
        let line = self.host.worker(Stage::Support, "live line", move |stop| live_line(local, stop));
        let until = self.args.duration.map(|duration| Instant::now() + duration);
        let chaos = if self.args.chaos { Chaos::of(&self.local, self.args.seed) } else { None };
        let chaos = chaos.map(|chaos| self.host.worker(Stage::Intake, "chaos", chaos));
        let watcher = self.watcher();
        let writers = self.write(until);
        stop.unless_requested(over(until)).await?;
        if let Some(chaos) = chaos {
            chaos.request_stop();
            stop.unless_requested(chaos.ended()).await?;
        }
        for worker in &writers {
            stop.unless_requested(worker.ended()).await?;
        }
        for watcher in std::iter::once(&line).chain(&watcher) {
            watcher.request_stop();
            stop.unless_requested(watcher.ended()).await?;
        }
        Ok(())
    }

    /// Starts to look at lists, where they are compared at the end.
    fn watcher(&self) -> Option<Worker> {
        let duration = self.args.duration.filter(|_| self.args.verify && self.local.services.trends.is_some())?;
        let local = Arc::clone(&self.local);
        Some(self.host.worker(Stage::Support, "lists", move |stop| watch(local, duration, stop)))
    }

    /// Starts the load of each Region, and the probes of the first: an answer is the sum of both, and a probe expects its own likes
    /// alone.
    fn write(&mut self, until: Option<Instant>) -> Vec<Worker> {
        let (host, writers) = (&self.host, std::mem::take(&mut self.writers));
        let probe = |writer: &Writer| {
            let probes = self.local.ledger.names.probes().map(|post| Probe { writer: writer.clone(), post, until });
            probes.map(|probe| host.worker(Stage::Intake, "probe", probe)).collect()
        };
        let mut workers: Vec<Worker> = writers.first().map(probe).unwrap_or_default();
        for (writer, nth) in writers.into_iter().zip(0..) {
            let Some(config) = writer.local.load else { continue };
            let load = Load { writer, config, seed: self.args.seed.wrapping_add(nth), until };
            workers.push(host.worker(Stage::Intake, "load", load));
        }
        workers
    }

    fn say_what_happened(&self) {
        let Local { engines, happened, screen, .. } = &*self.local;
        let faults = engines.store.emulator.as_ref().map(|emulator| emulator.stats().faults).unwrap_or_default();
        let happened = happened.lines(&faults);
        if !happened.is_empty() {
            screen.say(&format!("what went wrong on purpose\n{}", happened.join("\n")));
        }
    }

    async fn compare(&self, stop: &Stop) -> anyhow::Result<Exit> {
        if !self.args.verify {
            return Ok(Exit::CLEAN);
        }
        let comparison = verify::run(&self.local, stop).await?;
        self.local.screen.say(&comparison.said);
        Ok(if comparison.is_clean { Exit::CLEAN } else { Exit::FAILED })
    }
}
