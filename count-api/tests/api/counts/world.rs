//! What the tests of how the API reads counts share: emulated tables, a cache, a reader of counts, and what a test can
//! do to each of them in the place of a fold or a consumer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::json;
use tally_adapters::dynamodb::changes::Changes;
use tally_adapters::dynamodb::claims::Claims;
use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::regions::Regions;
use tally_adapters::dynamodb::{Checkpoints, Connection, Recounts};
use tally_adapters::memory::PartitionCache;
use tally_core::audit::QueueReason;
use tally_core::cached::{Cache, FillToken, Got, StandingAt, TakeOver, Told, Value};
use tally_core::changes::{DeploymentId, LossNumber, Place, Standing};
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, Region, RowKey, Shard, ShardCount};
use tally_core::ports::Outcome;
use tally_core::regions::RemotePosition;
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, TopicId};
use tally_count_api::definitions::FollowDefinitions;
use tally_count_api::read::{Answer, Reader, Standings};
use tally_count_api::{Config, Ports};
use tally_emulator::{Config as Emulated, Fault, Rule};
use tally_service::{Clock, Host};
use tally_testkit::{BEGAN, Store};
use tokio::time::sleep;

pub(crate) use crate::harness::{PARTITIONS, key, log, partition, post_id as likes};
use crate::harness::{all_is_a_row, define, keep, kept, plant};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How a world begins.
pub(crate) struct Beginning {
    pub(crate) config: Config,
    pub(crate) cached: bool,
    /// The time on the API's clock.
    pub(crate) clock: UnixMillis,
    /// Whether everything that Kafka ever acknowledged is a row at any time; otherwise nothing is known of that.
    pub(crate) all_rows: bool,
    /// Other Regions, beside this one, which is called `eu`.
    pub(crate) remotes: &'static [&'static str],
}

impl Default for Beginning {
    fn default() -> Self {
        let config = Config { local_ttl: Duration::ZERO, ..Config::default() };
        Self { config, cached: false, clock: BEGAN, all_rows: true, remotes: &[] }
    }
}

/// The world.
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) counters: Counters,
    pub(crate) changes: Changes,
    pub(crate) claims: Claims,
    pub(crate) cache: Watched,
    pub(crate) reader: Reader,
    pub(crate) standings: Standings,
    pub(crate) host: Host,
    /// Whether the tables are those of the deployment.
    pub(crate) whole: Arc<AtomicBool>,
    /// The store's time.
    pub(crate) clock: Clock,
}

impl World {
    /// Starts with three likes of `p`, and the API knows that everything up to a second after the beginning is counted.
    pub(crate) async fn counted(beginning: Beginning) -> (Self, CounterId) {
        let (world, p) = (Box::pin(Self::with(beginning)).await, likes("p"));
        world.write(&p, counter(3, 5)).await;
        world.stood(&p, &standing(6, SECOND)).await;
        (world, p)
    }

    pub(crate) async fn with(beginning: Beginning) -> Self {
        let Beginning { config, cached, clock, all_rows, remotes } = beginning;
        // An inconsistent read would get old values.
        let emulated = Emulated { read_lag: 5 * SECOND, ..Emulated::default() };
        let (store, true_clock) = (Store::with(emulated).await, Clock::starting_at(BEGAN));
        let (counters, changes) = (Counters::new(&store.connection), Changes::new(&store.connection));
        changes.begin_log(&log(1)).await.unwrap();
        counters.put_reserved().await.unwrap();
        let (checkpoints, claims) = (Checkpoints::new(&store.connection), Claims::new(&store.connection, true_clock));
        checkpoints.config(None).await.unwrap();
        define(&store.connection).await;
        name(&store.connection, remotes).await;
        if all_rows {
            all_is_a_row(&store.connection, "likes", PARTITIONS).await;
        }
        let (cache, host) = (Watched::default(), Host::new("count-api").with_clock(Clock::starting_at(clock)));
        let through_cache = cached.then(|| Arc::new(cache.clone()) as _);
        let ports = Ports { cache: through_cache, ..Ports::over(&store.connection) };
        let whole = Arc::new(AtomicBool::new(true));
        let is_whole = Arc::clone(&whole);
        let is_whole = Arc::new(move || is_whole.load(Ordering::SeqCst));
        let definitions = FollowDefinitions::begin(&ports.tables, "likes", &host).await.unwrap();
        let opened =
            Reader::open(&config, &ports.tables, ports.cache, ShardCount::DEFAULT, definitions, is_whole, &host);
        let reader = opened.await.unwrap();
        let standings = reader.standings().clone();
        Self { store, counters, changes, claims, cache, reader, standings, host, whole, clock: true_clock }
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.clock.now()
    }

