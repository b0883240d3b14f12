//! What is said of every request: its id, one log event, and its metrics.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use tally_service::Chance;
use tokio::time::Instant;

use crate::error::Answered;
use crate::limits::Peer;
use crate::metrics::Requests;

/// The header with a request's id, taken from the client where it is fit to be logged.
pub static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// How much of a path is logged.
const LOGGED_PATH: usize = 200;

/// What the log and the metrics of requests need.
#[derive(Clone)]
pub struct Access {
    /// Where new ids come from.
    pub chance: Chance,
    /// By route, method and status.
    pub requests: Arc<Requests>,
}

/// The outermost middleware.
pub async fn observe(State(access): State<Access>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = request_id(&request).unwrap_or_else(|| fresh(&access.chance));
    let line = Line::new(&request, id.clone());
    let mut response = next.run(request).await;
    response.headers_mut().insert(&REQUEST_ID, id);
    let took = began.elapsed();
    access.requests.record(line.route(), &line.method, response.status(), took);
    line.write(&response, took.as_secs_f64() * 1e3);
    response
}

/// The id a client gave its request, if it is one that can be logged as it is.
fn request_id(request: &Request) -> Option<HeaderValue> {
    let given = request.headers().get(&REQUEST_ID)?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte);
    ((1..=64).contains(&given.len()) && given.as_bytes().iter().all(plain)).then(|| given.clone())
}

fn fresh(chance: &Chance) -> HeaderValue {
    HeaderValue::from_str(&format!("{:016x}", chance.token())).expect("hexadecimal digits make a header")
}

/// A request as it is logged: kept from before it is answered.
struct Line {
    id: HeaderValue,
    method: Method,
    route: Option<MatchedPath>,
    target: axum::http::Uri,
    peer: Option<Peer>,
}

impl Line {
    fn new(request: &Request, id: HeaderValue) -> Self {
        Self {
            id,
            method: request.method().clone(),
            route: request.extensions().get::<MatchedPath>().cloned(),
            target: request.uri().clone(),
            peer: request.extensions().get::<Peer>().copied(),
        }
    }

    fn route(&self) -> Option<&str> {
        self.route.as_ref().map(MatchedPath::as_str)
    }

    /// The log's only event of an answered request. A query may hold what is nobody's business, so it is left out.
    fn write(&self, response: &Response, millis: f64) {
        let status = response.status();
        let problem = response.extensions().get::<Answered>().map(|answered| &answered.0);
        let path = self.target.path();
        let path = path.get(..LOGGED_PATH).unwrap_or(path);
        let (request, method) = (self.id.to_str().unwrap_or_default(), self.method.as_str());
        let client = self.peer.map(|peer| peer.0.ip());
        macro_rules! event {
            ($level:ident) => {
                tracing::$level!(
                    target: "tally_count_api::access",
                    request,
                    method,
                    path,
                    route = self.route(),
                    status = status.as_u16(),
                    millis,
                    client = client.map(tracing::field::display),
                    problem = problem.map(|problem| problem.name()),
                    cause = problem.and_then(|problem| problem.cause()).map(|cause| cause.as_str()),
                    "request"
                )
            };
        }
        if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
            event!(warn);
        } else {
            event!(info);
        }
    }
}
