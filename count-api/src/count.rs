//! A count as people are given it: what it says, and the bytes it is sent in.

use axum::http::HeaderValue;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use tally_core::ids::PostId;
use tally_core::served::Served;
use utoipa::ToSchema;

use crate::watch::Edition;

/// How many people like a post, and how far to trust that.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Count {
    /// The post.
    #[serde(serialize_with = "as_text")]
    #[schema(value_type = String, example = "p-1")]
    post_id: PostId,
    /// How many like it.
    #[schema(example = 42)]
    likes: u64,
    /// One more with every change; 0 for a post nobody has liked.
    #[schema(example = 57)]
    version: u64,
    /// Whether nothing says that the number may be wrong. A recount repairs what may.
    #[schema(example = true)]
    exact: bool,
    /// Every change that had reached the likes table by this moment is in the number; milliseconds since the Unix epoch.
    /// A like or unlike still on its way there is not: this says nothing of when somebody pressed the button.
    #[schema(example = 1_700_000_000_000_u64)]
    as_of: u64,
}

impl Count {
    /// The count of `post` as it is shown.
    pub fn new(post_id: PostId, served: &Served) -> Self {
        let Served { version, exact, as_of, .. } = *served;
        Self { post_id, likes: served.shown(), version, exact, as_of: as_of.0 }
    }
}

/// Serialises an id as its text.
pub fn as_text<S: Serializer>(id: &impl AsRef<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(id.as_ref())
}

/// A count in the bytes it is sent in: written once, sent to everybody who asks meanwhile.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Which state of the count it is.
    pub edition: Edition,
    /// The same as a header.
    pub tag: HeaderValue,
    /// The answer's body.
    pub body: Bytes,
}

impl Shown {
    /// The count of `post`, written out.
    pub fn new(post: &PostId, served: &Served) -> Self {
        let edition = Edition::of(served);
        let tag = HeaderValue::from_str(&format!("W/\"{edition}\"")).expect("digits and a dot make a header");
        let body = serde_json::to_vec(&Count::new(post.clone(), served)).expect("texts and numbers always serialise");
        Self { edition, tag, body: body.into() }
    }
}
