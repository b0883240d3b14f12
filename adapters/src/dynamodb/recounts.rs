//! The recounts table: runs, what is queued for one, the ledgers of corrections and of operations, and milestones.

mod codec;
mod ledger;
pub(super) mod milestone;
mod operations;

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::audit::{AuditRun, RunRecord};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, RowKey};
use tally_core::ports::{
    AuditSegment, AuditSegments, Cursor, Ledger, LedgerEntry, Milestones, Outcome, Page, QueueReason, Queued, Recorded,
    RecountQueue, Runs,
};
use tally_core::time::UnixMillis;

use super::connection::Connection;
use super::cursor::{after_one, half_units, start_one};
use super::expression::Aliases;
use super::fault::{fault, unless_refused};
use super::item::{Item, Reader, flag, item, number, text};
use super::names::recounts::{ASKED, AT, DONE, ENDED, REASON};
use super::names::{PK, SK};
use super::put;

/// Where runs are kept.
const RUNS: &str = "run";
/// Where row keys wait for a recount.
const QUEUE: &str = "queue";
/// Where the audit that was asked for is kept.
const AUDIT: &str = "audit";

/// How often a request for an audit is tried while others make one.
const ATTEMPTS: usize = 10;
/// What the times below are made of.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// For how long it is of use how far an audit has come.
const WEEK: Duration = Duration::from_secs(7 * DAY.as_secs());
/// For how long a run can be looked up.
const SEASON: Duration = Duration::from_secs(90 * DAY.as_secs());

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

    /// Puts lines of the ledger, up to [`PUTS`](super::PUTS) in one request. Safe to repeat: they are the same lines.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_ledger(&self, lines: &[LedgerEntry]) -> Outcome<()> {
        put::items(&self.connection, self.table(), lines.iter().map(ledger::encode)).await
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

    /// Puts an item under a condition; one that does not hold leaves what is there.
    async fn put_if(&self, item: Item, say: Aliases, condition: String) -> Outcome<()> {
        let (names, values) = say.finish();
        let put = self
            .connection
            .client
            .put_item()
            .table_name(self.table())
            .set_item(Some(item))
            .condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        unless_refused(self.table(), put.send().await).map(|_| ())
    }

    fn update(&self, pk: &str, sk: &str) -> UpdateItemFluentBuilder {
        self.connection.client.update_item().table_name(self.table()).set_key(Some(key(pk, sk)))
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

fn segments_of(run: AuditRun) -> String {
    format!("segment#{run}")
}

#[async_trait]
impl Runs for Recounts {
    /// Safe to repeat: the latest summary stands, and a run that has ended stays as it is.
    async fn put_run(&self, record: &RunRecord) -> Outcome<()> {
        let mut say = Aliases::default();
        let condition = format!("attribute_not_exists({})", say.name(ENDED));
        self.put_if(codec::run_item(RUNS, record), say, condition).await
    }

    async fn run(&self, run: AuditRun) -> Outcome<Option<RunRecord>> {
        let found = self.get(RUNS, &run.to_string()).await?;
        found.map(|found| codec::run(&Reader::new(self.table(), &found))).transpose()
    }

    async fn runs(&self, limit: u32) -> Outcome<Vec<RunRecord>> {
        let latest = self.query(RUNS).scan_index_forward(false).limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let reply = latest.send().await.map_err(|error| fault(self.table(), &error))?;
        reply.items().iter().map(|found| codec::run(&Reader::new(self.table(), found))).collect()
    }
}

#[async_trait]
impl RecountQueue for Recounts {
    /// Safe to repeat: the reason first given stays, and one request more costs a recount at the most.
    async fn enqueue(&self, key: &RowKey, reason: QueueReason, now: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let [why, at, asked] = say.names([REASON, AT, ASKED]);
        let (given, now, one) = (say.text(codec::reason_text(reason)), say.number(now), say.number(1));
        let (names, values) = say.finish();
        let update = self
            .update(QUEUE, &key.to_string())
            .update_expression(format!(
                "SET {why}=if_not_exists({why},{given}),{at}=if_not_exists({at},{now}) ADD {asked} {one}"
            ))
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values);
        update.send().await.map(|_| ()).map_err(|error| fault(self.table(), &error))
    }

    async fn queued(&self, after: Option<&Cursor>) -> Outcome<Page<Queued>> {
        let start = after.map(|cursor| Item::from([(PK.to_owned(), text(QUEUE)), start_one(SK, cursor)]));
        let query = self.query(QUEUE).set_exclusive_start_key(start);
        let query = query.return_consumed_capacity(aws_sdk_dynamodb::types::ReturnConsumedCapacity::Total);
        let reply = query.send().await.map_err(|error| fault(self.table(), &error))?;
        let queued = reply.items().iter().map(|item| codec::queued(&Reader::new(self.table(), item)));
        let items = queued.collect::<Outcome<_>>()?;
        let next = after_one(self.table(), SK, reply.last_evaluated_key())?;
        Ok(Page { items, next, half_units: half_units(reply.consumed_capacity()) })
    }

    /// Safe to repeat: what is gone stays gone, and what was asked for again has another number.
    async fn dequeue(&self, queued: &Queued) -> Outcome<()> {
        let mut say = Aliases::default();
        let condition = format!("{}={}", say.name(ASKED), say.number(queued.asked));
        self.delete_if(QUEUE, &queued.key.to_string(), say, condition).await
    }

    /// Safe to repeat: an audit asked for later stands.
    async fn enqueue_audit(&self, now: UnixMillis) -> Outcome<()> {
        for _ in 0..ATTEMPTS {
            let standing = self.audit_queued().await?;
            let later = standing.map_or(now, |standing| now.max(UnixMillis(standing.0 + 1)));
            let mut say = Aliases::default();
            let (at, asked) = (say.name(AT), say.number(later));
            let condition = match standing {
                None => format!("attribute_not_exists({at})"),
                Some(standing) => format!("{at}={}", say.number(standing)),
            };
            let (names, values) = say.finish();
            let update = self
                .update(AUDIT, AUDIT)
                .update_expression(format!("SET {at}={asked}"))
                .condition_expression(condition)
                .set_expression_attribute_names(names)
                .set_expression_attribute_values(values);
            if unless_refused(self.table(), update.send().await)?.is_some() {
                return Ok(());
            }
        }
        Err(Fault::Transient(format!("{}: too many workers queue an audit", self.table())))
    }

    async fn audit_queued(&self) -> Outcome<Option<UnixMillis>> {
        let found = self.get(AUDIT, AUDIT).await?;
        found.map(|found| Reader::new(self.table(), &found).required_number(AT).map(UnixMillis)).transpose()
    }

    /// Safe to repeat: an audit asked for since has a later time.
    async fn audit_done(&self, asked: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let condition = format!("{}={}", say.name(AT), say.number(asked));
        self.delete_if(AUDIT, AUDIT, say, condition).await
    }
}

