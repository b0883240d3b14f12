//! Whether the instance's own service has credentials, by what it answered.

use std::error::Error;

use aws_config::imds::client::error::{ImdsError, TokenError};
use aws_config::meta::ProviderChainError;
use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::{
    orchestrator::HttpResponse,
    result::{ConnectorError, SdkError},
};

/// Whether the instance refuses to give credentials, by its answer or by taking no connection, as one on which the service is
/// switched off: waiting does not mend that. Silence, and an error of its own, do pass.
pub(super) fn has_none(error: &(dyn Error + 'static)) -> bool {
    found::<ImdsError>(error).is_some_and(refuses)
}

fn refuses(error: &ImdsError) -> bool {
    match error {
        ImdsError::FailedToLoadToken(_) => {
            let asked = error.source().and_then(|cause| cause.downcast_ref::<SdkError<TokenError, HttpResponse>>());
            match asked.and_then(SdkError::raw_response) {
                Some(answer) => answer.status().is_client_error(),
                None => takes_no_connection(error),
            }
        }
        ImdsError::ErrorResponse(context) => context.response().status().is_client_error(),
        _ => false,
    }
}

/// Whether what gave no credentials is an instance that took the question, or never got it, and said nothing.
pub(super) fn is_silent(error: &CredentialsError) -> bool {
    let asked = error.source().and_then(|cause| cause.downcast_ref::<ProviderChainError<CredentialsError>>());
    asked.is_some_and(|chain| {
        chain.attempts().iter().any(|attempt| {
            let unanswered = found::<ConnectorError>(attempt.error()).is_some();
            unanswered && !takes_no_connection(attempt.error())
        })
    })
}

fn takes_no_connection(error: &(dyn Error + 'static)) -> bool {
    found::<std::io::Error>(error).is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// What of this type is behind an error.
fn found<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}
