//! What is called exact around a loss of stream, asked of the routes in process and under paused time: an API that stood
//! still, a store that is slow, a gap recorded in the middle of a reading.
//!
//! The law: an answer that says exact with `as_of` = t is a number that the rows had at some moment from t on.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tally_adapters::faulty::{Failure, Faulty, Plan};
use tally_adapters::memory::Memory;
use tally_core::definitions::Definitions;
use tally_core::ids::ShardCount;
use tally_core::lineage::{HOLD, Loss};
use tally_core::ports::{Cache, Cached, ChangeStream, DeploymentConfig as _, Gap, Gaps as _, Positions as _};
use tally_core::served::Served;
use tally_core::time::UnixMillis;
use tally_count_api::limits::Peer;
use tally_count_api::routes::Front;
use tally_count_api::{App, Config, Ports};
use tally_service::{Clock, Host, Running, Standstill};
use tokio::time::{Instant, sleep, timeout};

use crate::harness::{Answer, BEGAN, Watched, counter, follow, post_id, request, several};

const SECOND: Duration = Duration::from_secs(1);

/// An API in this process, and what a test can do to the world around it.
struct World {
    front: Front,
    memory: Memory,
    counts: Watched,
    plan: Plan,
    standstill: Standstill,
    clock: Clock,
    _running: Running,
}

impl World {
    async fn start(config: Config, cached: bool) -> Self {
        let (memory, plan, standstill) = (Memory::new(BEGAN, 2), Plan::default(), Standstill::default());
        let clock = Clock::starting_at(BEGAN);
        follow(&memory).await;
        memory.checkpoints().config(Some(ShardCount::DEFAULT)).await.unwrap();
        let counts = Watched::new(Faulty::new(memory.counts(), plan.clone()));
        let ports = Ports {
            counts: Arc::new(counts.clone()),
            rows: Arc::new(memory.rows()),
            maps: Arc::new(memory.maps()),
            checkpoints: Arc::new(Faulty::new(memory.checkpoints(), plan.clone())),
            stream: Arc::new(memory.streams()),
            recounts: Arc::new(memory.recounts()),
            cache: cached.then(|| Arc::new(memory.cache()) as _),
            producer: None,
        };
        let (app, front) = App::with_ports(config, ports).in_process();
        let host = Host::new("count-api").with_clock(clock).with_standstill(standstill.clone());
        let running = Running::start(app, host);
        let front = front.await.expect("the API starts");
        Self { front, memory, counts, plan, standstill, clock, _running: running }
    }

    fn plant(&self, likes: i64, version: u64) {
        self.memory.counts().plant(&post_id("p"), counter(likes, version));
    }

