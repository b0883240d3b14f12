//! A count as it is answered: its fields, and the bytes they are sent in.

use axum::http::HeaderValue;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use tally_core::ids::PostId;
use utoipa::ToSchema;

use crate::read::Answer;
use crate::routes::Id;
use crate::watch::Edition;

/// How many users like a post, and how far to trust the number.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Count {
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = Id)]
    post_id: PostId,
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
}

impl Count {
    /// The count of a post.
    pub fn new(post_id: PostId, Answer { served, fresh }: Answer) -> Self {
        let (version, exact, as_of) = (served.version, served.exact, served.as_of.0);
        Self { post_id, likes: served.shown(), version, exact, as_of, fresh }
    }
}

/// Serialises an id as its text.
pub fn as_text<S: Serializer>(id: &impl AsRef<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(id.as_ref())
}

/// An answer's bytes: written once, and sent to all clients that ask while the count is in memory.
#[derive(Clone, Debug)]
pub struct Rendered {
    pub edition: Edition,
    /// The edition as an ETag.
    pub tag: HeaderValue,
    pub body: Bytes,
}

impl Rendered {
    /// The bytes of an answer.
    pub fn new(post: &PostId, answer: Answer) -> Self {
        let edition = Edition::of(&answer);
        let tag = HeaderValue::from_str(&format!("W/\"{edition}\"")).expect("digits and dots make a header");
        let body = serde_json::to_vec(&Count::new(post.clone(), answer)).expect("texts and numbers always serialise");
        Self { edition, tag, body: body.into() }
    }
}
