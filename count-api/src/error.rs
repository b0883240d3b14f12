//! Every error that the API answers: what is wrong with a request, or with the systems behind it. Each is converted to
//! problem+json of RFC 9457 with a stable `type`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tally_core::ids::BadId;
use thiserror::Error;
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};

/// The beginning of every `type`.
const TYPE: &str = "urn:tally:problem:";

/// The `Retry-After` if the store is down, or this process has too much to do.
const SOON: Duration = Duration::from_secs(1);

/// The part of a request that is wrong: a parameter of its path or query, or a field of its body, or an element of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: Cow<'static, str>,
    /// Its index in a list.
    pub index: Option<usize>,
}

impl Parameter {
    /// Names a whole parameter.
    pub const fn named(name: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), index: None }
    }

    /// Names an element of a list.
    pub const fn element(name: &'static str, index: usize) -> Self {
        Self { name: Cow::Borrowed(name), index: Some(index) }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}[{index}]", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Why a request is refused. The text is for the client, and tells nothing about the systems behind this process.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// No host, or two of them.
    #[error("a request names one host")]
    BadHost,
    /// A page of another site asked a process that answers only its own pages.
    #[error("{0}")]
    Foreign(&'static str),
    /// An id that no post or user can have.
    #[error("{parameter}: {reason}")]
    BadId { parameter: Parameter, reason: BadId },
    /// A path with a `%` that does not begin an escape, or escapes that are not UTF-8.
    #[error("the path is not percent-encoded UTF-8")]
    BadPath,
    /// A path or query longer than any we serve.
    #[error("the path and query have {0} bytes, more than any route takes")]
    PathTooLong(usize),
    /// A query with another parameter or value than the route has.
    #[error("query: {}", about(.parameter.as_ref(), .why))]
    BadQuery { parameter: Option<Parameter>, why: String },
    /// A cursor that this route never gave.
    #[error("cursor: it is not one that this route gave")]
    BadCursor,
    /// A body that is not what the route takes.
    #[error("body: {}", about(.parameter.as_ref(), .why))]
    BadBody { parameter: Option<Parameter>, why: String },
    /// A body that is not declared as JSON.
    #[error("the body must be application/json")]
    NotJson,
    #[error("the body has more than {0} bytes")]
    BodyTooLarge(usize),
    /// A body on a route that reads none.
    #[error("this route takes no body")]
    UnexpectedBody,
    /// A body that did not arrive in time.
    #[error("the body did not arrive in time")]
    SlowBody,
    #[error("a bearer token is required")]
    Unauthorised,
    /// A token that is none of this route's. It is not said whether another route takes it.
    #[error("this route does not take this bearer token")]
    WrongToken,
    #[error("there is no such route")]
    NoRoute,
    /// A counter that is not defined for this kind of subject.
    #[error("there is no such counter")]
    UnknownCounter,
    /// Members of a sum, or amounts of a set.
    #[error("{0}")]
    WrongKind(&'static str),
    /// An action that the counter's definition does not have.
    #[error("{0}")]
    NoAction(&'static str),
    /// Milestones of a sum that has an action to take amounts off.
    #[error("the counter has a remove action: a sum of that kind has no milestones")]
    NoMilestones,
    /// A write to a process that has writes off.
    #[error("this process takes no writes")]
    WritesOff,
    /// A write to a process with neither a write token nor `--open-writes`.
    #[error(
        "writes are closed: start this process with --write-token-file, or with --open-writes to take them from any caller"
    )]
    WritesClosed,
    /// A list of what is trending from a process that has lists off.
    #[error("this process was started without --boards-topic: it has no lists")]
    ListsOff,
    /// The topic of boards is not read yet, or has no lists.
    #[error("no lists are loaded yet")]
    ListsNotLoaded,
    #[error("the route has no such method")]
    NoMethod,
    #[error("too many requests from one client")]
    RateLimited {
        /// The wait until the next one is taken.
        after: Duration,
    },
    /// The table has as many reads under way as are allowed.
    #[error("too many reads are under way")]
    Busy,
    /// Neither memory nor cache have the number, and the table cannot be read.
    #[error("the store cannot be reached")]
    StoreAway(LoggedCause),
    /// Kafka did not acknowledge the event.
    #[error("the event was not acknowledged and may or may not count: send it again")]
    BrokerAway(LoggedCause),
    /// Kafka does not take the event, and answers: the time, the size or a permission is wrong.
    #[error(
        "Kafka refuses the event, and it most likely does not count: a clock, a permission or a size is wrong, as this process logs"
    )]
    EventRefused(LoggedCause),
    /// A write of a counter whose events are taken from another topic than `--topic`.
    #[error("the event was not sent: this process was started with another --topic than the one that is counted")]
    OtherTopic,
    #[error("too many listeners")]
    TooManyListeners,
    #[error("the request failed here")]
    Internal(LoggedCause),
}

