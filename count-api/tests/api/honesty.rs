//! Tests that every HTTP route tells how far to trust a number, in process and under paused time: with an API that was
//! stopped, a dead fold, a loss of changes. The tests in `counts` cover what makes each claim true.

use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tally_adapters::dynamodb::regions::Regions;
use tally_core::time::UnixMillis;
use tally_count_api::limits::Peer;
use tally_count_api::routes::Front;
use tally_count_api::{App, Config};
use tally_emulator::{Fault, Rule};
use tally_service::{Clock, Host, Running, Standstill};
use tokio::time::{Instant, sleep, timeout};

use crate::counts::world::{name, region, stand_remote};
use crate::harness::{Answer, BEGAN, Deployed, PARTITIONS, counter, define, post_id, request, standing};

const SECOND: Duration = Duration::from_secs(1);

/// The routes whose answers have an ETag.
const TARGETS: [&str; 3] = ["/v1/posts/p/likes", "/v1/posts/p/counters/likes", "/v1/posts/p/counters"];

/// What every answer says of its number.
const STATED: [&str; 3] = ["exact", "fresh", "as_of"];

/// An API in this process, and what a test can do to the world around it.
struct World {
    front: Front,
    tables: Deployed,
    standstill: Standstill,
    clock: Clock,
    _running: Running,
}

impl World {
    async fn start(config: Config, cached: bool) -> Self {
        let (standstill, clock) = (Standstill::default(), Clock::starting_at(BEGAN));
        let tables = Deployed::start().await;
        let (app, front) = App::with_ports(None, config, tables.ports(cached)).in_process();
        let host = Host::new("count-api").with_clock(clock).with_standstill(standstill.clone());
        let running = Running::start(app, host);
        let front = front.await.expect("the API starts");
        Self { front, tables, standstill, clock, _running: running }
    }

    /// Writes another Region's entry of `p`, and the standing of its entries.
    async fn plant_remote(&self, likes: i64, version: u64, as_of: UnixMillis) {
        let (entry, value) = (post_id("p").in_region(&region("us")), counter(likes, version));
        Regions::new(self.tables.connection()).put_entry(&entry, &(&value).into(), BEGAN).await.unwrap();
        for partition in 0..PARTITIONS {
            let standing = standing(version + 1, as_of, None, &[]);
            stand_remote(self.tables.connection(), "us", partition, Some(&standing)).await;
        }
    }

    async fn plant(&self, likes: i64, version: u64) {
        self.tables.plant(&post_id("p"), counter(likes, version)).await;
    }