    /// The fold writes a counter.
    pub(crate) async fn write(&self, id: &CounterId, after: Counter) {
        plant(&self.store.connection, id, after).await;
    }

    /// The fold stores the standing of a counter's partition, if it is a later one.
    pub(crate) async fn stand(&self, id: &CounterId, standing: &StandingAt) {
        tally_testkit::stand(&self.changes, partition(id), standing).await;
    }

    /// The same, and the API has read it.
    pub(crate) async fn stood(&self, id: &CounterId, standing: &StandingAt) {
        self.stand(id, standing).await;
        while self.standings.known().of(id).is_none_or(|known| known.at < standing.at) {
            sleep(SECOND / 20).await;
        }
    }

    /// A consumer stores, so long after the beginning, that everything that Kafka had acknowledged by then is a row.
    pub(crate) async fn keep(&self, topic: &str, index: u32, at: Duration, safe_at: Option<Duration>) {
        keep(&self.claims, topic, index, &kept(0, after(at), safe_at.map(after))).await;
    }

    /// The fold takes the cache of a counter's partition over.
    pub(crate) async fn take_over(&self, id: &CounterId, standing: &StandingAt) -> TakeOver {
        self.cache.inner.take_over(partition(id), &log(1).deployment, standing).await.unwrap().unwrap()
    }

    /// The fold tells the cache.
    pub(crate) async fn tell(
        &self,
        hold: &mut TakeOver,
        id: &CounterId,
        counter: &Counter,
        standing: Option<&StandingAt>,
    ) {
        let values = [(id.clone(), Value::from(counter))];
        let told = self.cache.inner.tell(partition(id), hold, &values, standing).await.unwrap();
        assert!(matches!(told, Told::Written(_)));
    }

    pub(crate) async fn count(&self, id: &CounterId) -> Answer {
        self.reader.count(id).await.unwrap().0
    }

    /// The reserved row is gone, as in a table that was created anew.
    pub(crate) async fn delete_reserved(&self) {
        let delete = json!({"TableName": "like_counts", "Key": {"post_id": {"S": "\u{1}reserved"}}});
        assert_ne!(self.store.item("like_counts", delete["Key"].clone()).await, json!(null));
        self.store.call("DeleteItem", delete).await;
    }

    /// What is queued for a recount.
    pub(crate) async fn queued(&self) -> Vec<(RowKey, QueueReason)> {
        let queued = Recounts::new(&self.store.connection).queued(None).await.unwrap();
        queued.items.into_iter().map(|queued| (queued.key, queued.reason)).collect()
    }

    /// Reads of counters go wrong so.
    pub(crate) fn reads_of_counters(&self, wrong: Fault) {
        self.store.faults([Rule::new(wrong).on("BatchGetItem").table("like_counts")]);
    }

    /// Each read of counters takes so long.
    pub(crate) fn slow_down(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap();
        self.reads_of_counters(Fault::Latency { min_ms: millis, max_ms: millis });
    }

    /// How often counters were read since `slow_down`.
    pub(crate) fn slow_reads(&self) -> u64 {
        self.store.emulator.stats().fired("latency")
    }
}

