//! The HTTP routes that a process serves for its operators, on its admin listener: liveness, readiness, metrics and the
//! log level. They must not be public.

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::PrometheusHandle;

use crate::Readiness;
use crate::metrics::process;
use crate::telemetry::{Filter, Level};

const BODY_BYTES: usize = 64 * 1024;

/// Returns the routes `/livez`, `/readyz`, `/metrics` and `/log-level`, and a service's `own` ones.
pub fn routes(readiness: Readiness, exposition: PrometheusHandle, level: Level, own: Router) -> Router {
    Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(metrics).with_state(exposition))
        .route("/log-level", get(log_level).put(set_log_level).with_state(level))
        .merge(own)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
}

async fn readyz(State(readiness): State<Readiness>) -> impl IntoResponse {
    let report = readiness.report();
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report))
}

async fn metrics(State(exposition): State<PrometheusHandle>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], exposition.render() + &process::render())
}

async fn log_level(State(level): State<Level>) -> String {
    format!("{}\n", level.filter())
}

/// Changes the log level. Safe to repeat. A browser sends an `Origin` header with a PUT, and no web page has a reason
/// to change the log level.
async fn set_log_level(State(level): State<Level>, headers: HeaderMap, body: String) -> Response {
    if headers.contains_key(header::ORIGIN) {
        return (StatusCode::FORBIDDEN, "web pages may not change the log level\n").into_response();
    }
    if body.trim().is_empty() {
        let missing = "not a log level: the body is empty: send a level, such as info\n";
        return (StatusCode::BAD_REQUEST, missing).into_response();
    }
    match body.trim().parse::<Filter>() {
        Ok(filter) => {
            tracing::warn!(from = %level.filter(), to = %filter, "changing the log level");
            level.set(filter);
            log_level(State(level)).await.into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("not a log level: {error}\n")).into_response(),
    }
}