#[async_trait]
impl AuditSegments for Recounts {
    /// Safe to repeat, by any process: a segment that is done stays as it is.
    async fn put_segment(&self, run: AuditRun, segment: &AuditSegment, now: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let (done, yes) = (say.name(DONE), say.value(flag(true)));
        let condition = format!("attribute_not_exists({done}) OR {done}<>{yes}");
        self.put_if(codec::segment_item(&segments_of(run), segment, now), say, condition).await
    }

    async fn segments(&self, run: AuditRun) -> Outcome<Vec<AuditSegment>> {
        let found = self.all(&segments_of(run)).await?;
        found.iter().map(|found| codec::segment(&Reader::new(self.table(), found))).collect()
    }
}

#[async_trait]
impl Ledger for Recounts {
    async fn ledger(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<LedgerEntry>> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let query = self.query(&ledger::of(counter)).scan_index_forward(false).limit(limit);
        let reply = query.send().await.map_err(|error| fault(self.table(), &error))?;
        reply.items().iter().map(|line| ledger::decode(counter, &Reader::new(self.table(), line))).collect()
    }
}

#[async_trait]
impl Milestones for Recounts {
    async fn milestones(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<Recorded>> {
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
        let (mut found, mut start) = (Vec::new(), None);
        loop {
            let left = i32::try_from(wanted - found.len()).unwrap_or(i32::MAX);
            let query = self.query(&milestone::of(counter)).scan_index_forward(false).limit(left);
            let reply =
                query.set_exclusive_start_key(start).send().await.map_err(|error| fault(self.table(), &error))?;
            for item in reply.items() {
                found.push(milestone::decode(&Reader::new(self.table(), item))?);
            }
            start = reply.last_evaluated_key;
            if start.is_none() || found.len() >= wanted {
                return Ok(found);
            }
        }
    }

    async fn milestone(&self, counter: &CounterId, n: i64) -> Outcome<Option<Recorded>> {
        let found = self.get(&milestone::of(counter), &milestone::place(n)).await?;
        found.map(|found| milestone::decode(&Reader::new(self.table(), &found))).transpose()
    }
}

/// A number padded so that text order is number order.
fn padded(n: u64) -> String {
    format!("{n:020}")
}

/// When the store may delete an item of `now` that is of use for `long`, in seconds.
fn expiry(now: UnixMillis, long: Duration) -> AttributeValue {
    number(now.0 / 1000 + long.as_secs())
}
