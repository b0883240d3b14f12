//! What an audit finds and what it proves, its modes, and what it leaves alone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use clap::Parser;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tally_adapters::memory::Memory;
use tally_batch_recount::{App, Args, Config};
use tally_core::audit::Cause;
use tally_core::counter::{Counter, ShardTally};
use tally_core::definitions::Definitions;
use tally_core::event::{Action, LikeEvent, decode_value};
use tally_core::fence::Offset;
use tally_core::ids::{RowKey, UserId};
use tally_core::ports::log::{Outgoing, Written};
use tally_core::ports::{Outcome, Producer, QueueReason};
use tally_service::{App as _, Exit, Host};
use tower::ServiceExt;

use crate::weights::{defined, set};
use crate::world::{BEGAN, World, Writer, drifted, ended, eventually, key, post, shards, user};

const POSTS: u64 = 12;

/// Posts with rows, a streamer that has counted them all, and every kind of damage done to some.
async fn damaged(memory: &Memory, world: &World) {
    Writer::new(world, 1).await.fill(0..POSTS, 9).await;
    world.quiet().await;
    let (counts, first) = (memory.counts(), |n| key(&post(n), &user(0)));
    for (n, by) in [(0, 2), (1, 3), (2, -20)] {
        counts.plant(&post(n), drifted(world.counter(&post(n)).await, &first(n), by));
    }
    let missing = Counter { shards: [].into(), likes: 0, ..world.counter(&post(3)).await };
    counts.plant(&post(3), missing);
    counts.plant(&post(4), Counter { likes: 1_000, ..world.counter(&post(4)).await });
    let tally = ShardTally { rows: 5, ..ShardTally::default() };
    let rowless = Counter { likes: 5, version: 1, shards: [(first(0).shard, tally)].into(), ..Counter::default() };
    counts.plant(&post(POSTS), rowless);
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_drift_is_found_named_and_repaired_and_a_second_audit_finds_nothing() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    damaged(&memory, &world).await;
    let own = key(&post(5), &user("lost")).shard;
    let other = shards().all().find(|shard| *shard != own).unwrap();
    memory.likes(shards()).plant(&RowKey { counter: post(5), shard: other }.to_string(), user("lost").as_str());
    world.quiet().await;

    assert_eq!(world.recount(&[]).await, Exit::CLEAN);
    let summary = world.summary().await;
    let found = [Cause::Drift, Cause::Negative, Cause::NoRows, Cause::Total].map(|cause| summary.drift[&cause]);
    assert_eq!(found, [2, 1, 1, 1]);
    assert!(summary.drift[&Cause::MissingCounter] >= 1, "{summary:?}");
    assert_eq!((summary.misplaced_rows, summary.left), (1, 0));
    world.exact(POSTS + 1).await;

    assert_eq!(world.recount(&[]).await, Exit::CLEAN);
    let second = world.summary().await;
    assert_eq!((second.found(), second.windows, second.rows), (0, 0, 9 * POSTS + 1));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_reports_and_writes_nothing() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    damaged(&memory, &world).await;
    assert_eq!(world.recount(&["--dry-run"]).await, Exit::FAILED);
    let summary = world.summary().await;
    assert!(summary.examples.len() >= 6, "{summary:?}");
    assert_eq!(world.counter(&post(4)).await.likes, 1_000);
    assert!(world.difference(&post(0)).await.is_some());
    let marker = world.ports.markers.marker(&key(&post(0), &user(0))).await.unwrap();
    assert_eq!(marker, None);
}