    async fn ask(&self, request: hyper::Request<Full<Bytes>>) -> Answer {
        let peer = Peer::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let answer = self.front.answer(request, &peer).await.expect("an answer");
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|_| "a body").unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }

    async fn get(&self) -> Value {
        self.ask(request("GET", "/v1/posts/p/likes").body(Full::default()).unwrap()).await.json()
    }

    async fn batch(&self) -> Value {
        let batch = request("POST", "/v1/likes:batchGet").header("content-type", "application/json");
        let answer = self.ask(batch.body(Full::from(r#"{"post_ids":["p"]}"#)).unwrap()).await;
        answer.json()["counts"][0].clone()
    }

    /// What a client hears first on a stream of counts.
    async fn event(&self) -> Value {
        let peer = Peer::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let asked = request("GET", "/v1/posts/p/likes:stream").body(Full::<Bytes>::default()).unwrap();
        let mut body = self.front.answer(asked, &peer).await.expect("an answer").into_body();
        let mut text = String::new();
        while !text.ends_with("\n\n") {
            let frame = body.frame().await.expect("an event").map_err(|_| "a frame").unwrap();
            text.push_str(std::str::from_utf8(&frame.into_data().expect("data")).unwrap());
        }
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
        serde_json::from_str(data).unwrap()
    }

    /// The streamer records a loss.
    async fn record_gap(&self) -> Gap {
        self.memory.checkpoints().open_gap(&Loss::Trimmed("s".into()), self.clock.now()).await.unwrap()
    }

    /// Everything written to the stream before now is applied.
    async fn refresh(&self) {
        let (stream, checkpoints) = (self.memory.streams(), self.memory.checkpoints());
        let label = stream.info().await.unwrap().label;
        for shard in stream.shards(&label).await.unwrap() {
            checkpoints.refresh(&label, &shard.id, self.clock.now()).await.unwrap();
        }
    }

    /// Every call of the store takes `by`, for a long time.
    fn slow_down(&self, by: Duration) {
        for operation in ["shards", "gaps", "counter", "counters"] {
            (0..1_000).for_each(|_| self.plan.fail_next(operation, Failure::Late(by)));
        }
    }

    /// The next readings get no answer.
    fn silence_readings(&self) {
        self.plan.fail_next("shards", Failure::Late(Duration::from_secs(3600)));
    }

    async fn until_exact(&self, exact: bool) {
        let waited = timeout(60 * SECOND, async {
            while self.get().await["exact"] != json!(exact) {
                sleep(SECOND / 4).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("exact is never {exact}"));
    }
}

/// Counts stay in memory for longer than readings may call them exact.
fn kept() -> Config {
    Config { local_ttl: Duration::from_secs(600), ..Config::default() }
}

fn not_kept() -> Config {
    Config { local_ttl: Duration::ZERO, ..Config::default() }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_stood_still_calls_nothing_exact_before_it_has_read_again() {
    for config in [kept(), not_kept()] {
        let world = World::start(config, true).await;
        world.plant(20, 1);
        assert_eq!(world.get().await["exact"], json!(true));
        // It answers in the same bytes as before, without the router.
        assert_eq!(world.get().await["exact"], json!(true));
        world.standstill.begin();
        sleep(9 * SECOND).await;
        assert_eq!(world.get().await["exact"], json!(false), "one post");
        assert_eq!(world.batch().await["exact"], json!(false), "a batch");
        assert_eq!(world.event().await["exact"], json!(false), "a stream");
        world.standstill.end();
        world.until_exact(true).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_304_says_that_the_count_is_judged_the_same_now() {
    let world = World::start(kept(), false).await;
    world.plant(20, 7);
    let known = async |tag: &str| {
        let asked = request("GET", "/v1/posts/p/likes").header("if-none-match", tag);
        world.ask(asked.body(Full::default()).unwrap()).await.status.as_u16()
    };
    assert_eq!((known("W/\"7.1\"").await, known("W/\"7.1\"").await), (304, 304));
    world.standstill.begin();
    sleep(9 * SECOND).await;
    assert_eq!((known("W/\"7.1\"").await, known("W/\"7.0\"").await), (200, 304));
}

#[tokio::test(start_paused = true)]
async fn a_gap_recorded_between_the_two_calls_of_a_reading_is_seen_by_it() {
    let world = World::start(not_kept(), false).await;
    world.plant(20, 1);
    // The reading that begins a second from now: its calls come two and four seconds after its beginning.
    world.plan.fail_next("shards", Failure::Late(2 * SECOND));
    world.plan.fail_next("gaps", Failure::Late(2 * SECOND));
    sleep(4 * SECOND).await;
    world.record_gap().await;
    world.refresh().await;
    // The reading is complete, and young enough.
    sleep(SECOND + SECOND / 4).await;
    let answer = world.get().await;
    let behind_the_loss = answer["as_of"].as_u64() > Some(BEGAN.0);
    assert!(!behind_the_loss || answer["exact"] == json!(false), "{answer}");
    world.until_exact(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_count_that_arrived_under_an_old_reading_is_not_exact_under_any_later_one() {
    let world = World::start(Config { table: slow_table(), ..kept() }, true).await;
    world.plant(23, 1);
    world.silence_readings();
    sleep(4 * SECOND).await;
    world.counts.hold(true);
    let release = async {
        sleep(3 * SECOND).await;
        world.counts.hold(false);
    };
    let (arrived, ()) = tokio::join!(world.get(), release);
    assert_eq!(arrived["exact"], json!(false), "it arrived under a reading of seven seconds ago");
    // The loss was repaired meanwhile: readings are young again, and show no gap.
    sleep(10 * SECOND).await;
    let again = world.get().await;
    assert_eq!((&again["likes"], &again["exact"]), (&json!(23), &json!(false)), "from memory");
    let cached = world.memory.cache().get(&[post_id("p")]).await.unwrap();
    assert!(matches!(cached[0], Cached::Hit(Served { likes: 23, exact: false, .. })), "{cached:?}");
}

fn slow_table() -> tally_count_api::read::Bounds {
    tally_count_api::read::Bounds { budget: Duration::from_secs(30), ..Config::default().table }
}

#[tokio::test(start_paused = true)]
async fn what_was_cached_as_exact_before_a_loss_is_not_exact_while_the_loss_is_open() {
    let world = World::start(not_kept(), true).await;
    world.plant(20, 1);
    assert_eq!(world.get().await["exact"], json!(true));
    sleep(SECOND).await;
    let cached = world.memory.cache().get(&[post_id("p")]).await.unwrap();
    assert!(matches!(cached[0], Cached::Hit(Served { exact: true, .. })), "{cached:?}");
    world.record_gap().await;
    world.until_exact(false).await;
    let reads = world.counts.reads();
    assert_eq!(world.get().await["exact"], json!(false));
    assert_eq!(world.counts.reads(), reads, "from the cache");
}

/// The rows' number from each moment on.
struct History(Vec<(UnixMillis, u64)>);

impl History {
    /// Whether the rows had this number at some moment from `as_of` on.
    fn had(&self, likes: u64, as_of: UnixMillis) -> bool {
        let ends = self.0.iter().skip(1).map(|(at, _)| *at).chain([UnixMillis(u64::MAX)]);
        self.0.iter().zip(ends).any(|((_, number), end)| *number == likes && end > as_of)
    }
}

/// 20 likes, of which ten are taken back and the stream loses that; then three more. Readers ask all the while.
async fn a_loss(latency: Duration, cached: bool, config: Config) -> usize {
    let world = World::start(Config { table: slow_table(), ..config }, cached).await;
    let mut history = History(vec![(BEGAN, 20)]);
    world.plant(20, 20);
    world.slow_down(latency);
    let mut exact = 0;
    exact += listen(&world, &history, 20 * SECOND).await;
    history.0.push((world.clock.now(), 10));
    exact += listen(&world, &history, 2 * SECOND).await;
    let gap = world.record_gap().await;
    history.0.push((world.clock.now(), 13));
    exact += listen(&world, &history, HOLD).await;
    world.plant(23, 23);
    world.refresh().await;
    exact += listen(&world, &history, 20 * SECOND).await;
    world.plant(13, 24);
    world.memory.checkpoints().close_gap(&gap).await.unwrap();
    exact + listen(&world, &history, 30 * SECOND).await
}

/// Asks for `span`, and checks every answer. Answers how many said exact.
async fn listen(world: &World, history: &History, span: Duration) -> usize {
    let (began, mut exact) = (Instant::now(), 0);
    while began.elapsed() < span {
        for answer in [world.get().await, world.batch().await] {
            let (likes, as_of) = (answer["likes"].as_u64().unwrap(), UnixMillis(answer["as_of"].as_u64().unwrap()));
            if answer["exact"] == json!(true) {
                exact += 1;
                assert!(history.had(likes, as_of), "{answer} at {}", world.clock.now());
            }
        }
        sleep(SECOND / 10).await;
    }
    exact
}

#[tokio::test(start_paused = true)]
async fn around_a_loss_no_answer_is_called_exact_that_was_not_so_however_slow_the_store_is() {
    for millis in [0, 700, 1_500, 2_500] {
        for (cached, config) in [(false, not_kept()), (true, not_kept()), (true, Config::default())] {
            let exact = a_loss(Duration::from_millis(millis), cached, config).await;
            // A reading of two calls that take 2.5 s each is too old when it ends.
            assert!(exact > 0 || millis == 2_500, "nothing is ever exact at {millis} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn definitions_that_cannot_be_read_stay_as_they_were_and_no_request_waits_for_them() {
    let world = World::start(not_kept(), false).await;
    let names = async || {
        let began = Instant::now();
        let listed = world.ask(request("GET", "/v1/counters").body(Full::default()).unwrap()).await.json();
        assert_eq!(began.elapsed(), Duration::ZERO);
        listed["counters"].as_array().unwrap().len()
    };
    for failure in [Failure::Dropped, Failure::Throttled, Failure::Late(3600 * SECOND)] {
        world.plan.fail_next("definitions", failure);
    }
    let checkpoints = world.memory.checkpoints();
    assert_eq!(checkpoints.define(&Definitions::likes_alone(), &several()).await, Ok(true));
    sleep(10 * SECOND).await;
    assert_eq!((names().await, world.get().await["exact"].clone()), (1, json!(true)));
    sleep(10 * SECOND).await;
    assert_eq!(names().await, 7);
    (0..3).for_each(|_| world.plan.fail_next("definitions", Failure::Dropped));
    sleep(3 * SECOND).await;
    assert_eq!(names().await, 7, "none is taken away");
}
