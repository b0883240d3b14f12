//! Converts the SDK's errors to [`Fault`]s: [`fault`] for every call, [`of_statement`] for a statement of a batch,
//! [`of_reasons`] for transactions, [`stream`] for the change stream.
//!
//! What matters is whether a request may have been carried out. It may after no answer (a time-out, a broken
//! connection, an answer that cannot be read) and after an internal error of the service. It was not where a refusal
//! names its reason.

use std::error::Error;
use std::iter::successors;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{BatchStatementError, BatchStatementErrorCodeEnum, CancellationReason};
use tally_core::fault::Fault;
use tally_core::ports::StreamFault;

/// Classifies the failure of a call about `what`, usually a table. `Poison` means that the service finds the request
/// itself invalid. Callers may give up a like over it, so an unknown error is fatal instead.
pub(super) fn fault<E: Error + ProvideErrorMetadata + 'static>(what: &str, error: &SdkError<E>) -> Fault {
    match error {
        SdkError::ServiceError(context) => of_service(what, context.err(), context.raw().status().as_u16()),
        SdkError::ConstructionFailure(_) => Fault::Fatal(format!("{what}: {}", in_one_line(error))),
        _ => Fault::Transient(format!("{what}: {}", in_one_line(error))),
    }
}

/// Joins an error and its causes in one line, the outermost first, each once. The SDK's own text also shows how the
/// error is built.
pub(super) fn in_one_line(error: &dyn Error) -> String {
    let mut told: Vec<String> = Vec::new();
    for error in successors(Some(error), |&error| error.source()) {
        let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.is_empty() && told.last().is_none_or(|before| !before.ends_with(&text)) {
            told.push(text);
        }
    }
    told.join(": ")
}

/// Classifies a refusal of a call about `what`.
fn of_service(what: &str, error: &impl ProvideErrorMetadata, status: u16) -> Fault {
    let (code, said) = (error.code().unwrap_or("no error code"), error.message().unwrap_or("no message"));
    let message = format!("{what}: {code}: {said}");
    match of_code(code, message) {
        // The process stood still between signing and sending. With a new signature the service takes the request.
        Fault::Fatal(message) if code == "InvalidSignatureException" && said.contains("expired") => {
            Fault::Transient(message)
        }
        Fault::Fatal(message) if status == 429 => Fault::Throttled(message),
        Fault::Fatal(message) if status >= 500 => Fault::Transient(message),
        fault => fault,
    }
}

/// Classifies a refusal by its code alone. The codes of statements end in other words than those of calls.
fn of_code(code: &str, message: String) -> Fault {
    match code.trim_end_matches("Exception").trim_end_matches("Error") {
        "ProvisionedThroughputExceeded"
        | "Throttling"
        | "RequestLimitExceeded"
        | "LimitExceeded"
        | "TooManyRequests" => Fault::Throttled(message),
        "TransactionConflict"
        | "TransactionInProgress"
        | "ReplicatedWriteConflict"
        | "ResourceInUse"
        | "RequestExpired"
        | "ExpiredToken"
        | "InternalServer"
        // A table that a running process has used is restored, or an operator adopts another one. A start looks for its
        // tables itself.
        | "ResourceNotFound" => Fault::Transient(message),
        "Validation" | "Serialization" => Fault::Poison(message),
        _ => Fault::Fatal(message),
    }
}

/// Classifies the failure of one statement of a batch about `what`.
pub(super) fn of_statement(what: &str, error: &BatchStatementError) -> Fault {
    let code = error.code().map_or("no error code", BatchStatementErrorCodeEnum::as_str);
    of_code(code, format!("{what}: {code}: {}", error.message().unwrap_or("no message")))
}

/// Classifies why a transaction about `what` was cancelled although no condition failed: the worst reason decides.
pub(super) fn of_reasons(what: &str, reasons: &[CancellationReason], said: &str) -> Fault {
    let message = format!("{what}: {said}");
    let codes = reasons.iter().filter_map(CancellationReason::code);
    let causes = codes.filter(|code| !["None", "ConditionalCheckFailed"].contains(code));
    let worst = causes.map(|code| of_code(code, message.clone())).max_by_key(|fault| match fault {
        Fault::Transient(_) => 0,
        Fault::Throttled(_) => 1,
        Fault::Poison(_) => 2,
        Fault::Fatal(_) => 3,
    });
    worst.unwrap_or(Fault::Transient(message))
}

