//! Counters in no order, all of them: for those who compare each with its rows.

use aws_sdk_dynamodb::types::ReturnConsumedCapacity;
use tally_core::fold::Counter;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;

use super::super::cursor::{Cursor, Page, Segment, after_one, half_units, start_one};
use super::super::fault::fault;
use super::super::item::{Item, Reader};
use super::super::names::counts::POST_ID;
use super::Counters;

impl Counters {
    /// One page of a scan, read consistently: each counter, or why its item cannot be read. What has no counter's key is
    /// passed over.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<(CounterId, Outcome<Counter>)>> {
        let scan = self
            .connection
            .client
            .scan()
            .table_name(self.table())
            .segment(i32::try_from(segment.index).unwrap_or(i32::MAX))
            .total_segments(i32::try_from(segment.of).unwrap_or(i32::MAX))
            .set_exclusive_start_key(after.map(|cursor| Item::from([start_one(POST_ID, cursor)])))
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let reply = scan.send().await.map_err(|error| fault(self.table(), &error))?;
        let counter = |item: &Item| {
            let id = Reader::new(self.table(), item).required_text(POST_ID).ok()?.parse().ok()?;
            Some((id, self.decoded(item)))
        };
        let items = reply.items().iter().filter_map(counter).collect();
        let next = after_one(self.table(), POST_ID, reply.last_evaluated_key())?;
        Ok(Page { items, next, half_units: half_units(reply.consumed_capacity()) })
    }
}
