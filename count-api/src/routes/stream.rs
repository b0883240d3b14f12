//! Streams live counts as server-sent events: the likes of a post, all counters of a post or hashtag, or those of up to
//! a hundred posts over one connection. `watch.rs` reads the counts.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use serde::Serialize;
use tally_core::definitions::{Definition, SubjectField};
use tally_core::ids::{CounterId, CounterName, PostId};
use tally_core::milestone::{Ladder, Milestone};
use tally_core::served::Served;
use tally_service::Stop;

use super::chosen::POST;
use super::milestones::Reached;
use super::read::readable;
use super::{Api, Handles};
use crate::answer::{Edition, Editions};
use crate::error::{Parameter, Problem, Result};
use crate::extract::Asked;
use crate::milestones::Milestones;
use crate::value::{Count, CounterValue, Id, Named, Subject};
use crate::watch::Listener;

/// The most posts that one connection listens to.
const MOST: usize = 100;

/// How long a client waits before it reconnects.
const RETRY: Duration = Duration::from_secs(2);

/// The name of a milestone's event. The event has no id: a client reads missed milestones with `readMilestones`.
const MILESTONE: &str = Definition::NOT_A_NAME;

/// The count of a post now and at each change
///
/// Each event's data is a count as `getLikes` answers it. Between changes the stream sends comments, so that it stays open.
/// A client that reconnects with `Last-Event-ID` is sent the count only if its edition is another one.
#[utoipa::path(
    get,
    path = "/v1/posts/{post_id}/likes:stream",
    tag = "counts",
    params(("Last-Event-ID" = Option<String>, Header, description = "The id of the last event seen", example = "57.1")),
    responses(
        (status = 200, body = String, content_type = "text/event-stream", description = "Events until either side ends",
            example = "id: 57.1\ndata: {\"post_id\":\"p-1\",\"likes\":42,\"version\":57,\"exact\":true,\"as_of\":1700000000000,\"fresh\":true}\n\n"),
    ),
)]
pub(super) async fn stream_likes(State(api): State<Api>, subject: Subject, headers: HeaderMap) -> Result<Response> {
    let place = api.watches.admit(1)?;
    let id = CounterId::likes(subject.id);
    let read = api.reader.read(std::slice::from_ref(&id)).await.remove(0)?;
    let listener = api.watches.listen(place, &id, read).resuming(last_event(&headers).and_then(Edition::parse));
    let events = listener.counts().map(move |count| {
        let edition = Edition::of(&count).to_string();
        Event::default().id(edition).data(text(&Count::new(&id.post, count)))
    });
    Ok(answer(&api, until_stopped(&api, events)))
}

/// Every counter of a post now and at each change
///
/// Each event is named after its counter, and its data is what `readCounter` answers. Between changes the stream sends
/// comments, so that it stays open. A client that reconnects with `Last-Event-ID` is sent only what is another edition. An
/// event `milestone` says that a counter has reached a threshold, and who was first, as `readMilestones` does; of one that
/// was reached and left again between two looks it comes when the counter is there again. A counter that is defined
/// meanwhile is in the next connection.
#[utoipa::path(
    get,
    path = "/v1/posts/{post_id}/counters:stream",
    tag = "counters",
    params(
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event seen", example = "57.1_3.1"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream", description = "Events until either side ends",
            example = "retry: 2000\n\nevent: retweets\nid: 57.1_3.1\ndata: {\"post_id\":\"p-1\",\"counter\":\"retweets\",\"value\":42,\"version\":57,\"exact\":true,\"as_of\":1700000000000,\"fresh\":true}\n\n"),
    ),
)]
pub(super) async fn stream_counters(State(api): State<Api>, subject: Subject, headers: HeaderMap) -> Result<Response> {
    let names = names(&api, subject.field);
    let seen = last_event(&headers).and_then(|id| Editions::parse(id, names.len()));
    let seen = seen.unwrap_or_else(|| Editions(vec![None; names.len()]));
    listening(&api, &[subject], &names, Some(seen)).await
}

