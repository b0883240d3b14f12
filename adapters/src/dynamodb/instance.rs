//! Whether the instance's own service has credentials, by what it answered.

use std::error::Error;

#[cfg(feature = "aws")]
use aws_config::imds::client::error::{ImdsError, TokenError};
#[cfg(feature = "aws")]
use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};

/// Whether the instance refuses to give credentials, as one on which the service is switched off, or cannot be reached:
/// waiting does not mend that. An error of its own does pass.
#[cfg(feature = "aws")]
pub(super) fn has_none(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(answered) = error.downcast_ref::<ImdsError>() {
            return refuses(answered);
        }
        cause = error.source();
    }
    false
}

#[cfg(feature = "aws")]
fn refuses(error: &ImdsError) -> bool {
    match error {
        ImdsError::FailedToLoadToken(_) => {
            let asked = error.source().and_then(|cause| cause.downcast_ref::<SdkError<TokenError, HttpResponse>>());
            let status = asked.and_then(SdkError::raw_response).map(|answer| answer.status().as_u16());
            status.is_none_or(|status| status < 500)
        }
        ImdsError::ErrorResponse(context) => context.response().status().is_client_error(),
        _ => false,
    }
}

/// No instance is asked.
#[cfg(not(feature = "aws"))]
pub(super) fn has_none(_: &(dyn Error + 'static)) -> bool {
    false
}
