//! The errors with which the emulator refuses requests, with DynamoDB's names, statuses and bodies.

use http::StatusCode;

use crate::engine::image::Image;
use crate::engine::throughput::Use;
use crate::json::Writer;
use crate::value::Invalid;

/// The fixed list of exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Validation,
    Serialization,
    UnknownOperation,
    UnknownPath,
    MissingAuthenticationToken,
    UnrecognizedClient,
    AccessDenied,
    RequestEntityTooLarge,
    ResourceNotFound,
    ResourceInUse,
    ConditionalCheckFailed,
    DuplicateItem,
    TransactionCanceled,
    TransactionConflict,
    IdempotentParameterMismatch,
    ProvisionedThroughputExceeded,
    Throttling,
    LimitExceeded,
    InternalServer,
    TrimmedDataAccess,
    ExpiredIterator,
    TableNotFound,
    TableAlreadyExists,
    PointInTimeRecoveryUnavailable,
    InvalidRestoreTime,
}

impl Kind {
    /// The `__type` of the answer, which is the name of the kind with a suffix, except for a few.
    pub(crate) fn wire_name(self) -> String {
        let service = match self {
            Self::Validation => "com.amazon.coral.validate",
            Self::Throttling => "com.amazon.coral.availability",
            Self::Serialization
            | Self::UnknownOperation
            | Self::UnknownPath
            | Self::MissingAuthenticationToken
            | Self::UnrecognizedClient
            | Self::AccessDenied
            | Self::RequestEntityTooLarge => "com.amazon.coral.service",
            _ => "com.amazonaws.dynamodb.v20120810",
        };
        match self {
            Self::UnknownPath => format!("{service}#UnknownOperationException"),
            Self::InternalServer => format!("{service}#InternalServerError"),
            kind => format!("{service}#{kind:?}Exception"),
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::UnknownPath => StatusCode::NOT_FOUND,
            Self::RequestEntityTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::InternalServer => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// The message of throttling.
const TOO_MUCH: &str = "Throughput exceeds the current capacity of your table or index.";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Error {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    /// The current item, for a failed condition that asked for it.
    pub(crate) item: Option<Image>,
    /// For each action of a cancelled transaction, why it failed; `None` if another one did.
    reasons: Vec<Option<Self>>,
    /// The limit that was exceeded, and its resource.
    limit: Option<(&'static str, String)>,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), item: None, reasons: Vec::new(), limit: None }
    }

    pub(crate) fn validation(message: impl Into<String>) -> Self {
        Self::new(Kind::Validation, message)
    }

    /// A validation error with DynamoDB's most common prefix.
    pub(crate) fn parameters(message: impl std::fmt::Display) -> Self {
        Self::validation(format!("One or more parameter values were invalid: {message}"))
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::ResourceNotFound, message)
    }

    pub(crate) fn condition_failed(item: Option<Image>) -> Self {
        Self { item, ..Self::new(Kind::ConditionalCheckFailed, "The conditional request failed") }
    }

    /// The request was throttled.
    pub(crate) fn throttled() -> Self {
        Self::new(Kind::Throttling, TOO_MUCH)
    }

    /// Another transaction is using the item.
    pub(crate) fn in_conflict() -> Self {
        Self::new(Kind::TransactionConflict, "Transaction is ongoing for the item")
    }

    /// An internal error, after which the outcome is unknown.
    pub(crate) fn failed() -> Self {
        Self::new(Kind::InternalServer, "The request processing has failed because of an unknown error")
    }

    /// A partition key exceeded its throughput limit.
    pub(crate) fn key_is_hot(used: Use, resource: &str, on_demand: bool) -> Self {
        let reason = match used {
            Use::Read => "TableReadKeyRangeThroughputExceeded",
            Use::Write => "TableWriteKeyRangeThroughputExceeded",
        };
        let kind = if on_demand { Kind::Throttling } else { Kind::ProvisionedThroughputExceeded };
        Self { limit: Some((reason, resource.to_owned())), ..Self::new(kind, TOO_MUCH) }
    }

    pub(crate) fn cancelled(reasons: Vec<Option<Self>>) -> Self {
        let codes: Vec<&str> = reasons.iter().map(|reason| reason.as_ref().map_or("None", Self::code)).collect();
        let message = format!(
            "Transaction cancelled, please refer cancellation reasons for specific reasons [{}]",
            codes.join(", ")
        );
        Self { reasons, ..Self::new(Kind::TransactionCanceled, message) }
    }

    /// A transaction is cancelled by this error of its nth action.
    pub(crate) fn cancelled_by(nth: usize, actions: usize, error: Self) -> Self {
        let mut reasons = vec![None; actions];
        reasons[nth] = Some(error);
        Self::cancelled(reasons)
    }

    /// The code of a statement of a batch, or of an action of a transaction, that fails with this error.
    fn code(&self) -> &'static str {
        match self.kind {
            Kind::ConditionalCheckFailed => "ConditionalCheckFailed",
            Kind::DuplicateItem => "DuplicateItem",
            Kind::ResourceNotFound => "ResourceNotFound",
            Kind::ProvisionedThroughputExceeded => "ProvisionedThroughputExceeded",
            Kind::Throttling => "ThrottlingError",
            Kind::TransactionConflict => "TransactionConflict",
            Kind::InternalServer => "InternalServerError",
            Kind::AccessDenied => "AccessDenied",
            _ => "ValidationError",
        }
    }

    /// Writes the code, message and item of a failed statement or action.
    pub(crate) fn write_outcome(&self, out: &mut Writer) {
        out.key("Code").string(self.code());
        out.key("Message").string(&self.message);
        if let Some(item) = &self.item {
            out.key("Item").image(item);
        }
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        Writer::document(|out| {
            out.key("__type").string(&self.kind.wire_name());
            // These two exceptions use a capital letter; clients read both spellings.
            let is_capital = matches!(self.kind, Kind::TransactionCanceled | Kind::AccessDenied);
            let message = if is_capital { "Message" } else { "message" };
            out.key(message).string(&self.message);
            if let Some(item) = &self.item {
                out.key("Item").image(item);
            }
            if let Some((reason, resource)) = &self.limit {
                // The two exceptions with this member spell it differently.
                let key = if self.kind == Kind::Throttling { "throttlingReasons" } else { "ThrottlingReasons" };
                out.key(key).array(|out| {
                    out.object(|out| {
                        out.key("reason").string(reason);
                        out.key("resource").string(resource);
                    });
                });
            }
            if self.kind == Kind::TransactionCanceled {
                out.key("CancellationReasons").array(|out| {
                    self.reasons.iter().for_each(|reason| match reason {
                        Some(error) => out.object(|out| error.write_outcome(out)),
                        None => out.object(|out| out.key("Code").string("None")),
                    });
                });
            }
        })
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::validation(invalid.0)
    }
}
