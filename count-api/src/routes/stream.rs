//! Live counts of one post, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use tally_core::ids::CounterId;

use super::Api;
use super::schema::Id;
use crate::count::Count;
use crate::error::{Problem, ProblemDocument};
use crate::extract::Post;
use crate::read::Answer;
use crate::watch::Edition;

/// The header in which a client that reconnects names the last event it saw.
pub(super) static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The count of a post now and at each change
///
/// Each event's data is a count as `getLikes` answers it. Between changes the stream sends comments, so that it stays open.
/// A client that reconnects with `Last-Event-ID` is sent the count only if its edition is another one.
#[utoipa::path(
    get,
    path = "/v1/posts/{post_id}/likes:stream",
    operation_id = "streamLikes",
    tag = "counts",
    params(
        ("post_id" = Id, Path, description = "The post", example = "p-1"),
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event seen", example = "57.1"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream", description = "Events until either side ends",
            example = "id: 57.1\ndata: {\"post_id\":\"p-1\",\"likes\":42,\"version\":57,\"exact\":true,\"as_of\":1700000000000,\"fresh\":true}\n\n"),
        (status = 400, body = ProblemDocument, content_type = "application/problem+json", description = "Not a post's id"),
    ),
)]
pub(super) async fn stream(State(api): State<Api>, Post(post): Post, headers: HeaderMap) -> Result<Response, Problem> {
    let place = api.watches.admit().map_err(|_| Problem::TooManyListeners)?;
    let id = CounterId::likes(post);
    let read = api.reader.read(std::slice::from_ref(&id)).await.remove(0)?;
    let seen = headers.get(&LAST_EVENT_ID).and_then(|id| id.to_str().ok()).and_then(Edition::parse);
    let listener = api.watches.listen(place, &id, read).resuming(seen);
    let events = listener.counts(api.stop.clone()).map(move |answer| event(&id, answer));
    Ok(answer(events, api.heartbeat))
}

/// `events` as they come, and a comment after each `heartbeat` without one.
pub(super) fn answer(events: impl Stream<Item = Event> + Send + 'static, heartbeat: Duration) -> Response {
    let events = Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(heartbeat));
    // Proxies that buffer would hold events back.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))];
    (unbuffered, events).into_response()
}

fn event(id: &CounterId, answer: Answer) -> Event {
    let data = serde_json::to_string(&Count::new(id.post.clone(), answer)).expect("texts and numbers always serialise");
    Event::default().id(Edition::of(&answer).to_string()).data(data)
}