#[tokio::test(start_paused = true)]
async fn counts_that_change_during_the_audit_are_proved_or_recounted_all_the_same() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    damaged(&memory, &world).await;
    let mut writer = Writer::new(&world, 2).await;
    let recount = ended(world.start("live", &[]));
    let mut recount = std::pin::pin!(recount);
    let exit = loop {
        tokio::select! {
            exit = &mut recount => break exit,
            () = tokio::time::sleep(Duration::from_millis(100)) => writer.churn(&post(1), 3, 40).await,
        }
    };
    assert_eq!(exit, Exit::CLEAN);
    world.exact(POSTS + 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_gap_makes_its_audit_queue_repair_everything_and_close_it() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let streamer = world.streamer("s");
    let mut writer = Writer::new(&world, 1).await;
    writer.fill(0..POSTS, 9).await;
    world.quiet().await;
    streamer.kill().await;
    let unlikes: Vec<_> = (0..POSTS).map(|n| (post(n), user(n % 9), Action::Unlike)).collect();
    writer.write(&unlikes).await;
    memory.streams().trim();
    let _watcher = world.start("w", &["--watch"]);
    let _streamer = world.streamer("t");
    eventually("the loss is noticed", async || !world.ports.checkpoints.gaps().await.unwrap().is_empty()).await;
    eventually("the gap is closed", async || world.ports.checkpoints.gaps().await.unwrap().is_empty()).await;
    assert_eq!(world.ports.recounts.audit_queued().await.unwrap(), None);
    world.exact(POSTS).await;
}

#[tokio::test(start_paused = true)]
async fn a_gap_stays_open_while_something_is_left_wrong() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..2, 9).await;
    world.quiet().await;
    let first = key(&post(0), &user(0));
    memory.counts().plant(&post(0), drifted(world.counter(&post(0)).await, &first, 9_000));
    let loss = tally_core::lineage::Loss::FenceReset("likes/0".into());
    world.ports.checkpoints.open_gap(&loss, world.clock.now()).await.unwrap();
    assert_eq!(world.recount(&[]).await, Exit::FAILED);
    assert_eq!(world.ports.checkpoints.gaps().await.unwrap().len(), 1);
    assert_eq!(world.recount(&["--force"]).await, Exit::CLEAN);
    assert_eq!(world.ports.checkpoints.gaps().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_since_is_looked_at_on_request() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..4, 9).await;
    world.quiet().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    Writer::new(&world, 2).await.churn(&post(1), 20, 9).await;
    world.quiet().await;
    let first = |n| key(&post(n), &user(0));
    for n in [1, 2] {
        memory.counts().plant(&post(n), drifted(world.counter(&post(n)).await, &first(n), 1));
    }
    assert_eq!(world.recount(&["--since", "30m"]).await, Exit::CLEAN);
    assert_eq!(world.difference(&post(1)).await, None);
    assert!(world.difference(&post(2)).await.is_some(), "it has not changed for an hour");
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_is_recounted_and_leaves_the_queue_once_it_is_proved() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    Writer::new(&world, 1).await.fill(0..2, 9).await;
    world.quiet().await;
    let (small, large) = (key(&post(0), &user(0)), key(&post(1), &user(0)));
    for (key, by) in [(&small, -30), (&large, 8_000)] {
        memory.counts().plant(&key.counter, drifted(world.counter(&key.counter).await, key, by));
        world.ports.recounts.enqueue(key, QueueReason::Negative, BEGAN).await.unwrap();
    }
    assert_eq!(world.recount(&["--candidates-only"]).await, Exit::FAILED);
    let queued = world.ports.recounts.queued(None).await.unwrap().items;
    let queued: Vec<_> = queued.into_iter().map(|queued| (queued.key, queued.reason)).collect();
    assert_eq!(queued, [(large, QueueReason::Negative)]);
    assert_eq!(world.difference(&post(0)).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_dead_audit_is_continued_by_another_process() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    let _streamer = world.streamer("s");
    damaged(&memory, &world).await;
    let first = world.start("first", &[]);
    tokio::time::sleep(Duration::from_secs(9)).await;
    first.kill().await;
    let run = world.ports.recounts.runs(1).await.unwrap().remove(0);
    assert_eq!(run.ended, None);
    assert_eq!(world.recount(&["--resume", &run.run.to_string()]).await, Exit::CLEAN);
    assert!(world.ports.recounts.run(run.run).await.unwrap().unwrap().ended.is_some());
    world.exact(POSTS + 1).await;
}

