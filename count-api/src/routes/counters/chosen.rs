//! The counter that a path names: of a post or of a hashtag, defined, and of the kind that the route is for.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use tally_core::definitions::{Definition, SubjectField};
use tally_core::ids::{CounterId, CounterKind, PostId, UserId};

use crate::error::{Parameter, Problem};
use crate::extract::{POST, param, params};
use crate::routes::Api;
use crate::value::Subject;

/// The names of a path's parameters.
const HASHTAG: &str = "hashtag";
const COUNTER: &str = "counter";
const MEMBER: &str = "member";

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

    fn is(&self, kind: CounterKind, otherwise: &'static str) -> Result<(), Problem> {
        if self.definition.kind() == kind { Ok(()) } else { Err(Problem::WrongKind(otherwise)) }
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

/// A set.
#[derive(Clone, Debug)]
pub(in crate::routes) struct ChosenSet(pub(in crate::routes) Chosen);

impl FromRequestParts<Api> for ChosenSet {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let chosen = Chosen::from_request_parts(parts, api).await?;
        chosen.is(CounterKind::Set, "the counter is a sum, which has no members")?;
        Ok(Self(chosen))
    }
}

/// A set, and a member that it may have.
#[derive(Clone, Debug)]
pub(in crate::routes) struct ChosenMember(pub(in crate::routes) Chosen, pub(in crate::routes) UserId);

impl FromRequestParts<Api> for ChosenMember {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let ChosenSet(chosen) = ChosenSet::from_request_parts(parts, api).await?;
        let params = params(parts, api).await?;
        let member = UserId::new(param(&params, MEMBER)?);
        let member = member.map_err(|reason| Problem::BadId { parameter: Parameter::named(MEMBER), reason })?;
        Ok(Self(chosen, member))
    }
}

/// A sum.
#[derive(Clone, Debug)]
pub(in crate::routes) struct ChosenSum(pub(in crate::routes) Chosen);

impl FromRequestParts<Api> for ChosenSum {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let chosen = Chosen::from_request_parts(parts, api).await?;
        chosen.is(CounterKind::Sum, "the counter is a set, which has members")?;
        Ok(Self(chosen))
    }
}
