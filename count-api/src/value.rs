//! The JSON in which the API answers the value of a counter: the likes of a post, or any other counter of a post or
//! hashtag.

use std::borrow::Cow;

use axum::http::HeaderValue;
use bytes::Bytes;
use serde::Serialize;
use tally_core::definitions::SubjectField;
use tally_core::ids::{CounterId, CounterName, MAX_ID_BYTES, PostId};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::answer::{Answer, Edition, tag};

/// A post or a hashtag, which has counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub field: SubjectField,
    pub id: PostId,
}

impl Subject {
    /// Creates a post.
    pub fn post(id: PostId) -> Self {
        Self { field: SubjectField::Post, id }
    }

    /// Returns the id of its counter `name`.
    pub fn counter(&self, name: &CounterName) -> CounterId {
        CounterId { post: self.id.clone(), name: name.clone() }
    }
}

/// How many users like a post, and how far to trust the number.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Count {
    #[schema(value_type = Id)]
    post_id: String,
    /// How many users like it.
    #[schema(example = 42)]
    likes: u64,
    /// Grows with every change; 0 for a post without likes so far.
    #[schema(example = 57)]
    version: u64,
    /// Whether the likes table is known to have held this number at some moment since `as_of`: it says nothing about how old
    /// the number is. While changes are known to be lost and not repaired yet, no number is exact.
    #[schema(example = true)]
    exact: bool,
    /// Every like and unlike that Kafka had acknowledged by this moment is in the number; milliseconds since the Unix epoch.
    /// 0 where no such moment is known.
    #[schema(example = 1_700_000_000_000_u64)]
    as_of: u64,
    /// Whether `as_of` is as recent as this deployment promises, ten seconds by default. A number that is not fresh is what
    /// was counted by then.
    #[schema(example = true)]
    fresh: bool,
    /// The Regions whose entries make the answer not fresh, or of which nothing is known; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, example = json!(["us"]))]
    behind: Vec<String>,
}

impl Count {
    /// Creates the body for a post.
    pub fn new(post: &PostId, answer: Answer) -> Self {
        let Answer { served, fresh, .. } = answer;
        let (version, exact, as_of) = (served.version, served.exact, served.as_of.0);
        let (post_id, likes) = (post.to_string(), served.shown());
        Self { post_id, likes, version, exact, as_of, fresh, behind: answer.into_behind() }
    }
}

/// A counter's number, and how far to trust it.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Figures {
    /// How many members a set has; what a sum comes to, which may be less than 0.
    #[schema(example = 42)]
    value: i64,
    /// Grows with every change; 0 where nothing was counted so far.
    #[schema(example = 57)]
    version: u64,
    /// Whether the table is known to have held this number at some moment since `as_of`: it says nothing about how old the
    /// number is. While changes are known to be lost and not repaired yet, no number is exact.
    #[schema(example = true)]
    exact: bool,
    /// Every event that Kafka had acknowledged by this moment is in the number; milliseconds since the Unix epoch. 0 where no
    /// such moment is known.
    #[schema(example = 1_700_000_000_000_u64)]
    as_of: u64,
    /// Whether `as_of` is as recent as this deployment promises, ten seconds by default. A number that is not fresh is what
    /// was counted by then.
    #[schema(example = true)]
    fresh: bool,
    /// The Regions whose entries make the answer not fresh, or of which nothing is known; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, example = json!(["us"]))]
    behind: Vec<String>,
}

impl Figures {
    /// Creates the figures of the counter `name`.
    pub fn new(name: &CounterName, answer: Answer) -> Self {
        let Answer { served, fresh, .. } = answer;
        let (version, exact, as_of) = (served.version, served.exact, served.as_of.0);
        Self { value: served.value(name.kind()), version, exact, as_of, fresh, behind: answer.into_behind() }
    }
}

/// Which subject an answer is about, in the field that names such a one.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct Named {
    /// The post; absent where a hashtag was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Id)]
    post_id: Option<String>,
    /// The hashtag; absent where a post was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Id)]
    hashtag: Option<String>,
}

impl From<&Subject> for Named {
    fn from(Subject { field, id }: &Subject) -> Self {
        let is = |asked: SubjectField| (*field == asked).then(|| id.to_string());
        Self { post_id: is(SubjectField::Post), hashtag: is(SubjectField::Hashtag) }
    }
}

/// What one counter of a post or of a hashtag comes to.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct CounterValue {
    #[serde(flatten)]
    subject: Named,
    /// Which counter.
    #[schema(example = "retweets")]
    counter: String,
    #[serde(flatten)]
    figures: Figures,
    /// Whether the member that was asked about is in it, read while the request ran: `as_of` speaks of the number alone.
    /// Absent of a sum, and where no member was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, example = true)]
    pub mine: Option<bool>,
}

impl CounterValue {
    /// Creates the body for the counter `name` of `subject`.
    pub fn new(subject: &Subject, name: &CounterName, answer: Answer) -> Self {
        let (subject, figures) = (Named::from(subject), Figures::new(name, answer));
        Self { subject, counter: name.to_string(), figures, mine: None }
    }
}

/// The bytes of an answer: written once, and sent to all clients that ask while the count is in memory.
#[derive(Clone, Debug)]
pub struct Rendered {
    pub answer: Answer,
    /// The ETag.
    pub tag: HeaderValue,
    pub body: Bytes,
}

impl Rendered {
    /// Writes an answer for a post.
    pub fn new(post: &PostId, answer: Answer) -> Self {
        let (tag, body) = (tag(&Edition::of(&answer)), json(&Count::new(post, answer.clone())).into());
        Self { answer, tag, body }
    }
}

/// Writes an answer in JSON.
pub fn json(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).expect("texts and numbers always serialise")
}

/// No control characters: C0, DEL and C1, in an escape that the regular expressions of every client's language know.
const PATTERN: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";

/// The id of a post, a user or a hashtag, as a schema.
pub(crate) enum Id {}

impl PartialSchema for Id {
    fn schema() -> RefOr<Schema> {
        let description =
            format!("The id of a post or a user: 1 to {MAX_ID_BYTES} bytes of UTF-8 without control characters.");
        let id = ObjectBuilder::new().schema_type(Type::String).description(Some(description));
        id.min_length(Some(1)).max_length(Some(MAX_ID_BYTES)).pattern(Some(PATTERN)).examples(["p-1"]).build().into()
    }
}

impl ToSchema for Id {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Id")
    }
}
