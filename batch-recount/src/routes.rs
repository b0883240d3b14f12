//! The admin listener's routes for recounts: they list runs with their summaries, and queue requests for more.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tally_adapters::dynamodb;
use tally_core::audit::{AuditRun, QueueReason, RunRecord};
use tally_core::fault::Fault;
use tally_core::ids::PostId;
use tally_service::Clock;

use crate::calls::at_once;
use crate::settle::{chosen, row_keys};

/// How many runs are listed.
const LISTED: u32 = 100;
/// How many posts one request may ask for.
const POSTS: usize = 100;
/// How many row keys are queued at once.
const AT_ONCE: usize = 64;

/// What the routes read and write.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) recounts: dynamodb::Recounts,
    pub(crate) deployment: dynamodb::Checkpoints,
    pub(crate) clock: Clock,
}

/// Returns the routes under `/v1/recounts`.
pub(crate) fn routes(desk: Desk) -> Router {
    Router::new().route("/v1/recounts", get(list).post(ask)).route("/v1/recounts/{run}", get(one)).with_state(desk)
}

/// A request for recounts: of posts, all their counters or those named, or of everything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default)]
    post_ids: Vec<String>,
    #[serde(default)]
    counters: Vec<String>,
    #[serde(default)]
    audit: bool,
}

async fn list(State(desk): State<Desk>) -> Result<Json<Value>, Problem> {
    let runs = desk.recounts.runs(LISTED).await?;
    Ok(Json(json!({"recounts": runs.iter().map(RunRecord::to_json).collect::<Vec<_>>()})))
}

async fn one(State(desk): State<Desk>, Path(run): Path<String>) -> Result<Json<Value>, Problem> {
    let run: AuditRun = run.parse().map_err(|_| Problem::bad(&"a run id is 32 lower-case hexadecimal digits"))?;
    let record = desk.recounts.run(run).await?;
    let missing = || Problem(StatusCode::NOT_FOUND, "there is no such run".to_owned());
    Ok(Json(record.ok_or_else(missing)?.to_json()))
}

/// Queues what is asked for, for a watching process or the next run of the queue. Safe to repeat: a row key is queued
/// once.
async fn ask(
    State(desk): State<Desk>,
    asked: Result<Json<Asked>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let Json(asked) = asked.map_err(|rejection| Problem(rejection.status(), rejection.body_text()))?;
    if asked.post_ids.len() > POSTS || (asked.post_ids.is_empty() && !asked.audit) {
        return Err(Problem::bad(&"ask for 1 to 100 post_ids, or for an audit"));
    }
    let posts = asked.post_ids.iter().map(|post| PostId::new(post)).collect::<Result<Vec<_>, _>>();
    let posts = posts.map_err(|error| Problem::bad(&format!("a post id: {error}")))?;
    let (shards, now) = (desk.deployment.deployed().await?, desk.clock.now());
    let missing = || Problem(StatusCode::SERVICE_UNAVAILABLE, "the deployment is not created yet".to_owned());
    let shards = shards.ok_or_else(missing)?;
    let named = chosen(&desk.deployment.definitions().await?, &asked.counters).map_err(|error| Problem::bad(&error))?;
    let enqueue = |key| {
        let queue = desk.recounts.clone();
        async move { queue.enqueue(&key, QueueReason::Asked, now).await }.boxed()
    };
    let queued = at_once(AT_ONCE, row_keys(&posts, &named, shards).into_iter().map(enqueue)).await?.len();
    if asked.audit {
        desk.recounts.enqueue_audit(now).await?;
    }
    Ok((StatusCode::ACCEPTED, Json(json!({"row_keys_queued": queued, "audit_queued": asked.audit}))))
}

/// An error as `application/problem+json`: its status and what is wrong.
#[derive(Debug)]
struct Problem(StatusCode, String);

impl Problem {
    fn bad(detail: &impl ToString) -> Self {
        Self(StatusCode::BAD_REQUEST, detail.to_string())
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        tracing::warn!(error = %fault, "a request about recounts failed");
        let status =
            if fault.is_retryable() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::INTERNAL_SERVER_ERROR };
        Self(status, "the store did not answer".to_owned())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self(status, detail) = self;
        let title = status.canonical_reason().unwrap_or("error");
        let body = json!({"title": title, "status": status.as_u16(), "detail": detail});
        (status, [(header::CONTENT_TYPE, "application/problem+json")], body.to_string()).into_response()
    }
}