/// A result whose error is a problem.
pub type Result<T, E = Problem> = std::result::Result<T, E>;

fn about(parameter: Option<&Parameter>, why: &str) -> String {
    parameter.map_or_else(|| why.to_owned(), |parameter| format!("{parameter}: {why}"))
}

/// What went wrong behind this process. It is logged, and never part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedCause(Arc<str>);

impl LoggedCause {
    pub fn new(cause: &(impl ToString + ?Sized)) -> Self {
        Self(cause.to_string().into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The body of every answer that is an error.
#[derive(Debug, Serialize, ToSchema)]
#[schema(title = "Problem")]
pub struct ProblemDocument {
    /// The kind of problem: stable, for programs.
    #[serde(rename = "type")]
    #[schema(schema_with = problem_type)]
    kind: String,
    /// The same in words.
    #[schema(example = "Bad id")]
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599, example = 400)]
    status: u16,
    /// What is wrong with this request.
    #[schema(example = "post_ids[3]: an id is empty")]
    detail: String,
    /// The parameter, or the member of the body, that is wrong; absent where it is none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, example = "post_ids")]
    parameter: Option<String>,
    /// Where it is a list: the place of the element that is wrong, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u32, example = 3)]
    index: Option<usize>,
}

fn problem_type() -> Schema {
    let types = Problem::every().map(|problem| format!("{TYPE}{}", problem.name()));
    let kinds = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(types));
    let kinds = kinds.description(Some("The kind of problem: stable, for programs."));
    kinds.examples([format!("{TYPE}bad-id")]).build().into()
}

impl Problem {
    /// Returns a problem of each [name](Self::name), from which the document lists the types.
    fn every() -> [Self; 30] {
        let (cause, after) = (LoggedCause::new(""), SOON);
        [
            Self::BadHost,
            Self::Foreign(""),
            Self::BadId { parameter: Parameter::named(""), reason: BadId::Empty },
            Self::BadPath,
            Self::PathTooLong(0),
            Self::BadQuery { parameter: None, why: String::new() },
            Self::BadCursor,
            Self::BadBody { parameter: None, why: String::new() },
            Self::NotJson,
            Self::BodyTooLarge(0),
            Self::UnexpectedBody,
            Self::SlowBody,
            Self::Unauthorised,
            Self::NoRoute,
            Self::UnknownCounter,
            Self::WrongKind(""),
            Self::NoAction(""),
            Self::NoMilestones,
            Self::WritesOff,
            Self::WritesClosed,
            Self::ListsOff,
            Self::ListsNotLoaded,
            Self::NoMethod,
            Self::RateLimited { after },
            Self::Busy,
            Self::StoreAway(cause.clone()),
            Self::BrokerAway(cause.clone()),
            Self::EventRefused(cause.clone()),
            Self::TooManyListeners,
            Self::Internal(cause),
        ]
    }

    /// Returns the status, the last part of the type, and the title.
    fn kind(&self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::BadHost => (StatusCode::BAD_REQUEST, "bad-host", "Bad host"),
            Self::Foreign(_) => (StatusCode::FORBIDDEN, "foreign", "Foreign page"),
            Self::BadId { .. } => (StatusCode::BAD_REQUEST, "bad-id", "Bad id"),
            Self::BadPath => (StatusCode::BAD_REQUEST, "bad-path", "Bad path"),
            Self::PathTooLong(_) => (StatusCode::URI_TOO_LONG, "path-too-long", "Path too long"),
            Self::BadQuery { .. } => (StatusCode::BAD_REQUEST, "bad-query", "Bad query"),
            Self::BadCursor => (StatusCode::BAD_REQUEST, "bad-cursor", "Bad cursor"),
            Self::BadBody { .. } => (StatusCode::BAD_REQUEST, "bad-body", "Bad body"),
            Self::NotJson => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", "Not JSON"),
            Self::BodyTooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", "Body too large"),
            Self::UnexpectedBody => (StatusCode::BAD_REQUEST, "unexpected-body", "Unexpected body"),
            Self::SlowBody => (StatusCode::REQUEST_TIMEOUT, "slow-body", "Slow body"),
            Self::Unauthorised | Self::WrongToken => (StatusCode::UNAUTHORIZED, "unauthorised", "Unauthorised"),
            Self::NoRoute => (StatusCode::NOT_FOUND, "no-route", "No such route"),
            Self::UnknownCounter => (StatusCode::NOT_FOUND, "unknown-counter", "Unknown counter"),
            Self::WrongKind(_) => (StatusCode::CONFLICT, "wrong-kind", "Wrong kind of counter"),
            Self::NoAction(_) => (StatusCode::CONFLICT, "no-action", "No such action"),
            Self::NoMilestones => (StatusCode::UNPROCESSABLE_ENTITY, "no-milestones", "No milestones"),
            Self::WritesOff => (StatusCode::NOT_FOUND, "writes-off", "Writes are off"),
            Self::WritesClosed => (StatusCode::FORBIDDEN, "writes-closed", "Writes are closed"),
            Self::ListsOff => (StatusCode::NOT_FOUND, "lists-off", "Lists are off"),
            Self::ListsNotLoaded => (StatusCode::SERVICE_UNAVAILABLE, "lists-not-loaded", "Lists are not loaded"),
            Self::NoMethod => (StatusCode::METHOD_NOT_ALLOWED, "no-method", "No such method"),
            Self::RateLimited { .. } => (StatusCode::TOO_MANY_REQUESTS, "rate-limited", "Too many requests"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy", "Busy"),
            Self::StoreAway(_) => (StatusCode::SERVICE_UNAVAILABLE, "store-away", "Store away"),
            Self::BrokerAway(_) => (StatusCode::SERVICE_UNAVAILABLE, "broker-away", "Broker away"),
            Self::EventRefused(_) | Self::OtherTopic => {
                (StatusCode::SERVICE_UNAVAILABLE, "event-refused", "Event refused")
            }
            Self::TooManyListeners => (StatusCode::SERVICE_UNAVAILABLE, "too-many-listeners", "Too many listeners"),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error"),
        }
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        self.kind().0
    }

