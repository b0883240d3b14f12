//! Why an action was not done, as problem+json like the API's own problems.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;

use super::Refusal;

#[derive(Debug)]
pub(super) enum Problem {
    /// It makes no sense as things are.
    Refused(Refusal),
    /// It was tried, and failed.
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Problem {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Refusal>() {
            Ok(refusal) => Self::Refused(refusal),
            Err(error) => Self::Failed(error),
        }
    }
}

#[derive(Serialize)]
struct Document {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, kind, title, detail) = match self {
            Self::Refused(refusal) => {
                (StatusCode::CONFLICT, "urn:tally:problem:refused", "Not possible now", refusal.to_string())
            }
            // The page is served to this machine alone, so causes may be shown.
            Self::Failed(error) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "urn:tally:problem:failed", "Failed", format!("{error:#}"))
            }
        };
        let headers = [(header::CONTENT_TYPE, "application/problem+json"), (header::CACHE_CONTROL, "no-store")];
        (status, headers, Json(Document { kind, title, status: status.as_u16(), detail })).into_response()
    }
}
