//! The routes of the page: its files, snapshots and actions. They are merged into the API's own, and its listener lets
//! none but our own pages and programs come to them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::Json;
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use futures_util::{Stream, StreamExt, stream};
use serde::Serialize;
use tally_count_api::extract;
use tally_service::Stop;
use tokio::time::{MissedTickBehavior, interval};

use super::assets::ASSETS;
use super::problem::Problem;
use super::{Command, Snapshot, Stack};

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

#[derive(Serialize)]
struct Done {
    done: String,
}

async fn act(
    State(stack): State<Arc<dyn Stack>>,
    extract::Json(command): extract::Json<Command>,
) -> Result<Json<Done>, Problem> {
    let done = stack.act(command).await?;
    Ok(Json(Done { done }))
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
