//! Tests of recounts that run until stopped, and of their routes over HTTP.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tally_batch_recount::Rules;
use tally_core::audit::{QueueReason, RunScope};
use tally_service::{App as _, Condition, Exit, Running};
use tally_testkit::{BEGAN, post, user};
use tower::ServiceExt;

use crate::started::ended;
use crate::world::{World, key, keys};

#[tokio::test(start_paused = true)]
async fn a_watching_process_audits_while_a_loss_is_open_and_when_it_is_asked_to() {
    let world = World::filled(3, 10).await;
    let watching = world.launch(&["--watch"]);
    world.put(&post(0), &user(20), true).await;
    world.lose().await;
    world.eventually("the loss is closed", async || world.open_losses().await.is_empty()).await;
    world.exact(3).await;
    world.drift(&key(&post(1), &user(1)), 7).await;
    let recounts = world.ports().recounts;
    recounts.enqueue_audit(world.clock.now()).await.unwrap();
    world.eventually("the audit is done", async || recounts.audit_queued().await.unwrap().is_none()).await;
    world.exact(3).await;
    let runs = recounts.runs(9).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.scope).collect::<Vec<_>>(), [RunScope::Audit; 2]);
    watching.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_loss_is_closed_while_corrections_of_the_one_before_wait_for_their_second_look() {
    let world = World::filled(3, 10).await;
    let watching = world.launch(&["--watch"]);
    for n in 20..23 {
        world.put(&post(0), &user(n), true).await;
        world.lose().await;
        let lost = tokio::time::Instant::now();
        world.eventually("the loss is closed", async || world.open_losses().await.is_empty()).await;
        assert!(lost.elapsed() < Duration::from_secs(30), "{:?}", lost.elapsed());
        assert_eq!(world.difference(&post(0)).await, None);
    }
    watching.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_watching_process_settles_what_is_queued_beside_an_audit_and_beside_what_is_left() {
    let world = World::filled(4, 10).await;
    let (large, small) = (key(&post(0), &user(1)), key(&post(1), &user(1)));
    world.drift(&large, 5_000).await;
    let watching = world.launch(&["--watch"]);
    let recounts = world.ports().recounts;
    let ask = async |key| recounts.enqueue(key, QueueReason::Asked, world.clock.now()).await.unwrap();
    ask(&large).await;
    world
        .eventually("it was withheld", async || {
            recounts.runs(1).await.unwrap().first().is_some_and(|run| run.summary.left == 1)
        })
        .await;
    // A new request waits neither for row keys that were left, nor for the minute before second looks.
    for _ in 0..3 {
        world.drift(&small, 3).await;
        let asked = tokio::time::Instant::now();
        ask(&small).await;
        world.eventually("it left the queue", async || world.queued().await == [large.clone()]).await;
        assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
        assert_eq!(world.difference(&post(1)).await, None);
    }
    watching.kill().await;
}

/// Starts a watching process that was asked for an audit. Returns it once it waits for this reason, having scanned
/// nothing for ten minutes.
async fn waits(world: &World, why: &str) -> Running {
    world.ports().recounts.enqueue_audit(world.clock.now()).await.unwrap();
    let watching = world.launch_with(&["--watch"], |rules| rules.patience = Duration::from_secs(20));
    let readiness = watching.host().readiness().clone();
    let condition = || format!("{:?}", readiness.report().conditions.get("changes"));
    world.eventually("it waits", async || condition().contains(why)).await;
    let made = async || (world.store.requests("Scan"), world.ports().recounts.runs(99).await.unwrap().len());
    let before = made().await;
    world.beside(tokio::time::sleep(Duration::from_secs(600))).await;
    assert_eq!(made().await, before, "nothing came that could make a difference");
    assert!(!readiness.report().ready, "{:?}", readiness.report());
    watching
}

#[tokio::test(start_paused = true)]
async fn a_watching_process_that_is_behind_says_of_what_and_scans_no_row_before_that_has_come() {
    let world = World::filled(1, 10).await;
    world.drift(&key(&post(0), &user(1)), 2).await;
    world.relays.store(false, Ordering::Relaxed);
    let watching = waits(&world, "does not have all changes of before").await;
    world.relays.store(true, Ordering::Relaxed);
    world.eventually("it is corrected", async || world.difference(&post(0)).await.is_none()).await;
    assert_eq!(watching.host().readiness().report().conditions.get("changes"), Some(&Condition::Ready));
    watching.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_watching_process_waits_by_name_at_a_message_that_cannot_be_read() {
    let world = World::filled(1, 10).await;
    world.folds.store(false, Ordering::Relaxed);
    world.garble();
    let watching = waits(&world, "a message cannot be read").await;
    // Without the message it waits for the folds.
    world.trim().await;
    let readiness = watching.host().readiness().clone();
    let condition = || format!("{:?}", readiness.report().conditions.get("changes"));
    world.eventually("it has looked again", async || condition().contains("which is not in the log")).await;
    watching.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_second_look_leaves_unsettled_is_queued_again() {
    let world = World::filled(1, 10).await;
    let drifting = key(&post(0), &user(1));
    world.drift(&drifting, 2).await;
    let recounts = world.ports().recounts;
    recounts.enqueue(&drifting, QueueReason::Asked, world.clock.now()).await.unwrap();
    let hasty = |rules: &mut Rules| (rules.patience, rules.looks) = (Duration::from_secs(20), 2);
    let watching = world.launch_with(&["--watch"], hasty);
    world.eventually("it left the queue", async || world.queued().await.is_empty()).await;
    // The next look does not see its markers.
    world.relays.store(false, Ordering::Relaxed);
    world.eventually("it is queued again", async || world.queued().await == [drifting.clone()]).await;
    world.relays.store(true, Ordering::Relaxed);
    world.eventually("it left the queue", async || world.queued().await.is_empty()).await;
    assert_eq!(world.difference(&post(0)).await, None);
    watching.kill().await;
    // A run of the queue without a watching process does the same.
    world.drift(&drifting, 2).await;
    recounts.enqueue(&drifting, QueueReason::Asked, world.clock.now()).await.unwrap();
    let running = world.launch_with(&["--candidates-only"], hasty);
    world.eventually("it left the queue", async || world.queued().await.is_empty()).await;
    world.relays.store(false, Ordering::Relaxed);
    assert_eq!(world.beside(ended(running)).await, Exit::FAILED);
    assert_eq!(world.queued().await, [drifting]);
}

#[tokio::test(start_paused = true)]
async fn runs_are_listed_and_asked_for_over_http() {
    let world = World::start().await;
    let routes = world.app(&["--watch"], |_| {}).routes(&world.host("recount"));
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
    assert_eq!(world.queued().await, keys(&post(0)));
    assert!(world.ports().recounts.audit_queued().await.unwrap() >= Some(BEGAN), "by the host's clock");
    for bad in ["{}", r#"{"post_ids":["p-0"],"counters":["views"]}"#, r#"{"post_ids":["\u0001"]}"#, "{"] {
        let (status, problem) = send("POST", "/v1/recounts", bad).await;
        assert_eq!((status, &problem["status"]), (StatusCode::BAD_REQUEST, &json!(400)), "{bad}");
    }
    assert_eq!(send("GET", "/v1/recounts/zz", "").await.0, StatusCode::BAD_REQUEST);
    assert_eq!(send("GET", &format!("/v1/recounts/{}", "0".repeat(32)), "").await.0, StatusCode::NOT_FOUND);
    assert_eq!(world.beside(ended(world.launch(&["--post", "p-0"]))).await, Exit::CLEAN);
    let (_, listed) = send("GET", "/v1/recounts", "").await;
    let run = listed["recounts"][0]["run"].as_str().unwrap().to_owned();
    let (status, shown) = send("GET", &format!("/v1/recounts/{run}"), "").await;
    let left = shown["summary"]["left"].as_u64();
    assert_eq!((status, &shown["scope"], left), (StatusCode::OK, &json!("posts"), Some(0)));
}
