//! The HTTP routes of the local stack's page: its files, snapshots and actions. They are merged into the API's own,
//! whose listener refuses requests from pages of other sites. The files are embedded: nothing is built, and nothing
//! comes from elsewhere.

use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use futures_util::{Stream, StreamExt, stream};
use serde_json::json;
use tally_count_api::extract;
use tally_service::Stop;
use tokio::time::{MissedTickBehavior, interval};

use crate::page::{Command, Refusal, Snapshot, Stack};

/// What the page may load and where it may be shown: everything from here, nothing inline, never in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Every file, by its path.
pub(super) static ASSETS: [Asset; 11] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", text: include_str!("assets/index.html") },
    Asset { path: "/page.css", kind: "text/css; charset=utf-8", text: include_str!("assets/page.css") },
    Asset { path: "/favicon.svg", kind: "image/svg+xml", text: include_str!("assets/favicon.svg") },
    Asset { path: "/page.js", kind: SCRIPT, text: include_str!("assets/page.js") },
    Asset { path: "/page/dom.js", kind: SCRIPT, text: include_str!("assets/page/dom.js") },
    Asset { path: "/page/live.js", kind: SCRIPT, text: include_str!("assets/page/live.js") },
    Asset { path: "/page/counters.js", kind: SCRIPT, text: include_str!("assets/page/counters.js") },
    Asset { path: "/page/chart.js", kind: SCRIPT, text: include_str!("assets/page/chart.js") },
    Asset { path: "/page/posts.js", kind: SCRIPT, text: include_str!("assets/page/posts.js") },
    Asset { path: "/page/trending.js", kind: SCRIPT, text: include_str!("assets/page/trending.js") },
    Asset { path: "/page/stack.js", kind: SCRIPT, text: include_str!("assets/page/stack.js") },
];

pub(super) struct Asset {
    pub(super) path: &'static str,
    kind: &'static str,
    text: &'static str,
}

impl Asset {
    /// The file, or that the browser has it already.
    pub(super) fn serve(&self, request: &HeaderMap) -> Response {
        let tag = self.tag();
        let has_it = request.get_all(header::IF_NONE_MATCH).iter().any(|tags| names(tags, &tag));
        let headers = [
            (header::ETAG, HeaderValue::from_str(&tag).expect("hexadecimal digits in quotes make a header")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
        ];
        if has_it {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        (headers, [(header::CONTENT_TYPE, self.kind)], self.text).into_response()
    }

    /// Weak: the same file may go out compressed.
    fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("W/\"{:016x}\"", hasher.finish())
    }
}

/// Whether `tag` is one of the `tags` of an `If-None-Match`.
fn names(tags: &HeaderValue, tag: &str) -> bool {
    tags.to_str().is_ok_and(|tags| tags.split(',').any(|one| one.trim() == tag))
}

/// How often an open page gets a snapshot.
const EVERY: Duration = Duration::from_secs(1);

/// How soon a browser that lost its connection tries again.
const RETRY: Duration = Duration::from_secs(1);

/// Snapshots are never cached.
const FRESH: [(HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-store")];

/// The page over `stack`. Its event streams end when `stop` is requested.
pub fn routes(stack: Arc<dyn Stack>, stop: Stop) -> Router {
    let watch = {
        let stack = Arc::clone(&stack);
        async move || (FRESH, Sse::new(events(stack, stop)))
    };
    let files = ASSETS.iter().fold(Router::new(), |files, asset| {
        files.route(asset.path, get(async move |headers: HeaderMap| asset.serve(&headers)))
    });
    files
        .route("/local/events", get(watch))
        .route("/local/state", get(async |State(stack): State<Arc<dyn Stack>>| (FRESH, Json(stack.snapshot()))))
        .route("/local/actions", post(act))
        .with_state(stack)
}

async fn act(State(stack): State<Arc<dyn Stack>>, extract::Json(command): extract::Json<Command>) -> Response {
    match stack.act(command).await {
        Ok(done) => Json(json!({ "done": done })).into_response(),
        Err(error) => problem(&error),
    }
}

/// The answer to an action that was not carried out. The page is served to this machine alone, so causes may be shown.
fn problem(error: &anyhow::Error) -> Response {
    let (status, kind, title) = match error.is::<Refusal>() {
        true => (StatusCode::CONFLICT, "urn:tally:problem:refused", "Not possible now"),
        false => (StatusCode::INTERNAL_SERVER_ERROR, "urn:tally:problem:failed", "Failed"),
    };
    let headers = [(header::CONTENT_TYPE, "application/problem+json"), (header::CACHE_CONTROL, "no-store")];
    let body = json!({"type": kind, "title": title, "status": status.as_u16(), "detail": format!("{error:#}")});
    (status, headers, Json(body)).into_response()
}

/// A snapshot now and each second, until `stop`.
fn events(stack: Arc<dyn Stack>, stop: Stop) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stopping = async move { stop.requested().await };
    stream::unfold((stack, ticks), async |(stack, mut ticks)| {
        ticks.tick().await;
        let event = event(&stack.snapshot());
        Some((Ok(event), (stack, ticks)))
    })
    .take_until(stopping)
}

fn event(snapshot: &Snapshot) -> Event {
    let data = serde_json::to_string(snapshot).expect("texts and numbers always serialise");
    Event::default().retry(RETRY).data(data)
}
