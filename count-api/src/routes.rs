//! Puts the routes of the HTTP API together. Each module below answers a group of them; this file has what all share:
//! state, gates and layers.

mod batch;
mod chosen;
mod counters;
mod create;
mod detail;
mod docs;
mod front;
mod hashtags;
mod members;
mod milestones;
mod paging;
mod read;
mod shape;
mod stream;
mod top;
mod writer;
mod writes;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use tally_adapters::dynamodb::Rows;
use tally_core::ids::ShardCount;
use tally_service::{Clock, Stop};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};
use tower_http::cors::CorsLayer;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::access::Access;
use crate::auth::Guard;
use crate::caching::Caching;
use crate::definitions::Defined;
use crate::error::{LoggedCause, Problem, Result};
use crate::limits::Gate;
use crate::milestones::Milestones;
use crate::read::{Reader, TableGate};
use crate::tops::Tops;
use crate::watch::Watches;

use docs::describe;
pub use front::{Answer, Front};
use front::{ShortWay, without_origin};
use hashtags::of_hashtags;
pub use writer::EventWriter;

/// Answers smaller than this are not worth compressing.
const COMPRESSED_FROM: u64 = 1_024;

/// What handlers use.
pub struct Handles {
    pub reader: Reader,
    pub table: Arc<TableGate>,
    pub rows: Rows,
    /// How many shards a post has.
    pub shards: ShardCount,
    /// Which counters there are.
    pub defined: Defined,
    pub watches: Watches,
    pub milestones: Milestones,
    /// How often an idle stream of counts sends a comment.
    pub heartbeat: Duration,
    /// How long browsers and proxies may keep a count.
    pub caching: Caching,
    /// Writes events to Kafka; `None` if writes are off.
    pub writer: Option<EventWriter>,
    pub stop: Stop,
    pub clock: Clock,
    /// The lists of what is trending; `None` if lists are off.
    pub tops: Option<Tops>,
}

impl Handles {
    fn writer(&self) -> Result<&EventWriter> {
        self.writer.as_ref().ok_or(Problem::WritesOff)
    }
}

/// The handlers' state.
pub type Api = Arc<Handles>;

/// What requests pass before they reach a handler.
#[derive(Clone)]
pub struct Gates {
    pub access: Access,
    pub reads: Gate,
    pub writes: Gate,
    /// For createCounter, which takes an administrator's token, or a write token if there are none.
    pub admin: Gate,
    /// If set, only programs and pages of this host and of these origins are answered.
    pub own_pages: Option<Arc<[String]>>,
    /// Which pages of other origins may read our answers.
    pub cors: Option<CorsLayer>,
}

/// Builds all routes behind their gates. `own` are those of the process that embeds this API.
pub fn front(api: Api, gates: Gates, own: Router) -> Front {
    let short = ShortWay {
        reader: api.reader.clone(),
        gate: gates.reads.clone(),
        caching: api.caching.clone(),
        cors: gates.cors.as_ref().map(without_origin),
    };
    let (access, own_pages) = (gates.access.clone(), gates.own_pages.clone());
    Front { access, own_pages, short: Arc::new(short), routes: router(api, gates, own) }
}

fn router(api: Api, gates: Gates, own: Router) -> Router {
    let (reads, mut document) = reads().split_for_parts();
    let mut routes = gates.reads.clone().before(reads);
    let groups = [
        (api.tops.is_some(), gates.reads.clone(), lists(), Problem::ListsOff),
        (api.writer.is_some(), gates.writes, writes(), Problem::WritesOff),
        (api.writer.is_some(), gates.admin, administration(), Problem::WritesOff),
    ];
    for (is_on, gate, group, off) in groups {
        let (group, described) = group.split_for_parts();
        if is_on {
            document.merge(described);
            routes = routes.merge(gate.before(group));
        } else {
            // The paths of members have a GET. Without this a PUT would be answered as an unknown method.
            let refused = from_fn(move |_: Request, _: Next| ready(off.clone()));
            routes = routes.merge(group.route_layer(refused));
        }
    }
    let docs = Gate { guard: Guard::default(), ..gates.reads }.before(docs::routes(&describe(document)));
    let routes = routes.with_state(api).merge(docs);
    let compressed = SizeAbove::new(COMPRESSED_FROM).and(NotForContentType::SSE).and(NotForContentType::IMAGES);
    let routes = routes
        .merge(own)
        .fallback(async || Problem::NoRoute)
        .method_not_allowed_fallback(async || Problem::NoMethod)
        .layer(DefaultBodyLimit::disable())
        .layer(CompressionLayer::new().compress_when(compressed))
        .layer(from_fn(shape::shape));
    let routes = match gates.cors {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    routes.layer(CatchPanicLayer::custom(panicked)).layer(from_fn(name_route))
}

/// Stores the route's name in the answer, for the log and the metrics, which are written outside of the router.
async fn name_route(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut answer = next.run(request).await;
    if let Some(route) = route {
        answer.extensions_mut().insert(route);
    }
    answer
}

/// Returns the route that gave `answer`, if one did.
fn route_of(answer: &Response) -> Option<MatchedPath> {
    answer.extensions().get().cloned()
}

fn reads() -> OpenApiRouter<Api> {
    let of_posts = OpenApiRouter::new()
        .routes(routes!(read::get_likes))
        .routes(routes!(batch::batch_get_likes))
        .routes(routes!(stream::stream_likes))
        .routes(routes!(members::get_like))
        .routes(routes!(members::list_likers))
        .routes(routes!(counters::list_counters))
        .routes(routes!(batch::batch_get_counters))
        .routes(routes!(stream::stream_counters_of_posts));
    of_each_subject(
        of_posts,
        [
            routes!(read::read_counter),
            routes!(read::read_counters),
            routes!(milestones::read_milestones),
            routes!(members::get_member),
            routes!(members::list_members),
            routes!(stream::stream_counters),
        ],
    )
}

fn lists() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(top::get_top)).routes(routes!(top::stream_top))
}

fn writes() -> OpenApiRouter<Api> {
    let likes = OpenApiRouter::new().routes(routes!(writes::put_like, writes::delete_like));
    of_each_subject(likes, [routes!(writes::put_member, writes::delete_member), routes!(writes::write_counter)])
}

fn administration() -> OpenApiRouter<Api> {
    of_each_subject(OpenApiRouter::new(), [routes!(create::create_counter)])
}

/// Adds `routes` of posts to `router`, and the same for hashtags.
fn of_each_subject<const N: usize>(
    router: OpenApiRouter<Api>,
    routes: [UtoipaMethodRouter<Api>; N],
) -> OpenApiRouter<Api> {
    routes.into_iter().fold(router, |router, routes| router.routes(routes.clone()).routes(of_hashtags(routes)))
}

/// Returns the OpenAPI document with all routes, as it is when writes and lists are on.
pub fn document() -> OpenApi {
    let [mut document, others @ ..] =
        [reads(), lists(), writes(), administration()].map(|group| group.split_for_parts().1);
    others.into_iter().for_each(|described| document.merge(described));
    describe(document)
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that the layer asks for")]
fn panicked(payload: Box<dyn std::any::Any + Send>) -> Response {
    let message = payload.downcast_ref::<&str>().copied();
    let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    Problem::Internal(LoggedCause::new(message.unwrap_or("a panic without a message"))).into_response()
}
