//! Converts partitions, offsets and records between the client library's types and Tally's.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::error::KafkaResult;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{Offset as At, TopicPartitionList};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_core::ports::log::{Header, Records};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition};

use super::fault::fault_of;

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