    async fn ask(&self, request: hyper::Request<Full<Bytes>>) -> Answer {
        let peer = Peer::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let answer = self.front.answer(request, &peer).await.expect("an answer");
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|_| "a body").unwrap().to_bytes();
        Answer { status: head.status, headers: head.headers, body }
    }

    /// Asks for `target`, of which the client has the edition `tag`.
    async fn ask_again(&self, target: &str, tag: &str) -> Answer {
        self.ask(request("GET", target).header("if-none-match", tag).body(Full::default()).unwrap()).await
    }

    async fn get(&self, target: &str) -> Value {
        self.ask(request("GET", target).body(Full::default()).unwrap()).await.json()
    }

    async fn post(&self, target: &str, body: &'static str) -> Value {
        let batch = request("POST", target).header("content-type", "application/json");
        self.ask(batch.body(Full::from(body)).unwrap()).await.json()["counts"][0].clone()
    }

    /// Returns the first event of a stream.
    async fn event(&self, target: &str) -> Value {
        let peer = Peer::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let asked = request("GET", target).body(Full::<Bytes>::default()).unwrap();
        let mut body = self.front.answer(asked, &peer).await.expect("an answer").into_body();
        let mut text = String::new();
        loop {
            let frame = timeout(60 * SECOND, body.frame()).await.expect("it is told").expect("a frame");
            let frame = frame.map_err(|_| "a frame").unwrap().into_data().expect("data");
            text.push_str(std::str::from_utf8(&frame).unwrap());
            if let Some((data, _)) = text.split_once("data: ").and_then(|(_, data)| data.split_once('\n')) {
                return serde_json::from_str(data).unwrap();
            }
        }
    }

    /// Returns the count of `p` from every route that has one.
    async fn everywhere(&self) -> Vec<(&'static str, Value)> {
        let all = self.get("/v1/posts/p/counters").await["counters"]["likes"].clone();
        vec![
            ("one post", self.get("/v1/posts/p/likes").await),
            ("one post, from memory", self.get("/v1/posts/p/likes").await),
            ("a counter", self.get("/v1/posts/p/counters/likes").await),
            ("its shards", self.get("/v1/posts/p/counters/likes?detail=shards").await),
            ("its Regions", self.get("/v1/posts/p/counters/likes?detail=regions").await),
            ("all counters", all),
            ("a batch", self.post("/v1/likes:batchGet", r#"{"post_ids":["p"]}"#).await),
            (
                "a batch of counters",
                self.post("/v1/counters:batchGet", r#"{"post_ids":["p"],"counters":["likes"]}"#).await,
            ),
            ("a stream", self.event("/v1/posts/p/likes:stream").await),
            ("a stream of counters", self.event("/v1/posts/p/counters:stream").await),
            ("a stream of posts", self.event("/v1/counters:stream?post_id=p").await),
        ]
    }

    /// Checks that every route answers these values in these fields. Some call the value likes.
    async fn say(&self, fields: &[&str], expected: Value) {
        for (route, mut count) in self.everywhere().await {
            if count["value"].is_null() {
                count["value"] = count["likes"].take();
            }
            let said: Value = fields.iter().map(|field| count[*field].clone()).collect();
            assert_eq!(said, expected, "{route}: {count}");
        }
    }
}

fn kept() -> Config {
    Config { local_ttl: SECOND, ..Config::default() }
}

#[tokio::test(start_paused = true)]
async fn a_dead_streamer_an_api_that_stood_still_and_an_open_loss_show_on_every_route() {
    let world = World::start(kept(), true).await;
    world.plant(20, 7).await;
    world.say(&STATED, json!([true, true, BEGAN.0])).await;
    sleep(11 * SECOND).await;
    world.say(&STATED, json!([true, false, BEGAN.0])).await;
    world.tables.stand(&standing(2_000, world.clock.now(), None, &[])).await;
    let moved = world.clock.now().0;
    sleep(2 * SECOND).await;
    world.say(&STATED, json!([true, true, moved])).await;
    world.standstill.begin();
    sleep(11 * SECOND).await;
    world.tables.stand(&standing(3_000, world.clock.now(), None, &[])).await;
    world.say(&STATED, json!([true, false, moved])).await;
    world.standstill.end();
    sleep(2 * SECOND).await;
    world.say(&STATED[..2], json!([true, true])).await;
    world.tables.stand(&standing(4_000, world.clock.now(), Some(3_500), &[9])).await;
    sleep(2 * SECOND).await;
    world.say(&STATED[..2], json!([false, true])).await;
}

#[tokio::test(start_paused = true)]
async fn a_304_says_that_the_count_is_judged_the_same_now() {
    let world = World::start(kept(), false).await;
    world.plant(20, 7).await;
    let known = async |target: &str, tag: &str| world.ask_again(target, tag).await.status.as_u16();
    for target in TARGETS {
        assert_eq!((known(target, "W/\"7.1\"").await, known(target, "W/\"7.1\"").await), (304, 304), "{target}");
    }
    sleep(11 * SECOND).await;
    for target in TARGETS {
        assert_eq!((known(target, "W/\"7.1\"").await, known(target, "W/\"7.1.0\"").await), (200, 304), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_keeps_no_count_for_longer_than_it_is_fresh_and_none_that_is_not_exact_or_not_fresh() {
    let world = World::start(Config { max_age: 6 * SECOND, ..kept() }, true).await;
    world.plant(20, 7).await;
    let said = async |kept: &str| {
        for target in TARGETS {
            // The second answer is from memory. A client that has it already gets the same edition.
            for tag in ["\"x\"", "\"x\"", "*"] {
                let answer = world.ask_again(target, tag).await;
                assert_eq!(
                    (answer.status == 304, answer.header("cache-control")),
                    (tag == "*", Some(kept)),
                    "{target}"
                );
                let timing = answer.header("server-timing").unwrap();
                assert!(["local", "redis;dur="].iter().any(|layer| timing.starts_with(layer)), "{target}: {timing}");
            }
            let timing = world.ask(request("GET", target).body(Full::default()).unwrap()).await;
            assert_eq!(timing.header("server-timing"), Some("local"), "{target}");
        }
    };
    said("public, max-age=6, must-revalidate").await;
    sleep(SECOND * 11 / 2).await;
    said("public, max-age=4, must-revalidate").await;
    sleep(4 * SECOND).await;
    said("no-cache").await;
    sleep(SECOND).await;
    said("no-store").await;
    world.tables.stand(&standing(2_000, world.clock.now(), Some(1_500), &[9])).await;
    sleep(2 * SECOND).await;
    said("no-store").await;
}

#[tokio::test(start_paused = true)]
async fn definitions_that_cannot_be_read_stay_as_they_were_and_no_request_waits_for_them() {
    let world = World::start(kept(), false).await;
    let names = async || {
        let began = Instant::now();
        let listed = world.get("/v1/counters").await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        listed["counters"].as_array().unwrap().len()
    };
    define(world.tables.connection()).await;
    let reads = |fault| world.tables.store.faults([Rule::new(fault).on("GetItem").table("checkpoints")]);
    for fault in [Fault::Outage, Fault::Throttle, Fault::Latency { min_ms: 3_600_000, max_ms: 3_600_000 }] {
        reads(fault);
        sleep(20 * SECOND).await;
        assert_eq!(names().await, 1);
    }
    world.tables.mended();
    sleep(20 * SECOND).await;
    assert_eq!(names().await, 7);
    reads(Fault::Outage);
    sleep(20 * SECOND).await;
    assert_eq!(names().await, 7, "none is taken away");
}

#[tokio::test(start_paused = true)]
async fn other_regions_are_added_up_on_every_route_once_they_are_named_and_those_that_are_behind_are_said() {
    let world = World::start(kept(), true).await;
    world.plant(20, 7).await;
    world.plant_remote(5, 9, BEGAN.minus(8 * SECOND)).await;
    assert_eq!(world.get("/v1/posts/p/likes").await["likes"], json!(20));
    assert_eq!(world.get("/v1/posts/p/counters/likes?detail=regions").await["regions"], json!(null));
    name(world.tables.connection(), &["us", "ap"]).await;
    sleep(3 * SECOND).await;
    let summed = ["value", "exact", "fresh", "behind"];
    world.say(&summed, json!([25, false, false, ["ap"]])).await;
    Regions::new(world.tables.connection()).forget(&region("ap")).await.unwrap();
    sleep(3 * SECOND).await;
    world.say(&summed, json!([25, true, true, null])).await;
    let detailed = world.get("/v1/posts/p/counters/likes?detail=regions").await;
    let as_of = BEGAN.minus(8 * SECOND).0;
    assert_eq!((&detailed["version"], &detailed["as_of"]), (&json!(16), &json!(as_of)));
    let of = |region: &str, count: i64, as_of: u64| json!({"region": region, "count": count, "exact": true, "as_of": as_of, "fresh": true});
    assert_eq!(detailed["regions"], json!([of("eu", 20, BEGAN.0), of("us", 5, as_of)]));
}