/// Every counter of up to a hundred posts now and at each change
///
/// One connection for a page of posts. Each event is named after its counter, and its data, with the post's id, is what
/// `readCounter` answers. A client that reconnects is sent every number again. Each post takes the place of a listener.
#[utoipa::path(
    get,
    path = "/v1/counters:stream",
    tag = "counters",
    params(
        ("post_id" = Vec<Id>, Query, description = "The posts, 1 to 100", min_items = 1, max_items = 100, example = json!(["p-1", "p-2"])),
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream", description = "Events until either side ends",
            example = "retry: 2000\n\nevent: retweets\ndata: {\"post_id\":\"p-1\",\"counter\":\"retweets\",\"value\":42,\"version\":57,\"exact\":true,\"as_of\":1700000000000,\"fresh\":true}\n\n"),
    ),
)]
pub(super) async fn stream_counters_of_posts(
    State(api): State<Api>,
    Asked(asked): Asked<Vec<(String, String)>>,
) -> Result<Response> {
    listening(&api, &posts_of(&asked)?, &names(&api, SubjectField::Post), None).await
}

/// Parses the posts of a query and drops repeated ones.
fn posts_of(asked: &[(String, String)]) -> Result<Vec<Subject>> {
    let bad = |why: String| Problem::BadQuery { parameter: Some(Parameter::named(POST)), why };
    let mut posts: Vec<Subject> = Vec::new();
    for (index, (name, id)) in asked.iter().enumerate() {
        if name != POST {
            return Err(bad(format!("it is the only parameter, and {:?} is another", crate::error::quoted(name))));
        }
        let id = PostId::new(id);
        let id = id.map_err(|reason| Problem::BadId { parameter: Parameter::element(POST, index), reason })?;
        if !posts.iter().any(|post| post.id == id) {
            posts.push(Subject::post(id));
        }
        if posts.len() > MOST {
            return Err(bad(format!("more than {MOST} posts")));
        }
    }
    if posts.is_empty() { Err(bad("it is missing".to_owned())) } else { Ok(posts) }
}

fn names(api: &Handles, subject: SubjectField) -> Vec<CounterName> {
    api.defined.of(subject).into_iter().map(|definition| definition.name).collect()
}

/// An event. For a change, also the index of the counter's name and its edition.
struct Told {
    event: Event,
    change: Option<(usize, Edition)>,
}

/// The body of an event that says that a threshold was just reached.
#[derive(Debug, Serialize)]
struct JustReached {
    #[serde(flatten)]
    subject: Named,
    counter: String,
    #[serde(flatten)]
    reached: Reached,
}

/// A counter that a client listens to. It yields changes, and after each the thresholds that the counter has reached.
struct Heard {
    listener: Listener,
    stop: Stop,
    subject: Subject,
    id: CounterId,
    /// The index of the counter's name.
    counter: usize,
    milestones: Milestones,
    ladder: Ladder,
    /// The counter's version when the client began to listen. Milestones up to it are not news.
    since: u64,
    /// The greatest threshold that the client knows.
    greatest: i64,
    /// This Region's part of the count that was sent last, until its thresholds are sent.
    untold: Option<Served>,
}

impl Heard {
    /// Returns the next events. A change does not wait for the thresholds, which have to be read.
    async fn next(&mut self) -> Option<Vec<Told>> {
        if let Some(served) = self.untold.take() {
            return Some(self.reached(served).await);
        }
        let count = self.stop.unless_requested(self.listener.next()).await.ok()??;
        self.untold = Some(*count.own());
        let change = Some((self.counter, Edition::of(&count)));
        let value = CounterValue::new(&self.subject, &self.id.name, count);
        Some(vec![Told { event: Event::default().event(self.id.name.as_str()).data(text(&value)), change }])
    }

