//! What every connection's requests come to: the routes, and before them the short way of what is asked for most, a count
//! in memory, which passes the same gates without the router's machinery.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response};
use axum::{BoxError, Router};
use bytes::Bytes;
use futures_util::future::{Either, ready};
use futures_util::{FutureExt, TryFutureExt};
use http_body_util::{Either as OneOf, Full};
use tally_core::ids::{CounterId, PostId};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::cors::CorsLayer;

use super::count;
use crate::access::{Access, Entry, REQUEST_ID};
use crate::auth::Guard;
use crate::limits::{Peer, Rate};
use crate::read::Reader;

/// The body of an answer: the bytes of a count, or what a route made.
pub(super) type Answer = OneOf<Full<Bytes>, Body>;

/// All routes. Clones share everything.
#[derive(Clone)]
pub struct Front {
    routes: Router,
    short: Short,
}

impl Front {
    pub(super) fn new(routes: Router, short: Short) -> Self {
        Self { routes, short }
    }

    /// The answer to `request`, which came from `peer`.
    pub fn answer<B>(
        &self,
        mut request: Request<B>,
        peer: &Peer,
    ) -> impl Future<Output = Result<Response<Answer>, Infallible>> + Send + use<B>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        if let Some(answer) = self.short.answer(&request, peer) {
            return Either::Left(ready(Ok(answer.map(OneOf::Left))));
        }
        request.extensions_mut().insert(peer.clone());
        Either::Right(self.routes.clone().oneshot(request).map_ok(|answer| answer.map(OneOf::Right)))
    }
}

/// The short way: it answers what it can at once and in full, and leaves everything else to the routes, untouched.
#[derive(Clone)]
pub(super) struct Short {
    pub(super) reader: Reader,
    pub(super) access: Access,
    pub(super) readers: Guard,
    pub(super) rate: Rate,
    pub(super) cache_control: HeaderValue,
    /// Where pages of other origins may read: what an answer says of that to whoever names no origin.
    pub(super) cors: Option<HeaderMap>,
}

impl Short {
    fn answer<B: hyper::body::Body>(&self, request: &Request<B>, peer: &Peer) -> Option<Response<Full<Bytes>>> {
        let began = Instant::now();
        let (path, headers) = (plain(request)?, request.headers());
        if self.cors.is_some() && headers.contains_key(axum::http::header::ORIGIN) {
            return None;
        }
        let shown = self.reader.at_hand(&CounterId::likes(PostId::new(count::post(path)?).ok()?), began)?;
        // Who is refused is refused by the routes: what they say of it is said in one place.
        if !self.readers.admits(headers) || self.rate.admit(Some(peer), headers).is_err() {
            return None;
        }
        let id = self.access.request_id(headers);
        let mut response: Response<Full<Bytes>> = count::answer(shown, headers, &self.cache_control);
        if let Some(cors) = &self.cors {
            response.headers_mut().extend(cors.clone());
        }
        self.access.note(&Entry {
            id: &id,
            method: request.method(),
            path,
            route: Some(count::PATH),
            peer: Some(peer),
            status: response.status(),
            problem: None,
            took: began.elapsed(),
        });
        response.headers_mut().insert(&REQUEST_ID, id);
        Some(response)
    }
}

/// The path of a request that is nothing but a path: no other method, no query, no body, no escapes.
fn plain<B: hyper::body::Body>(request: &Request<B>) -> Option<&str> {
    let (path, query) = (request.uri().path(), request.uri().query());
    let plain = request.method() == Method::GET && query.is_none() && request.body().is_end_stream();
    (plain && !path.contains('%')).then_some(path)
}

/// The headers that `cors` gives the answer to a request without an origin.
pub(super) fn without_origin(cors: &CorsLayer) -> HeaderMap {
    let empty = service_fn(async |_: Request<()>| Ok::<_, Infallible>(axum::http::Response::new(())));
    let answer = cors.layer(empty).oneshot(Request::new(())).now_or_never();
    answer.and_then(Result::ok).map(|answer| answer.into_parts().0.headers).unwrap_or_default()
}
