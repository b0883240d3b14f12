//! Places and records, as the client library has them and as Tally does.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{Offset as At, TopicPartitionList};
use tally_core::ports::Outcome;
use tally_core::ports::log::{Header, Records};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, Partition};

use super::fault::fault_of;

pub(super) fn raw(offset: Offset) -> At {
    At::Offset(i64::try_from(offset.0).unwrap_or(i64::MAX))
}

/// A list of this one partition.
pub(super) fn list_of(partition: &Partition, at: At) -> Outcome<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    let index = i32::try_from(partition.index).unwrap_or(i32::MAX);
    let added = list.add_partition_offset(&partition.topic, index, at);
    added.map_err(|error| fault_of(&format!("naming {partition}"), &error)).map(|()| list)
}

/// Copies a message behind `records`.
pub(super) fn push(records: &mut Records, message: &BorrowedMessage<'_>) {
    let offset = Offset(u64::try_from(message.offset()).unwrap_or(0));
    let at = message.timestamp().to_millis().and_then(|at| u64::try_from(at).ok()).map_or(UnixMillis(0), UnixMillis);
    let headers = message.headers();
    let headers = headers.iter().flat_map(|headers| (0..headers.count()).filter_map(|index| header(*headers, index)));
    records.push(offset, at, message.key(), message.payload(), headers);
}

/// One header; `None` for one whose name is not text, on which the client library panics.
fn header<H: Headers>(headers: &H, index: usize) -> Option<Header<'_>> {
    let header = catch_unwind(AssertUnwindSafe(|| headers.try_get(index))).ok().flatten()?;
    Some((header.key, header.value))
}