    /// Returns events for newly reached thresholds above the greatest known one. If they cannot be read now, the next
    /// change reads them.
    async fn reached(&mut self, served: Served) -> Vec<Told> {
        let known = self.greatest;
        if self.ladder.above(Some(known)).is_none_or(|next| served.likes < next) {
            return Vec::new();
        }
        let Ok(recorded) = self.milestones.at(&self.id, served.version).await else { return Vec::new() };
        self.greatest = recorded.last().map_or(known, |(milestone, _)| milestone.n.max(known));
        let is_news = |milestone: &Milestone| milestone.n > known && milestone.version > self.since;
        let news = recorded.iter().filter(|(milestone, _)| is_news(milestone));
        let told = news.map(|(milestone, exact)| {
            let (subject, counter) = (Named::from(&self.subject), self.id.name.to_string());
            let reached = JustReached { subject, counter, reached: Reached::new(milestone, *exact) };
            Told { event: Event::default().event(MILESTONE).data(text(&reached)), change: None }
        });
        told.collect()
    }
}

/// Sends the counters `names` of `subjects` as events until the process stops. Each event has an id if `seen` says which
/// editions the client has, and these are left out. A count that was sent is still followed by the thresholds that it
/// reached. A damaged counter is left out.
async fn listening(
    api: &Handles,
    subjects: &[Subject],
    names: &[CounterName],
    mut seen: Option<Editions>,
) -> Result<Response> {
    let place = api.watches.admit(subjects.len())?;
    let wanted: Vec<_> = subjects.iter().flat_map(|subject| names.iter().map(move |name| (subject, name))).collect();
    let ids: Vec<_> = wanted.iter().map(|(subject, name)| subject.counter(name)).collect();
    let read = api.reader.read(&ids).await;
    let defined = api.defined.all();
    // Counts are sent even if the ladder cannot be read.
    let ladder = api.milestones.ladder_for_listeners().await.unwrap_or_default();
    let mut counters: Vec<BoxStream<'static, Told>> = Vec::with_capacity(ids.len());
    for (nth, (id, read)) in ids.into_iter().zip(read).enumerate() {
        let Some(numbers) = readable(&id, read)? else { continue };
        let value = numbers.own.value;
        let counter = nth % names.len().max(1);
        let known = seen.as_ref().and_then(|seen| seen.0[counter]);
        let listener = api.watches.listen(place.clone(), &id, numbers).resuming(known);
        let has_milestones = defined.named(id.name.as_str()).is_some_and(Definition::has_milestones);
        let ladder = if has_milestones { ladder } else { Ladder::default() };
        let heard = Heard {
            listener,
            stop: api.stop.clone(),
            subject: wanted[nth].0.clone(),
            id,
            counter,
            milestones: api.milestones.clone(),
            ladder,
            since: value.version.stored(),
            greatest: ladder.crossed(None, value.likes).thresholds.last().copied().unwrap_or(0),
            untold: None,
        };
        let told = stream::unfold(heard, |mut heard| async move { Some((stream::iter(heard.next().await?), heard)) });
        counters.push(told.flatten().boxed());
    }
    // Even without any counter the stream stays open; if it ended, clients would reconnect again and again.
    let told = stream::select_all(counters).chain(until_stopped(api, stream::pending()));
    let events = told.map(move |Told { event, change }| match (change, &mut seen) {
        (Some((counter, edition)), Some(seen)) => {
            seen.0[counter] = Some(edition);
            event.id(seen.to_string())
        }
        _ => event,
    });
    let retry = stream::once(async { Event::default().retry(RETRY) });
    Ok(answer(api, retry.chain(events)))
}

/// Returns the JSON of an event's data.
fn text(said: &impl Serialize) -> String {
    serde_json::to_string(said).expect("texts and numbers always serialise")
}

/// Returns the id of the last event that a reconnecting client saw.
pub(super) fn last_event(headers: &HeaderMap) -> Option<&str> {
    headers.get("last-event-id")?.to_str().ok()
}

/// Returns `events` up to the time when the process is to stop.
pub(super) fn until_stopped<S: Stream>(api: &Handles, events: S) -> impl Stream<Item = S::Item> + use<S> {
    let stop = api.stop.clone();
    events.take_until(async move { stop.requested().await })
}

/// Sends `events` as they come, and a comment after each heartbeat without one.
pub(super) fn answer(api: &Handles, events: impl Stream<Item = Event> + Send + 'static) -> Response {
    let events = Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::new().interval(api.heartbeat));
    // Proxies that buffer would hold events back.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))];
    (unbuffered, events).into_response()
}
