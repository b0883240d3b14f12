//! Converts librdkafka's errors to [`Fault`]s, which say whether to wait, to give up a record or to stop.

use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

/// Classifies the error of a failed call. `doing` says what the call was for.
pub(super) fn fault_of(doing: &str, error: &KafkaError) -> Fault {
    explained(doing, error, "")
}

/// As [`fault_of`], with the client's explanation, if there is one.
pub(super) fn explained(doing: &str, error: &KafkaError, reason: &str) -> Fault {
    let mut text = match error.rdkafka_error_code() {
        Some(code) => format!("{doing}: {code}"),
        None => format!("{doing}: {error}"),
    };
    if !reason.is_empty() {
        text = format!("{text}: {reason}");
    }
    if matches!(error, KafkaError::MessageConsumptionFatal(_) | KafkaError::ClientConfig(..)) {
        return Fault::Fatal(text);
    }
    match error.rdkafka_error_code() {
        Some(Code::QueueFull | Code::ThrottlingQuotaExceeded) => Fault::Throttled(text),
        Some(
            Code::MessageSizeTooLarge
            | Code::InvalidMessage
            | Code::InvalidRecord
            | Code::BadMessage
            | Code::BadCompression,
        ) => Fault::Poison(text),
        Some(
            Code::Fatal
            | Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::UnsupportedSASLMechanism
            | Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
            | Code::ProducerFenced
            | Code::Fenced
            | Code::InvalidProducerEpoch
            | Code::InvalidTopic
            | Code::InvalidGroupId
            | Code::InvalidSessionTimeout,
        ) => Fault::Fatal(text),
        _ => Fault::Transient(text),
    }
}

/// Returns whether records that are read after such an error may be from another log. No such error names its
/// partition.
pub(super) fn concerns_the_log(code: Code) -> bool {
    matches!(
        code,
        Code::AutoOffsetReset
            | Code::AllBrokersDown
            | Code::UnknownTopicOrPartition
            | Code::UnknownTopicId
            | Code::UnknownTopic
            | Code::UnknownPartition
            | Code::TopicAuthorizationFailed
    )
}

/// Logs the failure of a call whose caller goes on.
pub(super) fn settled(doing: &str, result: Outcome<KafkaResult<()>>) {
    let fault = match result {
        Ok(Ok(())) => return,
        Ok(Err(error)) => fault_of(doing, &error),
        Err(fault) => fault,
    };
    tracing::warn!(error = %fault, "kafka client");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_broker_is_waited_for_and_a_refused_login_is_not() {
        let class = |code| fault_of("reading", &KafkaError::MessageConsumption(code)).class();
        assert_eq!(class(Code::AllBrokersDown), "transient");
        assert_eq!(class(Code::UnknownTopicOrPartition), "transient");
        assert_eq!(class(Code::QueueFull), "throttled");
        assert_eq!(class(Code::SaslAuthenticationFailed), "fatal");
        assert_eq!(class(Code::TopicAuthorizationFailed), "fatal");
        assert_eq!(class(Code::InvalidSessionTimeout), "fatal");
        assert_eq!(class(Code::MessageSizeTooLarge), "poison");
        assert_eq!(class(Code::BadCompression), "poison");
        let text = fault_of("reading", &KafkaError::MessageConsumption(Code::AllBrokersDown)).to_string();
        assert!(text.starts_with("reading: "), "{text}");
        let error = KafkaError::MessageConsumption(Code::BadCompression);
        assert!(explained("reading", &error, "at offset 7").to_string().ends_with(": at offset 7"));
    }
}
