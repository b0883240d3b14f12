//! What the tests share: an API in this process, counters to plant, ports that count and fail, a small HTTP client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tally_adapters::memory::log::Broker;
use tally_adapters::memory::{self, Memory};
use tally_core::counter::{Counter, ShardTally, Update};
use tally_core::definitions::{Definitions, Entry};
use tally_core::fault::Fault;
use tally_core::homes::{CounterMap, Sought};
use tally_core::ids::{CounterId, PostId, RowKey, Shard, ShardCount};
use tally_core::ports::{
    Applied, Cache, Cached, ChangeStream, CounterMaps, Counts, Cursor, DeploymentConfig as _, FillToken, Judged,
    LedgerEntry, Mended, Outcome, Page, Producer, Segment, StreamRegistry as _,
};
use tally_core::served::Served;
use tally_core::time::UnixMillis;
use tally_core::window::Verdict;
use tally_count_api::{App, Config, Ports};
use tally_service::{Clock, Host, Running};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// When every test begins.
pub(crate) const BEGAN: UnixMillis = UnixMillis(1_700_000_000_000);

/// What the id of a post begins with whose counter cannot be read.
pub(crate) const DAMAGED: &str = "damaged";

/// The patience of a test that waits for something.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The last part of the problem's type.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let kind = self.json()["type"].as_str().unwrap().to_owned();
        kind.strip_prefix("urn:tally:problem:").unwrap().to_owned()
    }
}

/// One request on a connection of its own.
pub(crate) async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    timeout(DEADLINE, exchange(address, request)).await.expect("an answer in time").expect("an answer")
}

pub(crate) async fn exchange(address: SocketAddr, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let asking = async move {
        let response: Response<_> = sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        anyhow::Ok(Answer { status: head.status, headers: head.headers, body })
    };
    let (answer, _) = tokio::join!(asking, connection);
    answer
}

pub(crate) fn request(method: &str, target: &str) -> hyper::http::request::Builder {
    Request::builder().method(method).uri(target).header("host", "localhost")
}

pub(crate) async fn get(address: SocketAddr, target: &str) -> Answer {
    send(address, request("GET", target).body(Full::default()).unwrap()).await
}

pub(crate) async fn post(address: SocketAddr, target: &str, body: &str) -> Answer {
    let request = request("POST", target).header("content-type", "application/json");
    send(address, request.body(Full::from(body.to_owned())).unwrap()).await
}

pub(crate) async fn put(address: SocketAddr, target: &str, body: &str) -> Answer {
    let request = request("PUT", target).header("content-type", "application/json");
    send(address, request.body(Full::from(body.to_owned())).unwrap()).await
}

pub(crate) async fn ask(address: SocketAddr, method: &str, target: &str) -> Answer {
    send(address, request(method, target).body(Full::default()).unwrap()).await
}

/// A counter that was changed `version` times, with all its likes in shard 0.
pub(crate) fn counter(likes: i64, version: u64) -> Counter {
    let shard = ShardTally { rows: likes, ..ShardTally::default() };
    Counter { likes, version, shards: [(Shard::new(0).unwrap(), shard)].into(), ..Counter::default() }
}

pub(crate) fn post_id(text: &str) -> CounterId {
    CounterId::likes(PostId::new(text).unwrap())
}

/// Sets and sums of posts and of hashtags, with and without an action that takes away.
pub(crate) fn several() -> Definitions {
    let hashtag = Some("hashtag".to_owned());
    let tagged =
        Entry { subject: hashtag.clone(), member: Some("post_id".to_owned()), ..Entry::set("posts", "tag", None) };
    Definitions::new(&[
        Entry::set("retweets", "retweet", Some("unretweet")),
        Entry { member: Some("reply_id".to_owned()), ..Entry::set("replies", "reply", None) },
        Entry::sum("views", "view", None),
        Entry::sum("score", "up", Some("down")),
        Entry { topic: Some("posts".to_owned()), ..tagged },
        Entry { subject: hashtag, ..Entry::sum("searches", "search", None) },
    ])
    .unwrap()
}

/// The counter `name` of [`several`].
pub(crate) fn counter_id(subject: &str, name: &str) -> CounterId {
    let name = several().named(name).unwrap().name.clone();
    CounterId { post: PostId::new(subject).unwrap(), name }
}

/// The counts of a memory, counted as they are read, held back and refused on demand.
#[derive(Clone)]
pub(crate) struct Watched {
    inner: Arc<dyn Counts>,
    pub(crate) reads: Arc<AtomicUsize>,
    pub(crate) down: Arc<AtomicBool>,
    open: Arc<watch::Sender<bool>>,
}

impl Watched {
    pub(crate) fn new(inner: impl Counts + 'static) -> Self {
        let (reads, down) = (Arc::default(), Arc::default());
        Self { inner: Arc::new(inner), reads, down, open: Arc::new(watch::Sender::new(true)) }
    }

    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    /// Holds reads back until it is called with `false`.
    pub(crate) fn hold(&self, hold: bool) {
        self.open.send_replace(!hold);
    }

