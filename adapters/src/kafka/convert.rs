//! Converts partitions, offsets and records between the client library's types and Tally's, and its errors to [`Fault`]s,
//! which say whether to wait, to give up a record or to stop.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{Offset as At, TopicPartitionList};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{Header, Records};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition};

/// Runs a call that blocks, on a thread for such calls.
pub(super) async fn blocking<T: Send + 'static>(call: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    let called = tokio::task::spawn_blocking(call).await;
    called.map_err(|error| Fault::Transient(format!("asking kafka: {error}")))?
}

/// Returns the offset that brokers name for the one partition of a list, if they do.
pub(super) fn offset_in(doing: &str, answer: KafkaResult<TopicPartitionList>) -> Outcome<Option<Offset>> {
    let asking = |error| fault_of(doing, &error);
    let found = answer.map_err(asking)?;
    let Some(element) = found.elements().into_iter().next() else { return Ok(None) };
    element.error().map_err(asking)?;
    Ok(element.offset().to_raw().and_then(|offset| u64::try_from(offset).ok()).map(Offset))
}

pub(super) fn raw(offset: Offset) -> At {
    At::Offset(i64::try_from(offset.0).unwrap_or(i64::MAX))
}

/// Returns a list of this one partition.
pub(super) fn list_of(partition: &Partition, at: At) -> Outcome<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    let index = i32::try_from(partition.index).unwrap_or(i32::MAX);
    let added = list.add_partition_offset(&partition.topic, index, at);
    added.map_err(|error| fault_of(&format!("naming {partition}"), &error)).map(|()| list)
}

/// Appends a copy of a message to `records`.
pub(super) fn push(records: &mut Records, message: &BorrowedMessage<'_>) {
    let offset = Offset(u64::try_from(message.offset()).unwrap_or(0));
    let at = message.timestamp().to_millis().and_then(|at| u64::try_from(at).ok()).map_or(UnixMillis(0), UnixMillis);
    let headers = message.headers();
    let headers = headers.iter().flat_map(|headers| (0..headers.count()).filter_map(|index| header(*headers, index)));
    records.push(offset, at, message.key(), message.payload(), headers);
}

/// Returns one header; `None` for one whose name is not text, on which the client library panics.
fn header<H: Headers>(headers: &H, index: usize) -> Option<Header<'_>> {
    let header = catch_unwind(AssertUnwindSafe(|| headers.try_get(index))).ok().flatten()?;
    Some((header.key, header.value))
}

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
    if error.rdkafka_error_code() == Some(Code::InvalidTimestamp) {
        text = format!("{text}: the clock of this machine or of the broker is wrong");
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
            | Code::InvalidTimestamp
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