/// Classifies the failure of a read of the change stream.
pub(super) fn stream<E: Error + ProvideErrorMetadata + 'static>(what: &str, error: &SdkError<E>) -> StreamFault {
    match error.as_service_error().and_then(ProvideErrorMetadata::code) {
        Some("TrimmedDataAccessException") => StreamFault::Trimmed,
        Some("ExpiredIteratorException") => StreamFault::Expired,
        Some("ResourceNotFoundException") => StreamFault::Gone,
        _ => StreamFault::Fault(fault(what, error)),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::operation::put_item::PutItemError;
    use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
    use aws_smithy_runtime_api::client::result::ConnectorError;
    use aws_smithy_types::body::SdkBody;
    use aws_smithy_types::error::ErrorMetadata;

    use super::*;

    fn answer(status: u16) -> HttpResponse {
        HttpResponse::new(status.try_into().unwrap(), SdkBody::empty())
    }

    fn said(status: u16, code: &str, message: &str) -> Fault {
        let meta = ErrorMetadata::builder().code(code).message(message).build();
        fault("likes", &SdkError::service_error(PutItemError::generic(meta), answer(status)))
    }

    #[test]
    fn a_refusal_is_classed_by_what_to_do_next() {
        let class = |status, code| said(status, code, "m").class();
        for code in ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"] {
            assert_eq!(class(400, code), "throttled", "{code}");
        }
        for (status, code) in [
            (400, "TransactionConflictException"),
            (400, "ResourceNotFoundException"),
            (400, "TransactionInProgressException"),
            (500, "InternalServerError"),
            (503, "ServiceUnavailable"),
        ] {
            assert_eq!(class(status, code), "transient", "{code}");
        }
        let half = SdkError::<PutItemError>::response_error("half", answer(200));
        assert_eq!(fault("likes", &half).class(), "transient");
        assert_eq!(class(400, "ValidationException"), "poison");
        for code in ["AccessDeniedException", "UnrecognizedClientException"] {
            assert_eq!(class(400, code), "fatal", "{code}");
        }
        assert_eq!(class(400, "SomethingNobodyHasHeardOf"), "fatal", "never the fault of one like");
        assert_eq!(said(400, "InvalidSignatureException", "Signature expired: ...").class(), "transient");
        assert_eq!(said(400, "InvalidSignatureException", "does not match").class(), "fatal");
        let message = said(400, "AccessDeniedException", "no").to_string();
        assert_eq!(message, "likes: AccessDeniedException: no");
    }

    #[test]
    fn a_statement_of_a_batch_is_classed_as_a_request_is() {
        let class =
            |code: &str| of_statement("likes", &BatchStatementError::builder().code(code.into()).build()).class();
        for code in ["ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded"] {
            assert_eq!(class(code), "throttled", "{code}");
        }
        for code in ["TransactionConflict", "InternalServerError", "ResourceNotFound"] {
            assert_eq!(class(code), "transient", "{code}");
        }
        assert_eq!(class("ValidationError"), "poison");
        for code in ["AccessDenied", "ItemCollectionSizeLimitExceeded", "SomethingNew"] {
            assert_eq!(class(code), "fatal", "{code}");
        }
    }

    #[test]
    fn an_error_without_an_answer_is_one_line_of_its_causes_and_nothing_of_how_it_is_built() {
        let refused = ConnectorError::io(std::io::Error::other("tcp connect\n  error: refused").into());
        let error: SdkError<PutItemError> = SdkError::dispatch_failure(refused);
        let message = fault("likes", &error).to_string();
        assert_eq!(message, "likes: dispatch failure: io error: tcp connect error: refused");
    }

    #[test]
    fn a_cancelled_transaction_is_classed_by_the_worst_of_its_reasons() {
        let class = |codes: &[&str]| {
            let reason = |code: &&str| CancellationReason::builder().code(*code).build();
            of_reasons("counts", &codes.iter().map(reason).collect::<Vec<_>>(), "cancelled").class()
        };
        assert_eq!(class(&["None", "TransactionConflict"]), "transient");
        assert_eq!(class(&["ThrottlingError", "TransactionConflict"]), "throttled");
        assert_eq!(class(&["ProvisionedThroughputExceeded"]), "throttled");
        assert_eq!(class(&["ValidationError", "TransactionConflict"]), "poison");
        assert_eq!(class(&["ItemCollectionSizeLimitExceeded", "ValidationError"]), "fatal");
        assert_eq!(class(&["SomethingNobodyHasHeardOf", "TransactionConflict"]), "fatal");
        assert_eq!(class(&[]), "transient");
        assert_eq!(of_reasons("counts", &[CancellationReason::builder().build()], "").class(), "transient");
    }
}
