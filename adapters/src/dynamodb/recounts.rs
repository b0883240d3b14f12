//! The recounts table: runs, what is queued for one, claims, the reports of windows, and the ledger.

mod claim;
mod codec;
pub(super) mod ledger;
mod report;

use async_trait::async_trait;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use tally_core::ids::{PostId, RowKey};
use tally_core::ports::{
    AuditSegment, Claimed, Cursor, LedgerEntry, Outcome, Page, QueueReason, Recounts as RecountsPort, RunState, Worker,
};
use tally_core::recount::{Report, RunId};
use tally_core::time::UnixMillis;

use super::connection::Connection;
use super::cursor::{after_one, half_units, start_one};
use super::expression::Aliases;
use super::fault::{fault, unless_refused};
use super::item::{Item, Reader, item, number, text};
use super::names::recounts::AT;
use super::names::{PK, SK};

/// Where runs are kept.
const RUNS: &str = "run";
/// Where row keys wait for a recount.
const QUEUE: &str = "queue";
/// Where the audit that was asked for is kept.
const AUDIT: &str = "audit";

/// The recounts table.
#[derive(Clone, Debug)]
pub struct Recounts {
    connection: Connection,
}

impl Recounts {
    /// What the recounts of a deployment remember.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn table(&self) -> &str {
        &self.connection.tables.recounts
    }

    async fn get(&self, pk: &str, sk: &str) -> Outcome<Option<Item>> {
        let get = self.connection.client.get_item().table_name(self.table()).set_key(Some(key(pk, sk)));
        let reply = get.consistent_read(true).send().await.map_err(|error| fault(self.table(), &error))?;
        Ok(reply.item)
    }

    async fn put(&self, item: Item) -> Outcome<()> {
        let put = self.connection.client.put_item().table_name(self.table()).set_item(Some(item));
        put.send().await.map(|_| ()).map_err(|error| fault(self.table(), &error))
    }

    fn query(&self, pk: &str) -> QueryFluentBuilder {
        self.connection
            .client
            .query()
            .table_name(self.table())
            .key_condition_expression("#pk=:pk")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_values(":pk", text(pk))
            .consistent_read(true)
    }

    /// Every item of one partition, in order.
    async fn all(&self, pk: &str) -> Outcome<Vec<Item>> {
        let mut found = Vec::new();
        let mut start = None;
        loop {
            let query = self.query(pk).set_exclusive_start_key(start);
            let reply = query.send().await.map_err(|error| fault(self.table(), &error))?;
            found.extend(reply.items.unwrap_or_default());
            start = reply.last_evaluated_key;
            if start.is_none() {
                return Ok(found);
            }
        }
    }

    /// Deletes an item under a condition; one that does not hold leaves it.
    async fn delete_if(&self, pk: &str, sk: &str, say: Aliases, condition: String) -> Outcome<()> {
        let (names, values) = say.finish();
        let delete = self
            .connection
            .client
            .delete_item()
            .table_name(self.table())
            .set_key(Some(key(pk, sk)))
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        unless_refused(self.table(), delete.send().await).map(|_| ())
    }
}

fn key(pk: &str, sk: &str) -> Item {
    item([(PK, text(pk)), (SK, text(sk))])
}

fn segments_of(run: RunId) -> String {
    format!("segment#{run}")
}

#[async_trait]
impl RecountsPort for Recounts {
    /// Safe to repeat: the latest summary stands.
    async fn put_run(&self, state: &RunState) -> Outcome<()> {
        self.put(codec::run_item(RUNS, state)).await
    }

    async fn run(&self, run: RunId) -> Outcome<Option<RunState>> {
        let found = self.get(RUNS, &run.to_string()).await?;
        found.map(|found| codec::run(&Reader::new(self.table(), &found))).transpose()
    }

    async fn runs(&self, limit: u32) -> Outcome<Vec<RunState>> {
        let found = self.all(RUNS).await?;
        let mut runs =
            found.iter().map(|found| codec::run(&Reader::new(self.table(), found))).collect::<Outcome<Vec<_>>>()?;
        runs.sort_by_key(|state| std::cmp::Reverse((state.began, state.run)));
        runs.truncate(limit as usize);
        Ok(runs)
    }

