//! What handlers take of a request, checked before anything is read or written: ids, queries, JSON bodies.

use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use tally_core::ids::{PostId, UserId};
use tokio::time::timeout;

use crate::error::{IdField, Problem, quoted};

/// The longest body: a hundred ids of 256 bytes, each written with escapes.
pub const BODY_BYTES: usize = 192 * 1024;

/// How much of a body that is too long is read all the same.
const DRAINED_BYTES: usize = 2 * 1024 * 1024;

/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(5);

/// The post of a path, percent-decoded once.
#[derive(Clone, Debug)]
pub struct Post(pub PostId);

/// The post and the user of a path, each percent-decoded once.
#[derive(Clone, Debug)]
pub struct PostAndUser(pub PostId, pub UserId);

impl<S: Send + Sync> FromRequestParts<S> for Post {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(post(&params(parts, state).await?)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PostAndUser {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = params(parts, state).await?;
        let user = UserId::new(param(&params, IdField::User)?);
        let user = user.map_err(|reason| Problem::BadId { field: IdField::User, reason })?;
        Ok(Self(post(&params)?, user))
    }
}

async fn params<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<RawPathParams, Problem> {
    RawPathParams::from_request_parts(parts, state).await.map_err(|_| Problem::BadPath)
}

fn post(params: &RawPathParams) -> Result<PostId, Problem> {
    PostId::new(param(params, IdField::Post)?).map_err(|reason| Problem::BadId { field: IdField::Post, reason })
}

fn param(params: &RawPathParams, field: IdField) -> Result<&str, Problem> {
    let found = params.iter().find(|(name, _)| *name == field.name());
    found.map(|(_, value)| value).ok_or(Problem::BadPath)
}

/// A query string, all of whose parameters the route knows.
#[derive(Clone, Copy, Debug)]
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(asked)| Self(asked)).map_err(|rejection: QueryRejection| {
            let body = rejection.body_text();
            Problem::BadQuery(quoted(body.rsplit(": ").next().unwrap_or_default()).into_owned())
        })
    }
}

/// A JSON body, read within its limits of size and time.
#[derive(Clone, Copy, Debug)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::NotJson);
        }
        let body = timeout(BODY_TIME, read(request.into_body())).await.map_err(|_| Problem::SlowBody)??;
        let read = serde_json::from_slice(&body);
        read.map(Self).map_err(|error| Problem::BadBody(quoted(&error.to_string()).into_owned()))
    }
}

async fn read(body: Body) -> Result<Bytes, Problem> {
    let mut body = Limited::new(body, DRAINED_BYTES).into_data_stream();
    let mut read = BytesMut::new();
    let mut total = 0;
    while let Some(part) = body.next().await {
        let part = part.map_err(|error| match error.is::<LengthLimitError>() {
            true => Problem::BodyTooLarge(BODY_BYTES),
            false => Problem::BadBody("it ended early".to_owned()),
        })?;
        total += part.len();
        // What is too much is dropped as it comes, up to a bound, so that its sender hears the refusal.
        if total <= BODY_BYTES {
            read.extend_from_slice(&part);
        }
    }
    if total <= BODY_BYTES { Ok(read.freeze()) } else { Err(Problem::BodyTooLarge(BODY_BYTES)) }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(Ok(kind)) = headers.get(header::CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}