    async fn read<T>(&self, read: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        if self.down.load(Ordering::SeqCst) {
            return Err(Fault::Transient("canary: the table is down".to_owned()));
        }
        read.await
    }
}

#[async_trait]
impl Counts for Watched {
    async fn apply(&self, post: &CounterId, update: &Update) -> Outcome<Applied> {
        self.inner.apply(post, update).await
    }
    async fn counter(&self, post: &CounterId) -> Outcome<Option<Counter>> {
        let counters = self.counters(std::slice::from_ref(post)).await?;
        counters.into_iter().next().expect("one counter for one post")
    }
    async fn counters(&self, posts: &[CounterId]) -> Outcome<Vec<Outcome<Option<Counter>>>> {
        let counters = self.read(self.inner.counters(posts)).await?;
        let damaged =
            |id: &CounterId| id.post.starts_with(DAMAGED).then(|| Err(Fault::Poison("canary: damaged".to_owned())));
        Ok(posts.iter().zip(counters).map(|(post, counter)| damaged(post).unwrap_or(counter)).collect())
    }
    async fn judge(&self, verdict: &Verdict, entry: &LedgerEntry) -> Outcome<Judged> {
        self.inner.judge(verdict, entry).await
    }
    async fn mend_total(&self, post: &CounterId, version: u64, sum: i64, entry: &LedgerEntry) -> Outcome<Mended> {
        self.inner.mend_total(post, version, sum, entry).await
    }
    async fn suspect(&self, key: &RowKey, now: UnixMillis) -> Outcome<()> {
        self.inner.suspect(key, now).await
    }
    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<(CounterId, Outcome<Counter>)>> {
        self.inner.scan(segment, after).await
    }
}

/// The maps of a memory: the calls are noted, and one of them ends badly on demand.
#[derive(Clone)]
pub(crate) struct Maps {
    inner: memory::Maps,
    pub(crate) calls: Arc<Mutex<Vec<&'static str>>>,
    /// The call that fails, once: whether it is carried out all the same.
    pub(crate) failing: Arc<Mutex<Option<(usize, bool)>>>,
}

impl Maps {
    fn new(memory: &Memory) -> Self {
        Self { inner: memory.maps(), calls: Arc::default(), failing: Arc::default() }
    }

    async fn call<T>(&self, name: &'static str, call: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        let nth = self.calls.lock().len();
        self.calls.lock().push(name);
        let fails = self.failing.lock().filter(|(fails, _)| *fails == nth);
        let Some((_, carried_out)) = fails else { return call.await };
        if carried_out {
            call.await?;
        }
        Err(Fault::Transient("canary: no answer".to_owned()))
    }
}

#[async_trait]
impl CounterMaps for Maps {
    async fn map(&self, counter: &CounterId) -> Outcome<Option<CounterMap>> {
        self.call("map", self.inner.map(counter)).await
    }
    async fn maps(&self, counters: &[CounterId]) -> Outcome<Vec<Option<CounterMap>>> {
        self.call("maps", self.inner.maps(counters)).await
    }
    async fn locate(&self, sought: &[Sought]) -> Outcome<Vec<Option<ShardCount>>> {
        self.call("locate", self.inner.locate(sought)).await
    }
    async fn put_map(&self, counter: &CounterId, seen: Option<&CounterMap>, map: &CounterMap) -> Outcome<bool> {
        self.call("put_map", self.inner.put_map(counter, seen, map)).await
    }
    async fn announced(&self) -> Outcome<u64> {
        self.inner.announced().await
    }
    async fn announce(&self) -> Outcome<()> {
        self.call("announce", self.inner.announce()).await
    }
}

/// The cache of a memory, whose readings are counted.
struct Asked {
    inner: memory::Cache,
    calls: Arc<AtomicUsize>,
}

#[async_trait]
impl Cache for Asked {
    async fn get(&self, ids: &[CounterId]) -> Outcome<Vec<Cached>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.inner.get(ids).await
    }
    async fn update(&self, values: &[(CounterId, Served)]) -> Outcome<usize> {
        self.inner.update(values).await
    }
    async fn begin_fill(&self, id: &CounterId) -> Outcome<Option<FillToken>> {
        self.inner.begin_fill(id).await
    }
    async fn fill(&self, id: &CounterId, token: &FillToken, served: &Served) -> Outcome<bool> {
        self.inner.fill(id, token, served).await
    }
}

/// An API over memory.
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    pub(crate) memory: Memory,
    pub(crate) counts: Watched,
    pub(crate) maps: Maps,
    /// How often the cache was asked for counts.
    pub(crate) cached: Arc<AtomicUsize>,
    pub(crate) broker: Broker,
    pub(crate) running: Running,
}

/// What an API under test has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct With {
    pub(crate) cache: bool,
    pub(crate) writes: bool,
}

