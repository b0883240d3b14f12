//! The SDK's errors in our words: [`fault`] for every call, [`cancelled`] for transactions, [`stream`] for the change stream.
//!
//! What matters is whether a request may have been carried out. No answer (a time-out, a broken connection, an answer
//! that cannot be read) and an error of the service's own leave that open; a refusal that names its reason does not.

use std::error::Error;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{BatchStatementError, BatchStatementErrorCodeEnum, CancellationReason};
use tally_core::fault::Fault;
use tally_core::ports::{Outcome, StreamFault};

/// Classes the failure of a call about `what`, usually a table. `Poison` is kept for a request that the service will
/// not look at: callers may give up a like over it, so an unknown error is fatal instead.
pub(super) fn fault<E: Error + ProvideErrorMetadata + 'static>(what: &str, error: &SdkError<E>) -> Fault {
    match error {
        SdkError::ServiceError(context) => of_service(what, context.err(), context.raw().status().as_u16()),
        SdkError::ConstructionFailure(_) => Fault::Fatal(format!("{what}: {}", in_one_line(error))),
        _ => Fault::Transient(format!("{what}: {}", in_one_line(error))),
    }
}

/// An error and its causes, from the outermost to the first, each once. The SDK's own form adds how the error is built.
pub(super) fn in_one_line(error: &dyn Error) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        let text = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if !text.is_empty() && told.last().is_none_or(|before| !before.ends_with(&text)) {
            told.push(text);
        }
        cause = error.source();
    }
    told.join(": ")
}

/// The refusal of a call about `what`.
fn of_service(what: &str, error: &impl ProvideErrorMetadata, status: u16) -> Fault {
    let (code, said) = (error.code().unwrap_or("no error code"), error.message().unwrap_or("no message"));
    let message = format!("{what}: {code}: {said}");
    match code {
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "RequestLimitExceeded"
        | "LimitExceededException"
        | "TooManyRequestsException" => Fault::Throttled(message),
        "TransactionConflictException"
        | "TransactionInProgressException"
        | "ReplicatedWriteConflictException"
        | "ResourceInUseException"
        | "RequestExpired"
        | "ExpiredTokenException"
        // A table that a running process has used comes back, or another one is adopted. A start looks for its tables itself.
        | "ResourceNotFoundException" => Fault::Transient(message),
        "ValidationException" | "SerializationException" => Fault::Poison(message),
        // A process that stood still between signing and sending; signed afresh, the request is taken.
        "InvalidSignatureException" if said.contains("expired") => Fault::Transient(message),
        _ if status == 429 => Fault::Throttled(message),
        _ if status >= 500 => Fault::Transient(message),
        _ => Fault::Fatal(message),
    }
}

/// Classes the failure of one statement of a batch about `what`.
pub(super) fn of_statement(what: &str, error: &BatchStatementError) -> Fault {
    let code = error.code().map_or("no error code", BatchStatementErrorCodeEnum::as_str);
    let message = format!("{what}: {code}: {}", error.message().unwrap_or("no message"));
    match code {
        "ThrottlingError" | "ProvisionedThroughputExceeded" | "RequestLimitExceeded" => Fault::Throttled(message),
        "TransactionConflict" | "InternalServerError" | "ResourceNotFound" => Fault::Transient(message),
        "ValidationError" => Fault::Poison(message),
        _ => Fault::Fatal(message),
    }
}

/// The reply to a conditional write, or `None` where its condition did not hold.
pub(super) fn unless_refused<T, E>(what: &str, result: Result<T, SdkError<E>>) -> Outcome<Option<T>>
where
    E: Error + ProvideErrorMetadata + 'static,
{
    match result {
        Ok(reply) => Ok(Some(reply)),
        Err(error) if error.code() == Some("ConditionalCheckFailedException") => Ok(None),
        Err(error) => Err(fault(what, &error)),
    }
}

/// Why an item of a transaction refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It did not: another item did.
    Nothing,
    /// Its condition did not hold.
    Condition,
    /// Another write of the item was under way.
    Conflict,
    /// There was no capacity for it.
    Throttled,
    /// Its request is not valid.
    Invalid,
    /// There is no room for the item.
    Full,
    /// Anything else.
    Other,
}

/// Why one item of a cancelled transaction refused.
pub(super) fn refused(reason: &CancellationReason) -> Refused {
    match reason.code() {
        None | Some("None") => Refused::Nothing,
        Some("TransactionConflict") => Refused::Conflict,
        Some("ProvisionedThroughputExceeded" | "ThrottlingError") => Refused::Throttled,
        Some("ConditionalCheckFailed") => Refused::Condition,
        Some("ValidationError") => Refused::Invalid,
        Some("ItemCollectionSizeLimitExceeded") => Refused::Full,
        Some(_) => Refused::Other,
    }
}

