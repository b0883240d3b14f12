//! The counter that a path names: of a post or of a hashtag, and defined.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tally_core::definitions::{Definition, SubjectField};
use tally_core::ids::{CounterId, PostId};

use crate::error::{Parameter, Problem};
use crate::extract::{POST, param, params};
use crate::routes::Api;
use crate::value::Subject;

/// The names of a path's parameters.
const HASHTAG: &str = "hashtag";
const COUNTER: &str = "counter";

impl<S: Send + Sync> FromRequestParts<S> for Subject {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = params(parts, state).await?;
        let of_hashtag = param(&params, HASHTAG).is_ok();
        let (field, name) = if of_hashtag { (SubjectField::Hashtag, HASHTAG) } else { (SubjectField::Post, POST) };
        let id = PostId::new(param(&params, name)?);
        let id = id.map_err(|reason| Problem::BadId { parameter: Parameter::named(name), reason })?;
        Ok(Self { field, id })
    }
}

/// A counter of any kind.
#[derive(Clone, Debug)]
pub(in crate::routes) struct Chosen {
    pub(in crate::routes) subject: Subject,
    pub(in crate::routes) definition: Definition,
}

impl Chosen {
    /// The counter's id.
    pub(in crate::routes) fn id(&self) -> CounterId {
        self.subject.counter(&self.definition.name)
    }
}

impl FromRequestParts<Api> for Chosen {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let subject = Subject::from_request_parts(parts, api).await?;
        let params = params(parts, api).await?;
        let definition = api.defined.named(subject.field, param(&params, COUNTER)?)?;
        Ok(Self { subject, definition })
    }
}
