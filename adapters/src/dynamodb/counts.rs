//! The counts table: counters read, and changed by conditional updates alone.

mod counter;
mod crossing;
mod rebuild;
mod update;
mod verdict;

pub use rebuild::Anew;

use std::collections::HashMap;

use async_trait::async_trait;
use aws_sdk_dynamodb::types::{ReturnConsumedCapacity, TransactWriteItem};
use serde::Serialize;
use tally_core::counter::{Counter, Update};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, RowKey};
use tally_core::milestone::Guard;
use tally_core::ports::{Applied, Counts as CountsPort, Cursor, Judged, LedgerEntry, Mended, Outcome, Page, Segment};
use tally_core::time::UnixMillis;
use tally_core::window::Verdict;

use self::counter::decode;
use super::batch;
use super::connection::Connection;
use super::cursor::{after_one, half_units, start_one};
use super::direct::{AsKey, AsValues, Failed, UPDATE_ITEM, Updated};
use super::fault::{Cancelled, cancelled, fault};
use super::item::{Item, Reader, item, text};
use super::names::counts::POST_ID;
use super::recounts::ledger;

/// The counts table.
#[derive(Clone, Debug)]
pub struct Counts {
    connection: Connection,
}

impl Counts {
    /// The counters of a deployment.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn table(&self) -> &str {
        &self.connection.tables.counts
    }

    fn decoded(&self, item: &Item) -> Outcome<Counter> {
        decode(&Reader::new(self.table(), item), item)
    }

    /// A change of a counter and its line in the ledger, both or neither, sent once.
    async fn correct(&self, change: aws_sdk_dynamodb::types::Update, entry: &LedgerEntry) -> Result<(), Cancelled> {
        let change = TransactWriteItem::builder().update(change).build();
        let line = TransactWriteItem::builder().put(ledger::put(&self.connection.tables.recounts, entry)).build();
        let sent = self.connection.once.transact_write_items().transact_items(change).transact_items(line).send().await;
        sent.map(|_| ()).map_err(|error| cancelled(self.table(), &error))
    }
}

/// The update of one counter as it goes over the wire.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct UpdateItem<'a> {
    table_name: &'a str,
    key: AsKey<'a>,
    update_expression: &'a str,
    condition_expression: &'a str,
    expression_attribute_values: AsValues<'a>,
    return_values: &'static str,
    return_values_on_condition_check_failure: &'static str,
}

fn key(id: &CounterId) -> Item {
    item([(POST_ID, text(id.stored()))])
}

#[async_trait]
impl CountsPort for Counts {
    /// Safe to repeat: the watermark the update sets is the one its condition wants not to be there. A
    /// copy refused after one that was carried out shows itself in the counter that comes with the refusal.
    async fn apply(&self, id: &CounterId, update: &Update) -> Outcome<Applied> {
        let request = update::expressions(update)
            .map_err(|overflow| Fault::Poison(format!("table {}, counter {id}: {overflow}", self.table())))?;
        let reached = update.guard.as_ref().map_or(&[][..], Guard::reached);
        if !reached.is_empty() {
            return self.cross(id, request, reached).await;
        }
        let request = UpdateItem {
            table_name: self.table(),
            key: AsKey(POST_ID, &id.stored()),
            update_expression: &request.update,
            condition_expression: &request.condition,
            expression_attribute_values: AsValues(&request.values),
            return_values: "ALL_NEW",
            return_values_on_condition_check_failure: "ALL_OLD",
        };
        let sent = self.connection.direct.call(UPDATE_ITEM, self.table(), &request).await;
        match sent {
            Ok(Updated { attributes }) => Ok(Applied::Taken(self.decoded(&attributes)?)),
            Err(Failed::Refused(refusal)) if refusal.is_condition() => {
                let counter = (!refusal.item.is_empty()).then(|| self.decoded(&refusal.item));
                Ok(Applied::Refused(counter.transpose()?))
            }
            Err(failed) => Err(failed.into_fault(self.table())),
        }
    }

    async fn counter(&self, id: &CounterId) -> Outcome<Option<Counter>> {
        let get = self.connection.client.get_item().table_name(self.table()).set_key(Some(key(id)));
        let reply = get.consistent_read(true).send().await.map_err(|error| fault(self.table(), &error))?;
        reply.item().map(|item| self.decoded(item)).transpose()
    }

    async fn counters(&self, ids: &[CounterId]) -> Outcome<Vec<Outcome<Option<Counter>>>> {
        let mut distinct: Vec<&CounterId> = ids.iter().collect();
        distinct.sort_unstable();
        distinct.dedup();
        let keys = distinct.iter().map(|id| key(id)).collect();
        let items = batch::read(&self.connection, self.table(), keys, &[]).await?;
        let mut found = HashMap::with_capacity(items.len());
        for item in &items {
            let id = Reader::new(self.table(), item).required_text(POST_ID)?;
            found.insert(id.to_owned(), self.decoded(item));
        }
        Ok(ids.iter().map(|id| found.get(&*id.stored()).cloned().transpose()).collect())
    }

    /// Never repeated: sent once, and what is not known to stand is void. A throttled request certainly was not carried
    /// out, so it is a fault.
    async fn judge(&self, verdict: &Verdict, entry: &LedgerEntry) -> Outcome<Judged> {
        let change = verdict::update(self.table(), key(&verdict.key.counter), verdict);
        match self.correct(change, entry).await {
            Ok(()) => Ok(Judged::Stands),
            Err(Cancelled::Condition | Cancelled::Fault(Fault::Transient(_))) => Ok(Judged::Void),
            Err(Cancelled::Conflict(_)) => Ok(Judged::NotDone),
            Err(Cancelled::Fault(fault)) => Err(fault),
        }
    }

    /// Safe to repeat: it moves the version its condition names.
    async fn mend_total(&self, id: &CounterId, version: u64, sum: i64, entry: &LedgerEntry) -> Outcome<Mended> {
        match self.correct(verdict::mending(self.table(), key(id), version, sum), entry).await {
            Ok(()) => Ok(Mended::Mended),
            Err(Cancelled::Condition) => Ok(Mended::Changed),
            Err(Cancelled::Conflict(fault) | Cancelled::Fault(fault)) => Err(fault),
        }
    }

    /// Safe to repeat: the mark it sets is the one its condition wants not to be there.
    async fn suspect(&self, row_key: &RowKey, now: UnixMillis) -> Outcome<()> {
        let (expression, names, values) = verdict::suspicion(row_key.shard, now);
        let update = self.connection.client.update_item().table_name(self.table()).set_key(Some(key(&row_key.counter)));
        let sent = update
            .update_expression(expression)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .send()
            .await;
        sent.map(|_| ()).map_err(|error| fault(self.table(), &error))
    }

    async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<(CounterId, Outcome<Counter>)>> {
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
        let counter = |item| Ok((Reader::new(self.table(), item).required(POST_ID)?, self.decoded(item)));
        let items = reply.items().iter().map(counter).collect::<Outcome<_>>()?;
        let next = after_one(self.table(), POST_ID, reply.last_evaluated_key())?;
        Ok(Page { items, next, half_units: half_units(reply.consumed_capacity()) })
    }
}