    /// Returns the last part of the type, for logs and metrics: there is a bounded number of them.
    pub fn name(&self) -> &'static str {
        self.kind().1
    }

    /// Returns what went wrong behind this process, if anything did.
    pub fn cause(&self) -> Option<&LoggedCause> {
        match self {
            Self::StoreAway(cause) | Self::BrokerAway(cause) | Self::EventRefused(cause) | Self::Internal(cause) => {
                Some(cause)
            }
            _ => None,
        }
    }

    /// Returns the wrong parameter, if it is one.
    fn parameter(&self) -> Option<Parameter> {
        match self {
            Self::BadId { parameter, .. } => Some(parameter.clone()),
            Self::BadQuery { parameter, .. } | Self::BadBody { parameter, .. } => parameter.clone(),
            Self::BadCursor => Some(Parameter::named("cursor")),
            _ => None,
        }
    }

    /// Returns how long to wait before another try, if one may help.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { after } => Some(*after),
            _ => (self.status() == StatusCode::SERVICE_UNAVAILABLE).then_some(SOON),
        }
    }

    /// Returns the body of the answer.
    pub fn document(&self) -> ProblemDocument {
        let (status, name, title) = self.kind();
        let parameter = self.parameter();
        ProblemDocument {
            kind: format!("{TYPE}{name}"),
            title,
            status: status.as_u16(),
            detail: self.to_string(),
            index: parameter.as_ref().and_then(|parameter| parameter.index),
            parameter: parameter.map(|parameter| parameter.name.into_owned()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::to_vec(&self.document()).expect("texts and a number always serialise");
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        match self {
            Self::Unauthorised | Self::WrongToken => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // The unread rest of the body would be read as the next request.
            Self::BadHost | Self::UnexpectedBody | Self::BodyTooLarge(_) | Self::SlowBody => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        // For the access log.
        response.extensions_mut().insert(self);
        response
    }
}

/// Rounds up to at least one second: `Retry-After: 0` would ask for the next try at once.
fn whole_seconds(span: Duration) -> u64 {
    (span.as_secs() + u64::from(span.subsec_nanos() > 0)).max(1)
}

/// Returns a client's text for an answer: shortened, and without control characters.
pub fn quoted(text: &str) -> Cow<'_, str> {
    const MOST: usize = 120;
    if text.len() <= MOST && !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().filter(|c| !c.is_control()).take(MOST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_has_a_type_of_its_own_and_types_stay() {
        let lines: Vec<String> = Problem::every()
            .iter()
            .map(|problem| format!("{} {}{}", problem.status().as_u16(), TYPE, problem.name()))
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn no_answer_tells_what_went_wrong_behind_this_process() {
        let causes = [Problem::StoreAway, Problem::BrokerAway, Problem::EventRefused, Problem::Internal];
        for problem in causes.map(|problem| problem(LoggedCause::new("canary"))) {
            let body = serde_json::to_string(&problem.document()).unwrap();
            assert!(!body.contains("canary"), "{body}");
        }
    }

    #[test]
    fn a_problem_that_may_pass_names_a_wait_of_at_least_a_second() {
        let header = |problem: Problem| {
            let response = problem.into_response();
            response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(header(Problem::RateLimited { after: Duration::from_millis(2_001) }).as_deref(), Some("3"));
        assert_eq!(header(Problem::RateLimited { after: Duration::ZERO }).as_deref(), Some("1"));
        assert_eq!(header(Problem::Busy).as_deref(), Some("1"));
        assert_eq!(header(Problem::NoRoute), None);
    }

    #[test]
    fn a_quoted_text_is_short_and_one_line() {
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(quoted("a\r\nb\u{85}c"), "abc");
        assert_eq!(quoted(&"é".repeat(500)).chars().count(), 120);
    }
}
