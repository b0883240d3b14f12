//! The admin listener's routes: whether the process lives, whether it is ready, what it counts. Never public.

use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};

use crate::Readiness;
use crate::metrics::{Exposition, process};

const BODY_BYTES: usize = 64 * 1024;

/// `/livez`, `/readyz`, `/metrics` and a service's `own` routes.
pub fn routes(readiness: Readiness, exposition: Exposition, own: Router) -> Router {
    Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz).with_state(readiness))
        .route("/metrics", get(metrics).with_state(exposition))
        .merge(own)
        .layer(DefaultBodyLimit::max(BODY_BYTES))
}

async fn readyz(State(readiness): State<Readiness>) -> impl IntoResponse {
    let report = readiness.report();
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(report))
}

async fn metrics(State(exposition): State<Exposition>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], exposition.render() + &process::render())
}
