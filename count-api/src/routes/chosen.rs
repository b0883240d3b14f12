//! Extractors (of axum) of what the path of a request names: a post or a hashtag, one of its counters, and a member.
//! They check that the counter is of the kind that the route needs. A path that names no counter means likes.

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use tally_core::definitions::{Definition, SubjectField};
use tally_core::ids::{BadId, CounterId, CounterKind, PostId, UserId};

use super::Api;
use crate::error::{Parameter, Problem, Result};
use crate::value::Subject;

/// The names of a path's parameters.
pub(super) const POST: &str = "post_id";
const HASHTAG: &str = "hashtag";
const COUNTER: &str = "counter";
const MEMBER: &str = "member";
const USER: &str = "user_id";

/// Returns the parameters of a path, each percent-decoded once.
async fn params<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<RawPathParams> {
    RawPathParams::from_request_parts(parts, state).await.map_err(|_| Problem::BadPath)
}

/// Returns the parameter `name`, if the route's path has it.
fn param<'a>(params: &'a RawPathParams, name: &str) -> Option<&'a str> {
    params.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Parses the id that the path has under the first of these names, or else under the second.
fn id<T>(
    params: &RawPathParams,
    [first, second]: [&'static str; 2],
    new: impl FnOnce(&str) -> Result<T, BadId>,
) -> Result<T> {
    let (name, text) = match param(params, first) {
        Some(text) => (first, text),
        None => (second, param(params, second).ok_or(Problem::BadPath)?),
    };
    new(text).map_err(|reason| Problem::BadId { parameter: Parameter::named(name), reason })
}

impl TryFrom<&RawPathParams> for Subject {
    type Error = Problem;

    fn try_from(params: &RawPathParams) -> Result<Self> {
        let of_hashtag = param(params, HASHTAG).is_some();
        let field = if of_hashtag { SubjectField::Hashtag } else { SubjectField::Post };
        Ok(Self { field, id: id(params, [HASHTAG, POST], PostId::new)? })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Subject {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        Self::try_from(&params(parts, state).await?)
    }
}

/// A counter of any kind.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) subject: Subject,
    pub(super) definition: Definition,
}

impl Chosen {
    /// The counter's id.
    pub(super) fn id(&self) -> CounterId {
        self.subject.counter(&self.definition.name)
    }

    fn new(params: &RawPathParams, api: &Api) -> Result<Self> {
        let subject = Subject::try_from(params)?;
        let named = param(params, COUNTER).map(|name| api.defined.named(subject.field, name));
        Ok(Self { definition: named.unwrap_or_else(|| Ok(Definition::likes()))?, subject })
    }

    fn of(kind: CounterKind, params: &RawPathParams, api: &Api) -> Result<Self> {
        let chosen = Self::new(params, api)?;
        if chosen.definition.kind() == kind {
            return Ok(chosen);
        }
        Err(Problem::WrongKind(match kind {
            CounterKind::Set => "the counter is a sum, which has no members",
            CounterKind::Sum => "the counter is a set, which has members",
        }))
    }
}

impl FromRequestParts<Api> for Chosen {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self> {
        Self::new(&params(parts, api).await?, api)
    }
}

/// A sum, or else a set.
#[derive(Clone, Debug)]
pub(super) struct ChosenKind<const IS_SUM: bool>(pub(super) Chosen);

impl<const IS_SUM: bool> FromRequestParts<Api> for ChosenKind<IS_SUM> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self> {
        let kind = if IS_SUM { CounterKind::Sum } else { CounterKind::Set };
        Ok(Self(Chosen::of(kind, &params(parts, api).await?, api)?))
    }
}

/// A set, and a member that it may have.
#[derive(Clone, Debug)]
pub(super) struct ChosenMember(pub(super) Chosen, pub(super) UserId);

impl FromRequestParts<Api> for ChosenMember {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self> {
        let params = params(parts, api).await?;
        let chosen = Chosen::of(CounterKind::Set, &params, api)?;
        Ok(Self(chosen, id(&params, [MEMBER, USER], UserId::new)?))
    }
}