    /// Safe to repeat: put only where nothing stands.
    async fn enqueue(&self, key: &RowKey, reason: QueueReason, now: UnixMillis) -> Outcome<()> {
        let put = self.connection.client.put_item().table_name(self.table());
        let put = put.set_item(Some(codec::queued_item(QUEUE, key, reason, now)));
        let put = put.condition_expression("attribute_not_exists(#pk)").expression_attribute_names("#pk", PK);
        unless_refused(self.table(), put.send().await).map(|_| ())
    }

    async fn queued(&self, after: Option<&Cursor>) -> Outcome<Page<(RowKey, QueueReason)>> {
        let start = after.map(|cursor| Item::from([(PK.to_owned(), text(QUEUE)), start_one(SK, cursor)]));
        let query = self.query(QUEUE).set_exclusive_start_key(start);
        let query = query.return_consumed_capacity(aws_sdk_dynamodb::types::ReturnConsumedCapacity::Total);
        let reply = query.send().await.map_err(|error| fault(self.table(), &error))?;
        let queued = reply.items().iter().map(|item| codec::queued(&Reader::new(self.table(), item)));
        let items = queued.collect::<Outcome<_>>()?;
        let next = after_one(self.table(), SK, reply.last_evaluated_key())?;
        Ok(Page { items, next, half_units: half_units(reply.consumed_capacity()) })
    }

    /// Safe to repeat: what is gone stays gone.
    async fn dequeue(&self, row_key: &RowKey) -> Outcome<()> {
        let key = key(QUEUE, &row_key.to_string());
        let delete = self.connection.client.delete_item().table_name(self.table()).set_key(Some(key));
        delete.send().await.map(|_| ()).map_err(|error| fault(self.table(), &error))
    }

    /// Safe to repeat: the time moves forward only.
    async fn enqueue_audit(&self, now: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let (at, asked) = (say.name(AT), say.number(now));
        let (names, values) = say.finish();
        let update = self
            .connection
            .client
            .update_item()
            .table_name(self.table())
            .set_key(Some(key(AUDIT, AUDIT)))
            .update_expression(format!("SET {at}={asked}"))
            .condition_expression(format!("attribute_not_exists({at}) OR {at}<{asked}"))
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        unless_refused(self.table(), update.send().await).map(|_| ())
    }

    async fn audit_queued(&self) -> Outcome<Option<UnixMillis>> {
        let found = self.get(AUDIT, AUDIT).await?;
        found.map(|found| Reader::new(self.table(), &found).required_number(AT).map(UnixMillis)).transpose()
    }

    /// Safe to repeat: one asked for since has a later time.
    async fn audit_done(&self, began: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let (at, began) = (say.name(AT), say.number(began));
        self.delete_if(AUDIT, AUDIT, say, format!("{at}<{began}")).await
    }

    async fn claim(&self, what: &str, worker: &Worker, now: UnixMillis, stale: UnixMillis) -> Outcome<Claimed> {
        self.take(what, worker, now, stale).await
    }

    async fn settle(&self, what: &str, worker: &Worker, done: bool) -> Outcome<()> {
        self.give_back(what, worker, done).await
    }

    /// Safe to repeat: one worker has the segment, and what it says last stands.
    async fn put_segment(&self, run: RunId, segment: &AuditSegment) -> Outcome<()> {
        self.put(codec::segment_item(&segments_of(run), segment)).await
    }

    async fn segments(&self, run: RunId) -> Outcome<Vec<AuditSegment>> {
        let found = self.all(&segments_of(run)).await?;
        found.iter().map(|found| codec::segment(&Reader::new(self.table(), found))).collect()
    }

    async fn put_report(&self, report: &Report, now: UnixMillis) -> Outcome<()> {
        self.write_report(report, now).await
    }

    async fn report(&self, key: &RowKey, run: RunId) -> Outcome<Option<Report>> {
        self.read_report(key, run).await
    }

    async fn ledger(&self, post: &PostId, limit: u32) -> Outcome<Vec<LedgerEntry>> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let query = self.query(&ledger::of(post)).scan_index_forward(false).limit(limit);
        let reply = query.send().await.map_err(|error| fault(self.table(), &error))?;
        reply.items().iter().map(|line| ledger::decode(post, &Reader::new(self.table(), line))).collect()
    }
}

/// A number padded so that text order is number order.
fn padded(n: u64) -> String {
    format!("{n:020}")
}

/// When an item of `now` may be deleted by the store, in seconds.
fn expiry(now: UnixMillis) -> aws_sdk_dynamodb::types::AttributeValue {
    const WEEK: u64 = 7 * 24 * 3600;
    number(now.0 / 1000 + WEEK)
}
