//! The HTTP routes of lists of what is trending: which posts or hashtags gained most in a counter over a window of
//! time, in one region or all.

use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::response::sse::Event;
use futures_util::stream;
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use tally_core::ids::{CounterName, Region};
use tally_service::Clock;
use tally_trends::Place;
use utoipa::IntoParams;

use super::read::{answered, knows};
use super::{Api, Handles, stream as live};
use crate::error::{Parameter, Problem, Result, quoted};
use crate::extract::Asked;
use crate::tops::{Rendered, TopList, Tops, Wanted};
use crate::watch::ListenerPermit;

/// The most items of a list, and how many it has if the query does not say.
const MOST: usize = 100;
const USUAL: usize = 10;

/// The shortest time between two events of one listener.
const PAUSE: Duration = Duration::from_secs(1);

/// The query.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TopQuery {
    /// The counter's name; likes where there is none
    #[param(required = false, value_type = String, example = "likes")]
    counter: Option<String>,
    /// The window of time, one of those that there are: another one is refused with their names
    #[param(required = true, value_type = String, example = "1h")]
    window: Option<String>,
    /// The region; all of them together where there is none
    #[param(required = false, value_type = String, example = "us", pattern = "^[a-z0-9-]{1,32}$")]
    region: Option<String>,
    /// How many, 1 to 100; 10 where nothing is said
    #[param(required = false, value_type = u32, example = 10, minimum = 1, maximum = 100)]
    k: Option<String>,
}

fn bad(name: &'static str, why: String) -> Problem {
    Problem::BadQuery { parameter: Some(Parameter::named(name)), why }
}

impl TopQuery {
    /// Checks the query. Returns which list it asks for.
    fn wanted(&self, api: &Handles, tops: &Tops) -> Result<Wanted> {
        let counter = match self.counter.as_deref() {
            None => CounterName::LIKES,
            Some(name) => {
                let found = api.defined.all().named(name).map(|definition| definition.name.clone());
                found.ok_or_else(|| bad("counter", format!("there is no counter {:?}", quoted(name))))?
            }
        };
        let region = self.region.as_deref().map(|text| {
            Region::new(text).ok_or_else(|| bad("region", "a region has 1 to 32 of a-z, 0-9 and -".to_owned()))
        });
        let k = match self.k.as_deref() {
            None => USUAL,
            Some(text) => {
                let k = text.parse().ok().filter(|k| (1..=MOST).contains(k));
                k.ok_or_else(|| bad("k", format!("must be a number from 1 to {MOST}")))?
            }
        };
        let place = Place { counter, region: region.transpose()? };
        Ok(Wanted { place, window: tops.window(self.window.as_deref())?, k })
    }
}

/// What gained most over a window of time
///
/// What is counted is what the rows gained, so an unlike takes off what its like put on, whichever region it comes from. With
/// `exact` it is proved that the list is what the rows say of that window; otherwise `bound` says how far it may be off, or
/// `reason` why that is not known. The ETag changes with `as_of`, `exact` and which ids are blocked. A region that no event has named has an empty list.
#[utoipa::path(
    get,
    path = "/v1/top",
    tag = "trends",
    params(
        TopQuery,
        ("If-None-Match" = Option<String>, Header, description = "An ETag given before", example = "W/\"1700085602.1\""),
    ),
    responses(
        (status = 200, body = TopList, description = "The list", headers(
            ("etag" = String, description = "The last second that is in it, and whether it is exact"),
            ("cache-control" = String, description = "How long the answer may be kept"),
        )),
        (status = 304, description = "The list is the one already known"),
    ),
)]
pub(super) async fn get_top(
    State(api): State<Api>,
    Asked(query): Asked<TopQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let tops = api.tops.as_ref().ok_or(Problem::ListsOff)?;
    let rendered = tops.top(&query.wanted(&api, tops)?)?;
    let known = knows(&headers, |tag| tag == rendered.edition);
    let body = (!known).then(|| axum::body::Body::from(rendered.body));
    Ok(answered(body, rendered.tag, api.caching.whole.clone()))
}

/// What gained most, now and at each change
///
/// Each event's data is a list as `getTop` answers it. One is sent when the list, a count of it or what is claimed of it has
/// changed, and at most one a second. A client that reconnects with `Last-Event-ID` is sent the list only if it is another one.
#[utoipa::path(
    get,
    path = "/v1/top:stream",
    tag = "trends",
    params(
        TopQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event seen", example = "1700085602.1"),
    ),
    responses(
        (status = 200, body = String, content_type = "text/event-stream", description = "Events until either side ends",
            example = "id: 1700085602.1\ndata: {\"counter\":\"likes\",\"window\":\"24h\",\"from\":1699999200000,\"as_of\":1700085602000,\"exact\":true,\"bound\":0,\"items\":[{\"id\":\"p-1\",\"count\":812}]}\n\n"),
    ),
)]
pub(super) async fn stream_top(
    State(api): State<Api>,
    Asked(query): Asked<TopQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let tops = api.tops.as_ref().ok_or(Problem::ListsOff)?;
    let place = api.watches.admit(1)?;
    let wanted = query.wanted(&api, tops)?;
    let first = tops.top(&wanted)?;
    let is_seen = live::last_event(&headers) == Some(first.edition.as_str());
    let listener = Listener { tops: tops.clone(), wanted, told: is_seen.then(|| first.clone()), _place: place };
    let events = listener.lists(api.clock).map(|rendered| {
        let data = std::str::from_utf8(&rendered.body).expect("JSON is text");
        Event::default().id(rendered.edition.clone()).data(data)
    });
    Ok(live::answer(&api, live::until_stopped(&api, events)))
}

/// A client that listens to one list.
struct Listener {
    tops: Tops,
    wanted: Wanted,
    told: Option<Rendered>,
    _place: ListenerPermit,
}

impl Listener {
    /// Returns the current list, unless the client has it, and each change.
    fn lists(self, clock: Clock) -> impl Stream<Item = Rendered> + Send {
        let moved = self.tops.moved();
        stream::unfold((self, moved, false), move |(mut listener, mut moved, paused)| async move {
            if paused {
                clock.sleep(PAUSE).await;
            }
            loop {
                moved.borrow_and_update();
                if let Ok(rendered) = listener.tops.top(&listener.wanted)
                    && listener.told.as_ref().is_none_or(|told| rendered.differs(told))
                {
                    listener.told = Some(rendered.clone());
                    return Some((rendered, (listener, moved, true)));
                }
                moved.changed().await.ok()?;
            }
        })
    }
}
