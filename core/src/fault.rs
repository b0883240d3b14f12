//! The faults that every port (DynamoDB, Kafka, Redis) returns, classed by what the caller does next.

use thiserror::Error;

/// Why a call failed, as far as its caller needs to know. A write that failed may still have happened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Worth trying again: a time-out, a lost connection, an internal error of the service, a conflict with another
    /// write.
    #[error("{0}")]
    Transient(String),
    /// Worth trying again, later and less often.
    #[error("throttled: {0}")]
    Throttled(String),
    /// The service never accepts this request, but it accepts others.
    #[error("refused: {0}")]
    Poison(String),
    /// The service accepts no request until an operator acts: access denied, a table of another shape, a full store.
    #[error("{0}")]
    Fatal(String),
}

impl Fault {
    pub const CLASSES: &'static [&'static str] = &["transient", "throttled", "poison", "fatal"];

    /// Returns whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Transient(_) | Self::Throttled(_))
    }

    /// Returns the class as a metric label.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Transient(_) => "transient",
            Self::Throttled(_) => "throttled",
            Self::Poison(_) => "poison",
            Self::Fatal(_) => "fatal",
        }
    }
}
