//! Tests the HTTP routes of the local stack's page over a made-up stack: files, snapshots and actions, and that other
//! pages cannot act.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tally_localstack::page::{Command, Load, Refusal, ShardState, Snapshot, Stack, StreamShard, routes};
use tally_service::Switch;
use tokio::time::timeout;
use tower::ServiceExt;

const HOST: &str = "127.0.0.1:8080";
/// A post's id that would be trouble in HTML, in a path, or in a header.
const HOSTILE: &str = "</script><script>alert('1')</script>\"#%2f\u{1f980}";

/// A stack that is made up: it shows a fixed snapshot and writes down what it was asked to do.
#[derive(Default)]
struct Double {
    asked: Mutex<Vec<Command>>,
}

#[async_trait::async_trait]
impl Stack for Double {
    fn snapshot(&self) -> Snapshot {
        let shard =
            StreamShard { id: "shard-1".to_owned(), parent: None, state: ShardState::Closing, lag_ms: Some(12) };
        Snapshot {
            load: Load { events: 12_345, ..Load::default() },
            rows: 678,
            shards: vec![shard],
            posts: vec![HOSTILE.to_owned()],
            ..Snapshot::default()
        }
    }

    async fn act(&self, command: Command) -> anyhow::Result<String> {
        self.asked.lock().push(command.clone());
        match command {
            Command::StopCache => Err(Refusal("the cache is stopped already".to_owned()).into()),
            Command::Recount => Err(anyhow::anyhow!("the table is away")).context("the recount failed"),
            command => Ok(format!("did {command:?}")),
        }
    }
}

struct Page {
    stack: Arc<Double>,
    switch: Switch,
    router: Router,
}

impl Page {
    fn new() -> Self {
        let (stack, switch) = (Arc::new(Double::default()), Switch::new());
        let router = routes(stack.clone(), switch.stop());
        Self { stack, switch, router }
    }