pub(crate) fn region(name: &str) -> Region {
    Region::new(name).unwrap()
}

/// This Region is `eu`, and has others.
pub(crate) async fn name(connection: &Connection, remotes: &[&str]) {
    if !remotes.is_empty() {
        let remotes: Vec<Region> = remotes.iter().map(|name| region(name)).collect();
        Regions::new(connection).name(&region("eu"), &remotes).await.unwrap();
    }
}

/// The standing of the entries of another Region in a partition.
pub(crate) async fn stand_remote(connection: &Connection, name: &str, partition: u32, standing: Option<&StandingAt>) {
    let position =
        RemotePosition { standing: standing.cloned(), ..RemotePosition::start(TopicId("t".into()), Offset(1)) };
    Regions::new(connection).store_position(&region(name), partition, &position).await.unwrap();
}

/// So long after the beginning.
pub(crate) fn after(span: Duration) -> UnixMillis {
    BEGAN.plus(span)
}

/// The counter of a post whose partition is another one.
pub(crate) fn elsewhere(id: &CounterId) -> CounterId {
    (0..).map(|n| likes(&format!("other-{n}"))).find(|other| partition(other) != partition(id)).unwrap()
}

pub(crate) fn at(offset: u64) -> Place {
    Place::new(1, Offset(offset))
}

pub(crate) fn counter(total: i64, version: u64) -> Counter {
    let parts = [(Shard::new(0).unwrap(), total)].into();
    Counter { likes: total, parts, version: at(version), ..Counter::default() }
}

/// What may be said of a partition at a place: everything until so long after the beginning is in, and nothing was
/// lost.
pub(crate) fn standing(offset: u64, as_of: Duration) -> StandingAt {
    let standing = Standing { as_of: Some(after(as_of)), ..Standing::default() };
    StandingAt { at: at(offset), standing }
}

/// The same place and standing of another generation of the topic.
pub(crate) fn of_generation(generation: u16, standing: StandingAt) -> StandingAt {
    StandingAt { at: Place::new(generation, standing.at.offset()), ..standing }
}

/// The same behind the announcement of a loss, which is open or not.
pub(crate) fn behind_loss(standing: StandingAt, announced: u64, is_open: bool) -> StandingAt {
    let StandingAt { at: place, standing } = standing;
    let open = is_open.then_some(LossNumber(announced)).into_iter().collect();
    StandingAt { at: place, standing: Standing { loss: Some(at(announced)), open, ..standing } }
}

/// A cache whose reads are counted, and late on demand.
#[derive(Clone, Default)]
pub(crate) struct Watched {
    pub(crate) inner: PartitionCache,
    gets: Arc<AtomicUsize>,
    /// How long a read takes.
    pub(crate) delay: Arc<Mutex<Duration>>,
}

impl Watched {
    pub(crate) fn gets(&self) -> usize {
        self.gets.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Cache for Watched {
    async fn get(&self, partition: u32, counters: &[CounterId]) -> Outcome<Got> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        let delay = *self.delay.lock();
        if !delay.is_zero() {
            sleep(delay).await;
        }
        self.inner.get(partition, counters).await
    }
    async fn begin_fill(&self, partition: u32, counter: &CounterId) -> Outcome<Option<FillToken>> {
        self.inner.begin_fill(partition, counter).await
    }
    async fn fill(&self, partition: u32, counter: &CounterId, token: &FillToken, value: &Value) -> Outcome<bool> {
        self.inner.fill(partition, counter, token, value).await
    }
    async fn take_over(&self, partition: u32, of: &DeploymentId, stated: &StandingAt) -> Outcome<Option<TakeOver>> {
        self.inner.take_over(partition, of, stated).await
    }
    async fn tell(
        &self,
        partition: u32,
        take_over: &mut TakeOver,
        values: &[(CounterId, Value)],
        stated: Option<&StandingAt>,
    ) -> Outcome<Told> {
        self.inner.tell(partition, take_over, values, stated).await
    }
}