/// How a transaction with conditions of its own failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// Some condition did not hold, perhaps because an earlier copy was carried out.
    Condition,
    /// Another write was at one of the items: certainly not carried out.
    Conflict(Fault),
    /// Anything else; transient where it is not known whether it was carried out.
    Fault(Fault),
}

/// Classes the failure of any other transaction about `what`.
pub(super) fn cancelled(what: &str, error: &SdkError<TransactWriteItemsError>) -> Cancelled {
    let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) = error.as_service_error() else {
        return Cancelled::Fault(fault(what, error));
    };
    let reasons: Vec<Refused> = cancelled.cancellation_reasons().iter().map(refused).collect();
    let fault = of_reasons(&reasons, format!("{what}: {}", cancelled.message().unwrap_or("transaction cancelled")));
    match fault {
        _ if reasons.contains(&Refused::Condition) => Cancelled::Condition,
        Fault::Transient(_) if reasons.contains(&Refused::Conflict) => Cancelled::Conflict(fault),
        fault => Cancelled::Fault(fault),
    }
}

/// Why a transaction without conditions was cancelled: what is worst of it.
fn of_reasons(reasons: &[Refused], message: String) -> Fault {
    let given = |reason| reasons.contains(&reason);
    if given(Refused::Full) {
        Fault::Fatal(message)
    } else if given(Refused::Invalid) {
        Fault::Poison(message)
    } else if given(Refused::Other) {
        Fault::Fatal(message)
    } else if given(Refused::Throttled) {
        Fault::Throttled(message)
    } else {
        Fault::Transient(message)
    }
}

/// Classes the failure of a read of the change stream.
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
    use aws_sdk_dynamodb::types::error::TransactionCanceledException;
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

    fn cancelled_for(codes: &[&str]) -> TransactionCanceledException {
        let reasons = codes.iter().map(|code| CancellationReason::builder().code(*code).build());
        TransactionCanceledException::builder()
            .set_cancellation_reasons(Some(reasons.collect()))
            .meta(ErrorMetadata::builder().code("TransactionCanceledException").build())
            .build()
    }

    fn transaction(codes: &[&str]) -> SdkError<TransactWriteItemsError> {
        let cancelled = TransactWriteItemsError::TransactionCanceledException(cancelled_for(codes));
        SdkError::service_error(cancelled, answer(400))
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
            (500, "InternalServerError"),
            (503, "ServiceUnavailable"),
        ] {
            assert_eq!(class(status, code), "transient", "{code}");
        }
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
    fn a_transaction_without_an_answer_may_have_happened() {
        let meta = |code: &str| ErrorMetadata::builder().code(code).build();
        let refusal = |status, meta| SdkError::service_error(TransactWriteItemsError::generic(meta), answer(status));
        let silences: [SdkError<TransactWriteItemsError>; 5] = [
            SdkError::dispatch_failure(ConnectorError::io("connection reset".into())),
            SdkError::timeout_error("too late"),
            SdkError::response_error("half an answer", answer(200)),
            refusal(500, ErrorMetadata::builder().build()),
            refusal(400, meta("TransactionInProgressException")),
        ];
        for silence in silences {
            let outcome = cancelled("likes", &silence);
            assert!(matches!(outcome, Cancelled::Fault(Fault::Transient(_))), "{outcome:?}");
        }
    }

    #[test]
    fn every_cancellation_reason_has_its_meaning() {
        use Refused::{Condition, Conflict, Full, Invalid, Nothing, Other, Throttled};
        let codes = [
            ("None", Nothing),
            ("TransactionConflict", Conflict),
            ("ProvisionedThroughputExceeded", Throttled),
            ("ThrottlingError", Throttled),
            ("ConditionalCheckFailed", Condition),
            ("ValidationError", Invalid),
            ("ItemCollectionSizeLimitExceeded", Full),
            ("DuplicateItem", Other),
        ];
        for (code, meaning) in codes {
            assert_eq!(refused(&CancellationReason::builder().code(code).build()), meaning, "{code}");
        }
        assert_eq!(refused(&CancellationReason::builder().build()), Nothing);
    }

    #[test]
    fn a_condition_outweighs_every_other_reason_of_a_cancellation() {
        let class = |codes: &[&str]| match cancelled("counts", &transaction(codes)) {
            Cancelled::Condition => "condition",
            Cancelled::Conflict(_) => "conflict",
            Cancelled::Fault(fault) => fault.class(),
        };
        assert_eq!(class(&["TransactionConflict", "ConditionalCheckFailed"]), "condition");
        assert_eq!(class(&["None", "TransactionConflict"]), "conflict");
        assert_eq!(class(&["ThrottlingError", "TransactionConflict"]), "throttled");
        assert_eq!(class(&["ValidationError"]), "poison");
        assert_eq!(class(&["ItemCollectionSizeLimitExceeded"]), "fatal");
        assert_eq!(class(&["SomethingNobodyHasHeardOf", "TransactionConflict"]), "fatal");
        assert_eq!(class(&[]), "transient");
    }
}