/// A record's key and value.
type Record = (String, Vec<u8>);

/// A producer that keeps what it is given.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Record>>>);

#[async_trait]
impl Producer for Kept {
    async fn send(&self, record: Outgoing<'_>) -> Outcome<Written> {
        let key = String::from_utf8(record.key.unwrap().to_vec()).unwrap();
        self.0.lock().unwrap().push((key, record.value.unwrap().to_vec()));
        Ok(Written { partition: 0, offset: Offset(0) })
    }
}

#[tokio::test(start_paused = true)]
async fn an_erasure_produces_an_unlike_for_every_like_and_a_dry_run_none() {
    let memory = Memory::new(BEGAN, 2);
    let kept = Kept::default();
    let world = World::twin(&memory).with(|ports| ports.producer = Some(Arc::new(kept.clone())));
    world.ports.checkpoints.config(Some(shards())).await.unwrap();
    Writer::new(&world, 1).await.fill(0..5, 30).await;
    let taken = || std::mem::take(&mut *kept.0.lock().unwrap());
    assert_eq!(
        world.recount(&["erase", "--user", "u-7", "--brokers", "b:1", "--key", "post-shard"]).await,
        Exit::CLEAN
    );
    let mut keys: Vec<_> = taken().into_iter().map(|(key, _)| key).collect();
    keys.sort();
    assert_eq!(keys, (0..5).map(|n| key(&post(n), &user(7)).to_string()).collect::<Vec<_>>().as_slice());
    assert_eq!(world.recount(&["erase", "--post", "p-2", "--brokers", "b:1"]).await, Exit::CLEAN);
    let unlikes = taken();
    assert_eq!(unlikes.len(), 30);
    for (key, value) in &unlikes {
        let event = decode_value(Some(value), BEGAN, &Definitions::likes_alone()).unwrap();
        assert_eq!((key.as_str(), LikeEvent::of(&event).unwrap().action), ("p-2", Action::Unlike));
    }
    let dry = world.with(|ports| ports.producer = None);
    assert_eq!(dry.recount(&["erase", "--post", "p-2", "--dry-run"]).await, Exit::CLEAN);
    assert!(taken().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_erasure_sends_each_set_its_own_remove_action_and_says_which_sets_have_none() {
    let memory = Memory::new(BEGAN, 2);
    let kept = Kept::default();
    let world = World::twin(&memory).with(|ports| ports.producer = Some(Arc::new(kept.clone())));
    world.ports.checkpoints.config(Some(shards())).await.unwrap();
    assert_eq!(world.ports.checkpoints.define(&Definitions::likes_alone(), &defined()).await, Ok(true));
    for (counter, members) in [
        ("likes", &["u-1", "u-2"][..]),
        ("retweets", &["u-1"]),
        ("replies", &["u-1"]),
        ("followers", &["u-1"]),
        ("viewers", &["u-1", "u-3"]),
    ] {
        for member in members.iter().map(|member| UserId::new(member).unwrap()) {
            memory.likes(shards()).plant(&key(&set(counter), &member).to_string(), &member);
        }
    }
    let erase = async |line: &[&str]| {
        let exit = world.recount(&[&["erase", "--brokers", "b:1"], line].concat()).await;
        let mut said: Vec<_> = std::mem::take(&mut *kept.0.lock().unwrap());
        said.sort();
        let said = said.iter().map(|(_, value)| {
            let event = decode_value(Some(value), BEGAN, &defined()).unwrap();
            let action = serde_json::from_slice::<Value>(value).unwrap()["action"].as_str().unwrap().to_owned();
            format!("{action} {} {}", event.subject(), event.member().unwrap())
        });
        let mut said: Vec<String> = said.collect();
        said.sort();
        (exit, said)
    };
    let users = ["unfollow p-0 u-1", "unlike p-0 u-1", "unretweet p-0 u-1"].map(str::to_owned);
    assert_eq!(erase(&["--user", "u-1"]).await, (Exit::FAILED, users.to_vec()), "as a viewer the user is left");
    let post = ["unlike p-0 u-1", "unlike p-0 u-2", "unreply p-0 u-1", "unretweet p-0 u-1"];
    assert_eq!(erase(&["--post", "p-0"]).await, (Exit::FAILED, post.map(str::to_owned).to_vec()));
    assert_eq!(
        erase(&["--post", "p-0", "--counter", "followers"]).await,
        (Exit::CLEAN, users[..1].to_vec()),
        "a hashtag's"
    );
    let likes = ["unlike p-0 u-1", "unlike p-0 u-2"].map(str::to_owned);
    assert_eq!(erase(&["--post", "p-0", "--counter", "likes"]).await, (Exit::CLEAN, likes.to_vec()));
    for (line, why) in [
        (
            ["--post", "p-0", "--counter", "views"],
            "counter views cannot be erased from: it is a sum, which has no members",
        ),
        (["--user", "u-1", "--counter", "replies"], "counter replies cannot be erased from: its members are no users"),
        (["--post", "p-0", "--counter", "nope"], "there is no counter nope"),
    ] {
        let end = world.start("recount", &[&["erase", "--brokers", "b:1"], &line[..]].concat()).ended().await;
        assert!(end.to_string().ends_with(why), "{end}");
    }
}

#[tokio::test(start_paused = true)]
async fn runs_are_listed_and_asked_for_over_http() {
    let memory = Memory::new(BEGAN, 2);
    let world = World::twin(&memory);
    world.ports.checkpoints.config(Some(shards())).await.unwrap();
    let config = Config::try_from(Args::try_parse_from(["x"]).unwrap()).unwrap();
    let host = Host::new("recount").with_clock(world.clock);
    let routes = App::with_ports(config, world.ports.clone()).routes(&host);
    let send = async |method: &str, path: &str, body: &str| {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let response = routes.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&body).unwrap_or(Value::Null))
    };
    let asked = send("POST", "/v1/recounts", r#"{"post_ids":["p-0"],"audit":true}"#).await;
    assert_eq!(asked, (StatusCode::ACCEPTED, json!({"row_keys_queued": 4, "audit_queued": true})));
    let named = send("POST", "/v1/recounts", r#"{"post_ids":["p-0"],"counters":["likes"]}"#).await;
    assert_eq!(named, (StatusCode::ACCEPTED, json!({"row_keys_queued": 4, "audit_queued": false})));
    assert_eq!(world.ports.recounts.queued(None).await.unwrap().items.len(), 4);
    assert_eq!(world.ports.recounts.audit_queued().await.unwrap(), Some(BEGAN), "by the host's clock");
    for bad in ["{}", r#"{"post_ids":["p-0"],"counters":["views"]}"#, r#"{"post_ids":["\u0001"]}"#, "{"] {
        let (status, problem) = send("POST", "/v1/recounts", bad).await;
        assert_eq!((status, &problem["status"]), (StatusCode::BAD_REQUEST, &json!(400)), "{bad}");
    }
    assert_eq!(send("GET", "/v1/recounts/zz", "").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(send("GET", &format!("/v1/recounts/{}", "0".repeat(32)), "").await.0, StatusCode::NOT_FOUND);
    let _streamer = world.streamer("s");
    world.recount(&["--post", "p-0"]).await;
    let (_, listed) = send("GET", "/v1/recounts", "").await;
    let run = listed["recounts"][0]["run"].as_str().unwrap().to_owned();
    let (status, shown) = send("GET", &format!("/v1/recounts/{run}"), "").await;
    assert_eq!(
        (status, &shown["scope"], shown["summary"]["left"].as_u64()),
        (StatusCode::OK, &json!("posts"), Some(0))
    );
}
