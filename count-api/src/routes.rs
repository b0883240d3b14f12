//! The routes, put together: what each answers is its module's, what all have in common is here.

mod batch;
mod count;
mod docs;
mod front;
mod like;
mod likers;
mod stream;
mod write;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::HeaderValue;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::put;
use tally_core::ids::ShardCount;
use tally_core::ports::Rows;
use tally_service::Stop;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::cors::CorsLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{self, Access};
use crate::auth::{self, Guard};
use crate::error::{Cause, Problem};
use crate::limits::{self, Rate};
use crate::read::{Reader, Table};
use crate::watch::Watches;

use docs::describe;
pub use front::Front;
use front::{Short, without_origin};
pub use write::Outlet;

/// Answers smaller than this are not worth compressing.
const COMPRESSED_FROM: u64 = 1_024;

/// What handlers work with. Clones share everything.
#[derive(Clone)]
pub struct Api(Arc<Parts>);

/// The parts of an [`Api`].
pub struct Parts {
    /// Counts.
    pub reader: Reader,
    /// The gate of the tables.
    pub table: Arc<Table>,
    /// Rows.
    pub rows: Arc<dyn Rows>,
    /// How many shards a post has.
    pub shards: ShardCount,
    /// Live counts.
    pub watches: Watches,
    /// How often a listener hears that we are there.
    pub heartbeat: Duration,
    /// How caches between us and people may keep a count.
    pub cache_control: HeaderValue,
    /// Where events go, if writes are taken.
    pub outlet: Option<Outlet>,
    /// Shutdown.
    pub stop: Stop,
}

impl From<Parts> for Api {
    fn from(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl std::ops::Deref for Api {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// What all requests pass before they come to a handler.
#[derive(Clone)]
pub struct Gates {
    /// The log and metrics of requests.
    pub access: Access,
    /// Who may read.
    pub readers: Guard,
    /// Who may write.
    pub writers: Guard,
    /// How often one client may read.
    pub read_rate: Rate,
    /// How often one client may write.
    pub write_rate: Rate,
    /// Whose pages may read our answers.
    pub cors: Option<CorsLayer>,
}

/// All routes, behind their gates; `own` are those of whoever embeds us.
pub fn front(api: Api, gates: Gates, own: Router) -> Front {
    let short = Short {
        reader: api.reader.clone(),
        access: gates.access.clone(),
        readers: gates.readers.clone(),
        rate: gates.read_rate.clone(),
        cache_control: api.cache_control.clone(),
        cors: gates.cors.as_ref().map(without_origin),
    };
    Front::new(router(api, gates, own), short)
}

fn router(api: Api, gates: Gates, own: Router) -> Router {
    let (reads, mut document) = reads().split_for_parts();
    let mut routes = guarded(reads, gates.readers, gates.read_rate.clone());
    if api.outlet.is_some() {
        let (writes, described) = writes().split_for_parts();
        document.merge(described);
        routes = routes.merge(guarded(writes, gates.writers, gates.write_rate));
    } else {
        // The path has other methods; that it has not these ones is no reason to say that it has no such method.
        let off = async || Problem::WritesOff;
        routes = routes.route(write::PATH, put(off).delete(off));
    }
    let docs = rated(docs::routes(&describe(document)), gates.read_rate);
    let routes = routes.with_state(api).merge(docs);
    let compressed = SizeAbove::new(COMPRESSED_FROM).and(NotForContentType::SSE).and(NotForContentType::IMAGES);
    let routes = routes
        .merge(own)
        .fallback(async || Problem::NoRoute)
        .method_not_allowed_fallback(async || Problem::NoMethod)
        .layer(DefaultBodyLimit::disable())
        .layer(CompressionLayer::new().compress_when(compressed))
        .layer(from_fn(limits::shape));
    let routes = match gates.cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.layer(CatchPanicLayer::custom(panicked)).layer(from_fn_with_state(gates.access, access::observe))
}

fn reads() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(count::count))
        .routes(routes!(batch::counts))
        .routes(routes!(stream::stream))
        .routes(routes!(like::like))
        .routes(routes!(likers::likers))
}

fn writes() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(write::like, write::unlike))
}

/// `routes` for those with the token, as often as one client may ask. A stranger's guesses are limited as well.
fn guarded(routes: Router<Api>, guard: Guard, rate: Rate) -> Router<Api> {
    let routes = if guard.is_closed() { routes.route_layer(from_fn_with_state(guard, auth::require)) } else { routes };
    rated(routes, rate)
}

/// `routes` as often as one client may ask.
fn rated<S: Clone + Send + Sync + 'static>(routes: Router<S>, rate: Rate) -> Router<S> {
    if rate.is_limited() { routes.route_layer(from_fn_with_state(rate, limits::rate)) } else { routes }
}

/// The document of every route, as it is served when writes are taken.
pub fn document() -> utoipa::openapi::OpenApi {
    let (_, mut document) = reads().split_for_parts();
    document.merge(writes().split_for_parts().1);
    describe(document)
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that the layer asks for")]
fn panicked(payload: Box<dyn std::any::Any + Send>) -> Response {
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Problem::Internal(Cause::new(message.unwrap_or("a panic without a message"))).into_response()
}
