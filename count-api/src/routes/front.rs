//! The entry of all requests: `server.rs` calls [`Front::answer`]. It checks the host, writes the log and the metrics,
//! and passes the request to the routes. One short way avoids the router: it answers a plain GET of a post's likes, the
//! most frequent request.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, Response, header};
use axum::response::IntoResponse;
use axum::{BoxError, Router};
use bytes::Bytes;
use futures_util::future::{Either, ready};
use futures_util::{FutureExt, TryFutureExt};
use http_body_util::{Either as OneOf, Full};
use tally_core::ids::{CounterId, PostId};
use tally_core::time::UnixMillis;
use tally_service::http::{names_one_host, same_site};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::cors::CorsLayer;

use super::read;
use crate::access::{Access, Entry};
use crate::caching::Caching;
use crate::error::{Problem, Result};
use crate::limits::{Gate, Peer};
use crate::metrics::LIKES;
use crate::read::{Reader, Timing};
use crate::value::Rendered;

/// The body of an answer: the bytes of a count, or the body of a route's answer.
pub type Answer = OneOf<Full<Bytes>, Body>;

/// All routes. Clones share everything.
#[derive(Clone)]
pub struct Front {
    pub(super) access: Access,
    pub(super) own_pages: Option<Arc<[String]>>,
    pub(super) short: Arc<ShortWay>,
    pub(super) routes: Router,
}

impl Front {
    /// Answers `request`, which came from `peer`, and logs and counts it.
    pub fn answer<B>(
        &self,
        mut request: Request<B>,
        peer: &Peer,
    ) -> impl Future<Output = Result<Response<Answer>, Infallible>> + Send + use<B>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let began = Instant::now();
        let id = self.access.request_id(request.headers());
        let short = match self.admits(&request) {
            Ok(()) => self.short.answer(&request, peer).map(|short| (Some(LIKES), short)),
            Err(problem) => Some((None, Short::Answer(problem.into_response().map(OneOf::Right)))),
        };
        match short {
            Some((route, Short::Answer(mut answer))) => {
                let (method, path) = (request.method(), request.uri().path());
                self.access.answered(Entry { id, method, path, route, peer, began }, &mut answer);
                return Either::Left(ready(Ok(answer)));
            }
            Some((route, Short::Read(counter))) => {
                let (short, access, peer) = (Arc::clone(&self.short), self.access.clone(), peer.clone());
                let (asked, _) = request.into_parts();
                return Either::Right(Either::Left(async move {
                    let read = AssertUnwindSafe(short.read(&counter, &asked.headers)).catch_unwind().await;
                    let mut answer = read.unwrap_or_else(|panic| super::panicked(panic).map(OneOf::Right));
                    let (method, path) = (&asked.method, asked.uri.path());
                    access.answered(Entry { id, method, path, route, peer: &peer, began }, &mut answer);
                    Ok(answer)
                }));
            }
            None => {}
        }
        request.extensions_mut().insert(peer.clone());
        let (access, peer) = (self.access.clone(), peer.clone());
        let (method, target) = (request.method().clone(), request.uri().clone());
        Either::Right(Either::Right(self.routes.clone().oneshot(request).map_ok(move |answer| {
            let route = super::route_of(&answer);
            let mut answer = answer.map(OneOf::Right);
            let route = route.as_ref().map(|route| route.as_str());
            let entry = Entry { id, method: &method, path: target.path(), route, peer: &peer, began };
            access.answered(entry, &mut answer);
            answer
        })))
    }

    /// Checks what every request has to fulfil before it is parsed further.
    fn admits<B>(&self, request: &Request<B>) -> Result<()> {
        if !names_one_host(request.version(), request.headers()) {
            return Err(Problem::BadHost);
        }
        let Some(origins) = &self.own_pages else { return Ok(()) };
        let is_named = |origin: &str| origins.iter().any(|named| named == "*" || named == origin);
        same_site::check(request.headers(), is_named).map_err(Problem::Foreign)
    }
}

/// Answers a plain GET of a post's likes without the router, behind the gate of the reads.
pub(super) struct ShortWay {
    pub(super) reader: Reader,
    pub(super) gate: Gate,
    pub(super) caching: Caching,
    /// If other origins are allowed, the headers that CORS adds for a request without an origin.
    pub(super) cors: Option<HeaderMap>,
}

/// The result of [`ShortWay::answer`].
enum Short {
    Answer(Response<Answer>),
    /// The counter that has to be read first.
    Read(CounterId),
}

impl ShortWay {
    fn answer<B: hyper::body::Body>(&self, request: &Request<B>, peer: &Peer) -> Option<Short> {
        let (path, headers) = (plain(request)?, request.headers());
        if self.cors.is_some() && headers.contains_key(header::ORIGIN) {
            return None;
        }
        let id = CounterId::likes(PostId::new(read::post(path)?).ok()?);
        if let Err(problem) = self.gate.admits(Some(peer), headers) {
            return Some(Short::Answer(self.response(Err(problem), headers)));
        }
        Some(match self.reader.rendered_before(&id) {
            Some((rendered, now)) => Short::Answer(self.response(Ok((rendered, Timing::LOCAL, now)), headers)),
            None => Short::Read(id),
        })
    }

    /// Reads the counter, and returns the answer to a request with these headers.
    async fn read(&self, id: &CounterId, headers: &HeaderMap) -> Response<Answer> {
        let read = self.reader.rendered(id).await;
        let now = self.reader.standings().now().wall;
        self.response(read.map(|(rendered, timing)| (rendered, timing, now)), headers)
    }

    /// Returns the answer to a request with these headers, if the count was read at about this time.
    fn response(&self, read: Result<(Rendered, Timing, UnixMillis)>, headers: &HeaderMap) -> Response<Answer> {
        let mut answer = match read {
            Ok((rendered, timing, now)) => {
                let kept = self.caching.of([&rendered.answer], now);
                read::answer(rendered, headers, kept, &timing).map(OneOf::Left)
            }
            Err(problem) => problem.into_response().map(OneOf::Right),
        };
        if let Some(cors) = &self.cors {
            answer.headers_mut().extend(cors.clone());
        }
        answer
    }
}

/// Returns the path of a GET without a query, a body and escapes.
fn plain<B: hyper::body::Body>(request: &Request<B>) -> Option<&str> {
    let (path, query) = (request.uri().path(), request.uri().query());
    let plain = request.method() == Method::GET && query.is_none() && request.body().is_end_stream();
    (plain && !path.contains('%')).then_some(path)
}

/// Returns the headers that `cors` adds to the answer for a request without an origin.
pub(super) fn without_origin(cors: &CorsLayer) -> HeaderMap {
    let empty = service_fn(async |_: Request<()>| Ok::<_, Infallible>(axum::http::Response::new(())));
    let answer = cors.layer(empty).oneshot(Request::new(())).now_or_never();
    answer.and_then(Result::ok).map(|answer| answer.into_parts().0.headers).unwrap_or_default()
}