    async fn ask(&self, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> (StatusCode, HeaderMap, String) {
        self.ask(Request::get(path).body(Body::empty()).unwrap()).await
    }

    /// Posts an action as our page does.
    async fn act(&self, action: &str) -> (StatusCode, HeaderMap, Value) {
        let (status, headers, body) = self.ask(post(HOST, Some(&format!("http://{HOST}")), action)).await;
        (status, headers, serde_json::from_str(&body).unwrap())
    }
}

fn post(host: &str, origin: Option<&str>, action: &str) -> Request<Body> {
    let request = Request::post("/local/actions").header(header::HOST, host);
    let request = request.header(header::CONTENT_TYPE, "application/json");
    let request = match origin {
        Some(origin) => request.header(header::ORIGIN, origin),
        None => request,
    };
    request.body(Body::from(action.to_owned())).unwrap()
}

fn is_problem(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/problem+json")
}

/// The paths of the files that this one names: those of a page from the root, and those that a script imports beside it.
fn named(path: &str, text: &str) -> Vec<String> {
    let (folder, _) = path.rsplit_once('/').unwrap();
    let quoted = text.split('"').filter(|name| [".js", ".css", ".svg"].iter().any(|kind| name.ends_with(kind)));
    quoted
        .map(|name| name.strip_prefix("./").map_or_else(|| name.to_owned(), |name| format!("{folder}/{name}")))
        .collect()
}

#[tokio::test]
async fn every_file_of_the_page_has_its_type_and_a_policy_that_lets_nothing_in_from_elsewhere() {
    let (page, mut known, mut left) = (Page::new(), BTreeSet::new(), vec!["/".to_owned()]);
    while let Some(path) = left.pop() {
        let (status, headers, body) = page.get(&path).await;
        let kind = match path.rsplit_once('.') {
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/html; charset=utf-8",
        };
        assert_eq!((status, headers[header::CONTENT_TYPE].to_str().unwrap()), (StatusCode::OK, kind), "{path}");
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{path}: {policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{path}");
        let elsewhere = body.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{path} names another place");
        let inline = ["<style", " style=", " onclick=", " onload=", "javascript:", "<script>"];
        let found = inline.iter().find(|piece| kind.starts_with("text/html") && body.contains(**piece));
        assert_eq!(found, None, "the policy would stop it");
        left.extend(named(&path, &body).into_iter().filter(|name| known.insert(name.clone())));
    }
    assert_eq!(known.len(), 10, "{known:?}");
}

#[tokio::test]
async fn a_browser_that_has_a_file_is_not_sent_it_again() {
    let page = Page::new();
    let (_, headers, _) = page.get("/page.css").await;
    let tag = headers[header::ETAG].to_str().unwrap().to_owned();
    let again = |tags: &str| Request::get("/page.css").header(header::IF_NONE_MATCH, tags).body(Body::empty()).unwrap();
    let (status, headers, body) = page.ask(again(&format!("W/\"other\", {tag}"))).await;
    assert_eq!((status, body.as_str()), (StatusCode::NOT_MODIFIED, ""));
    assert_eq!(headers[header::ETAG], tag);
    assert_eq!(page.ask(again("W/\"other\"")).await.0, StatusCode::OK);
    assert_ne!(page.get("/").await.1[header::ETAG], tag, "each file has its own");
}

#[tokio::test]
async fn the_state_is_the_snapshot_and_is_never_kept() {
    let (status, headers, body) = Page::new().get("/local/state").await;
    assert_eq!((status, &headers[header::CACHE_CONTROL]), (StatusCode::OK, &"no-store".parse().unwrap()));
    let state: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(state["load"]["events"], 12_345);
    assert_eq!(state["shards"][0]["state"], "closing");
    assert_eq!(state["posts"][0], HOSTILE);
    assert_eq!(state["staleness"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn who_watches_gets_a_snapshot_each_second_until_the_stop() {
    let page = Page::new();
    let request = Request::get("/local/events").body(Body::empty()).unwrap();
    let response = page.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    let mut body = response.into_body();
    let began = tokio::time::Instant::now();
    for seconds in 0..3 {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let event = String::from_utf8(frame.to_vec()).unwrap();
        let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        assert_eq!(serde_json::from_str::<Value>(data).unwrap()["rows"], 678);
        assert_eq!(began.elapsed().as_secs(), seconds);
    }
    page.switch.request();
    let end = timeout(Duration::from_millis(1), body.frame()).await.expect("the stop ends it at once");
    assert!(end.is_none());
}

#[tokio::test]
async fn an_action_reaches_the_stack_as_it_was_asked_for() {
    let action = Command::InjectDrift { post_id: HOSTILE.to_owned(), by: -7 };
    let page = Page::new();
    let (status, _, answer) =
        page.act(&json!({ "action": "inject_drift", "post_id": HOSTILE, "by": -7 }).to_string()).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({ "done": format!("did {action:?}") })));
    assert_eq!(*page.stack.asked.lock(), [action]);
    for (body, action) in [
        (json!({ "action": "start_cache" }), Command::StartCache),
        (json!({ "action": "pause_load", "paused": true }), Command::PauseLoad { paused: true }),
        (json!({ "action": "cut_mirror" }), Command::CutMirror),
        (json!({ "action": "heal_mirror" }), Command::HealMirror),
    ] {
        assert_eq!(serde_json::from_value::<Command>(body).unwrap(), action);
    }
}

#[tokio::test]
async fn an_action_that_there_is_not_is_named_and_reaches_nobody() {
    let page = Page::new();
    let bad = [
        (r#"{"action":"explode"}"#, "explode"),
        (r#"{"action":"kill"}"#, "part"),
        (r#"{"action":"inject_drift","post_id":"p","by":1.5}"#, "1.5"),
        ("recount", "expected value"),
    ];
    for (action, named) in bad {
        let (status, headers, problem) = page.act(action).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{action}");
        assert!(is_problem(&headers) && problem["detail"].as_str().unwrap().contains(named), "{problem}");
    }
    assert_eq!(*page.stack.asked.lock(), []);
}

#[tokio::test]
async fn what_could_not_be_done_says_why() {
    let page = Page::new();
    let (status, headers, problem) = page.act(r#"{"action":"stop_cache"}"#).await;
    assert_eq!((status, is_problem(&headers)), (StatusCode::CONFLICT, true));
    assert_eq!(problem["detail"], "the cache is stopped already");
    let (status, headers, problem) = page.act(r#"{"action":"recount"}"#).await;
    assert_eq!((status, is_problem(&headers)), (StatusCode::INTERNAL_SERVER_ERROR, true));
    assert_eq!(problem["detail"], "the recount failed: the table is away");
    assert_eq!(problem["status"], 500);
}

#[tokio::test]
async fn what_a_form_of_another_page_sends_is_no_action() {
    let page = Page::new();
    let split = r#"{"action":"split_shard"}"#;
    // What a form of another page can send without being asked first.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let mut request = post(HOST, None, split);
        request.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
        assert_eq!(page.ask(request).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    assert_eq!(*page.stack.asked.lock(), []);
    assert_eq!(page.ask(post(HOST, None, split)).await.0, StatusCode::OK, "a program is no page");
}