impl Api {
    pub(crate) async fn start(config: Config, with: With) -> Self {
        let broker = Broker::new();
        broker.create_topic("likes", 4);
        let producer = with.writes.then(|| Arc::new(broker.clone()) as _);
        Self::over(config, with.cache, broker, producer, serve).await
    }

    /// An API of a deployment with several counters, which writes to the topics `likes` and `posts`.
    pub(crate) async fn counting(config: Config, with: With) -> Self {
        let broker = Broker::new();
        broker.create_topic("likes", 4);
        broker.create_topic("posts", 1);
        let producer = with.writes.then(|| Arc::new(broker.clone()) as _);
        Self::over(config, with.cache, broker, producer, serve_several).await
    }

    /// The same over a broker and a producer of its own.
    pub(crate) async fn counting_over(config: Config, broker: Broker, producer: Arc<dyn Producer>) -> Self {
        Self::over(config, false, broker, Some(producer), serve_several).await
    }

    /// The same, as `wire` has it.
    pub(crate) async fn wired(config: Config, with: With, wire: impl Fn(App) -> App) -> Self {
        let broker = Broker::new();
        broker.create_topic("likes", 4);
        let producer = with.writes.then(|| Arc::new(broker.clone()) as _);
        let serve = async |config, ports: Ports| {
            assert_eq!(ports.checkpoints.define(&Definitions::likes_alone(), &several()).await, Ok(true));
            serve_app(wire(App::with_ports(config, ports))).await
        };
        Self::over(config, with.cache, broker, producer, serve).await
    }

    /// An API that answers programs and pages of its own host alone.
    pub(crate) async fn for_own_pages(with: With) -> Self {
        let broker = Broker::new();
        broker.create_topic("likes", 4);
        let producer = with.writes.then(|| Arc::new(broker.clone()) as _);
        let serve = async |config, ports| serve_app(App::with_ports(config, ports).for_own_pages()).await;
        Self::over(Config::default(), with.cache, broker, producer, serve).await
    }

    /// An API that writes to `producer`.
    pub(crate) async fn writing_to(producer: Arc<dyn Producer>, config: Config) -> Self {
        Self::over(config, false, Broker::new(), Some(producer), serve).await
    }

    async fn over(
        config: Config,
        cache: bool,
        broker: Broker,
        producer: Option<Arc<dyn Producer>>,
        serve: impl AsyncFnOnce(Config, Ports) -> (SocketAddr, Running),
    ) -> Self {
        let memory = Memory::new(BEGAN, 2);
        let (counts, cached) = (Watched::new(memory.counts()), Arc::default());
        let maps = Maps::new(&memory);
        follow(&memory).await;
        memory.checkpoints().config(Some(ShardCount::DEFAULT)).await.unwrap();
        let ports = Ports {
            counts: Arc::new(counts.clone()),
            rows: Arc::new(memory.rows()),
            maps: Arc::new(maps.clone()),
            checkpoints: Arc::new(memory.checkpoints()),
            stream: Arc::new(memory.streams()),
            recounts: Arc::new(memory.recounts()),
            cache: cache.then(|| Arc::new(Asked { inner: memory.cache(), calls: Arc::clone(&cached) }) as _),
            producer,
        };
        let (address, running) = serve(config, ports).await;
        Self { address, memory, counts, maps, cached, broker, running }
    }

    pub(crate) fn plant(&self, post: &str, likes: i64, version: u64) {
        self.memory.counts().plant(&post_id(post), counter(likes, version));
    }

    /// The same of any counter of [`several`].
    pub(crate) fn plant_counter(&self, subject: &str, name: &str, value: i64, version: u64) {
        self.memory.counts().plant(&counter_id(subject, name), counter(value, version));
    }
}

/// Serves `ports` on a free port of this machine.
pub(crate) async fn serve(config: Config, ports: Ports) -> (SocketAddr, Running) {
    serve_app(App::with_ports(config, ports)).await
}

/// The same with the counters of [`several`].
async fn serve_several(config: Config, ports: Ports) -> (SocketAddr, Running) {
    assert_eq!(ports.checkpoints.define(&Definitions::likes_alone(), &several()).await, Ok(true));
    serve(config, ports).await
}

async fn serve_app(app: App) -> (SocketAddr, Running) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let running =
        Running::start(app.listening_on(listener), Host::new("count-api").with_clock(Clock::starting_at(BEGAN)));
    timeout(DEADLINE, running.ready()).await.expect("ready in time").expect("no early end");
    (address, running)
}

/// Numbers the stream's shards, as a streamer does, so that something is known of how fresh counts are.
pub(crate) async fn follow(memory: &Memory) {
    let (stream, checkpoints) = (memory.streams(), memory.checkpoints());
    let label = stream.info().await.unwrap().label;
    for shard in stream.shards(&label).await.unwrap() {
        checkpoints.number(&label, &shard.id, shard.parent.as_ref(), BEGAN).await.unwrap();
    }
}

/// Waits until `holds`.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < DEADLINE, "{what}");
        sleep(Duration::from_millis(10)).await;
    }
}
