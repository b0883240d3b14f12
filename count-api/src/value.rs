//! A counter's value as it is answered: a set's and a sum's, of a post and of a hashtag.

use serde::Serialize;
use tally_core::definitions::SubjectField;
use tally_core::ids::{CounterId, CounterName, PostId};
use utoipa::ToSchema;

use crate::read::Answer;
use crate::routes::Id;

/// What is counted for: a post, or a hashtag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub field: SubjectField,
    pub id: PostId,
}

impl Subject {
    /// A post.
    pub fn post(id: PostId) -> Self {
        Self { field: SubjectField::Post, id }
    }

    /// Its counter of a name.
    pub fn counter(&self, name: &CounterName) -> CounterId {
        CounterId { post: self.id.clone(), name: name.clone() }
    }
}

/// A counter's number, and how far to trust it.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
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
}

impl Figures {
    /// Those of the counter `name`.
    pub fn new(name: &CounterName, Answer { served, fresh }: Answer) -> Self {
        let (version, exact, as_of) = (served.version, served.exact, served.as_of.0);
        Self { value: served.value(name.kind()), version, exact, as_of, fresh }
    }
}

/// Which subject an answer is about, in the field that names such a one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Named {
    /// The post; absent where a hashtag was asked about.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    #[schema(value_type = Id)]
    post_id: Option<PostId>,
    /// The hashtag; absent where a post was asked about.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    #[schema(value_type = Id)]
    hashtag: Option<PostId>,
}

impl From<&Subject> for Named {
    fn from(Subject { field, id }: &Subject) -> Self {
        let is = |asked: SubjectField| (*field == asked).then(|| id.clone());
        Self { post_id: is(SubjectField::Post), hashtag: is(SubjectField::Hashtag) }
    }
}

/// What one counter of a post or of a hashtag comes to.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CounterValue {
    #[serde(flatten)]
    subject: Named,
    /// Which counter.
    #[schema(example = "retweets")]
    counter: String,
    #[serde(flatten)]
    figures: Figures,
    /// Whether the member that was asked about is in it; absent of a sum, and where no member was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, example = true)]
    mine: Option<bool>,
}

impl CounterValue {
    /// The value of `name` of `subject`.
    pub fn new(subject: &Subject, name: &CounterName, answer: Answer) -> Self {
        let (subject, figures) = (Named::from(subject), Figures::new(name, answer));
        Self { subject, counter: name.to_string(), figures, mine: None }
    }

    /// The same, with whether a member is in it.
    #[must_use]
    pub fn with_mine(self, mine: Option<bool>) -> Self {
        Self { mine, ..self }
    }
}

/// Serialises an id that may be absent as its text.
fn as_text<S: serde::Serializer>(id: &Option<PostId>, serializer: S) -> Result<S::Ok, S::Error> {
    id.as_ref().map(PostId::as_str).serialize(serializer)
}
