//! The recounts table: runs, what is queued for one, the ledgers of corrections and of operations, and milestones.

mod ledger;
pub(super) mod milestone;
mod operations;

use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::audit::{AuditRun, BadRecord, QueueReason, RunRecord};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, RowKey};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

pub use self::ledger::LedgerEntry;
pub use self::milestone::Recorded;
pub use self::operations::Operation;
use super::connection::Connection;
use super::cursor::{Cursor, Page, after_one, half_units, start_one};
use super::expression::Aliases;
use super::fault::fault;
use super::item::{Item, Reader, flag, item, number, text};
use super::items::Items;
use super::names::recounts::{ASKED, AT, BEGAN, CURSOR, DONE, ENDED, REASON, SCOPE, SUMMARY, TTL, UNSETTLED};
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

/// A row key that waits for a recount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The row key.
    pub key: RowKey,
    /// Why it was queued first.
    pub reason: QueueReason,
    /// How often it was asked for: a recount of fewer requests leaves it queued.
    pub asked: u64,
}

/// The recounts table. Cloning it is cheap.
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

    fn items(&self) -> Items<'_> {
        self.connection.items(self.table())
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

    /// The last items of one partition, the last one first.
    async fn latest<T>(&self, pk: &str, limit: u32, decode: impl Fn(&Reader<'_>) -> Outcome<T>) -> Outcome<Vec<T>> {
        let query = self.query(pk).scan_index_forward(false).limit(i32::try_from(limit).unwrap_or(i32::MAX));
        let reply = query.send().await.map_err(|error| fault(self.table(), &error))?;
        reply.items().iter().map(|item| decode(&Reader::new(self.table(), item))).collect()
    }
}

fn key(pk: &str, sk: &str) -> Item {
    item([(PK, text(pk)), (SK, text(sk))])
}

/// Where it is kept how far an audit has come.
fn progress_of(run: AuditRun) -> Item {
    key(&format!("segment#{run}"), &padded(0))
}

impl Recounts {
    /// Puts a run's record. Safe to repeat: the latest summary stands, and a run that has ended stays as it is.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_run(&self, record: &RunRecord) -> Outcome<()> {
        let mut say = Aliases::default();
        let condition = format!("attribute_not_exists({})", say.name(ENDED));
        self.items().put_if(encode_run(record), say, condition).await.map(|_| ())
    }

    /// A run's record.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn run(&self, run: AuditRun) -> Outcome<Option<RunRecord>> {
        let found = self.items().get(key(RUNS, &run.to_string())).await?;
        found.map(|found| decode_run(&Reader::new(self.table(), &found))).transpose()
    }

    /// The latest runs, newest first: the ids of runs begin with their time.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn runs(&self, limit: u32) -> Outcome<Vec<RunRecord>> {
        self.latest(RUNS, limit, decode_run).await
    }

    /// Queues a row key. Safe to repeat: a key is queued once, for the reason first given, and one request more costs a
    /// recount at the most.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn enqueue(&self, key: &RowKey, reason: QueueReason, now: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let [why, at, asked] = say.names([REASON, AT, ASKED]);
        let (given, now, one) = (say.text(reason_text(reason)), say.number(now), say.number(1));
        let update = format!("SET {why}=if_not_exists({why},{given}),{at}=if_not_exists({at},{now}) ADD {asked} {one}");
        self.items().update(self::key(QUEUE, &key.to_string()), say, update).await.map(|_| ())
    }

    /// What is queued, read consistently.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn queued(&self, after: Option<&Cursor>) -> Outcome<Page<Queued>> {
        let start = after.map(|cursor| Item::from([(PK.to_owned(), text(QUEUE)), start_one(SK, cursor)]));
        let query = self.query(QUEUE).set_exclusive_start_key(start);
        let query = query.return_consumed_capacity(aws_sdk_dynamodb::types::ReturnConsumedCapacity::Total);
        let reply = query.send().await.map_err(|error| fault(self.table(), &error))?;
        let queued = reply.items().iter().map(|item| decode_queued(&Reader::new(self.table(), item)));
        let items = queued.collect::<Outcome<_>>()?;
        let next = after_one(self.table(), SK, reply.last_evaluated_key())?;
        Ok(Page { items, next, half_units: half_units(reply.consumed_capacity()) })
    }

    /// Takes a key off the queue, unless it was asked for again since. Safe to repeat: what is gone stays gone, and what was
    /// asked for again has another number.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn dequeue(&self, queued: &Queued) -> Outcome<()> {
        let mut say = Aliases::default();
        let condition = format!("{}={}", say.name(ASKED), say.number(queued.asked));
        self.items().delete_if(key(QUEUE, &queued.key.to_string()), say, condition).await
    }

    /// Queues an audit of everything, asked for at `now`. Safe to repeat: an audit asked for later stands. The time moves with
    /// every call, whatever the caller's clock says: it tells one request from the next.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn enqueue_audit(&self, now: UnixMillis) -> Outcome<()> {
        for _ in 0..ATTEMPTS {
            let standing = self.audit_queued().await?;
            let later = standing.map_or(now, |standing| now.max(UnixMillis(standing.0 + 1)));
            let mut say = Aliases::default();
            let (at, asked) = (say.name(AT), say.number(later));
            let condition = match standing {
                None => format!("attribute_not_exists({at})"),
                Some(standing) => format!("{at}={}", say.number(standing)),
            };
            let update = format!("SET {at}={asked}");
            if self.items().update_if(key(AUDIT, AUDIT), say, update, condition).await?.done().is_some() {
                return Ok(());
            }
        }
        Err(Fault::Transient(format!("{}: too many workers queue an audit", self.table())))
    }

    /// When the audit that is queued was last asked for.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn audit_queued(&self) -> Outcome<Option<UnixMillis>> {
        let found = self.items().get(key(AUDIT, AUDIT)).await?;
        found.map(|found| Reader::new(self.table(), &found).required_number(AT).map(UnixMillis)).transpose()
    }

    /// The audit that was queued as `asked` is done; one asked for since stays queued. Safe to repeat: that one has a later
    /// time.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn audit_done(&self, asked: UnixMillis) -> Outcome<()> {
        let mut say = Aliases::default();
        let condition = format!("{}={}", say.name(AT), say.number(asked));
        self.items().delete_if(key(AUDIT, AUDIT), say, condition).await
    }
}

impl Recounts {
    /// Puts how far an audit has come, with the row keys that it has left by now. Safe to repeat, by any process: one that is
    /// done stays as it is.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_audit_progress(
        &self,
        run: AuditRun,
        progress: &str,
        left: u64,
        is_done: bool,
        now: UnixMillis,
    ) -> Outcome<()> {
        let mut say = Aliases::default();
        let (done, yes) = (say.name(DONE), say.value(flag(true)));
        let condition = format!("attribute_not_exists({done}) OR {done}<>{yes}");
        let mut stored = progress_of(run);
        stored.extend(item([
            (CURSOR, text(progress)),
            (UNSETTLED, number(left)),
            (DONE, flag(is_done)),
            (TTL, expiry(now, WEEK)),
        ]));
        self.items().put_if(stored, say, condition).await.map(|_| ())
    }

    /// How far an audit has come.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn audit_progress(&self, run: AuditRun) -> Outcome<Option<String>> {
        let found = self.items().get(progress_of(run)).await?;
        found.map(|found| Ok(Reader::new(self.table(), &found).required_text(CURSOR)?.to_owned())).transpose()
    }
}

impl Recounts {
    /// The lines of a counter's ledger, newest first.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn ledger(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<LedgerEntry>> {
        self.latest(&ledger::of(counter), limit, |line| ledger::decode(counter, line)).await
    }
}

impl Recounts {
    /// The milestones of a counter, the greatest first, read consistently.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn milestones(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<Recorded>> {
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

    /// The milestone of threshold `n`, read consistently.
    ///
    /// # Errors
    /// The table cannot be read; [`Fault::Poison`] where the milestone cannot.
    pub async fn milestone(&self, counter: &CounterId, n: i64) -> Outcome<Option<Recorded>> {
        let found = self.items().get(key(&milestone::of(counter), &milestone::place(n))).await?;
        found.map(|found| milestone::decode(&Reader::new(self.table(), &found))).transpose()
    }
}

fn encode_run(record: &RunRecord) -> Item {
    let mut encoded = item([
        (PK, text(RUNS)),
        (SK, text(record.run.to_string())),
        (BEGAN, number(record.began)),
        (SCOPE, text(record.scope_text())),
        (SUMMARY, text(record.to_stored())),
        (TTL, expiry(record.began, SEASON)),
    ]);
    encoded.extend(record.ended.map(|ended| (ENDED.to_owned(), number(ended))));
    encoded
}

fn decode_run(reader: &Reader<'_>) -> Outcome<RunRecord> {
    let times = (UnixMillis(reader.required_number(BEGAN)?), reader.number(ENDED)?.map(UnixMillis));
    let (run, scope, record) = (reader.required(SK)?, reader.required_text(SCOPE)?, reader.required_text(SUMMARY)?);
    RunRecord::from_stored(run, times, scope, record).map_err(|error| match &error {
        BadRecord::Scope(_) => reader.malformed(SCOPE, error),
        BadRecord::Malformed(_) => reader.malformed(SUMMARY, error),
    })
}

fn decode_queued(reader: &Reader<'_>) -> Outcome<Queued> {
    let reason = reader.required_text(REASON)?;
    let reasons = [QueueReason::Drift, QueueReason::Negative, QueueReason::Doubt, QueueReason::Asked];
    let known = reasons.into_iter().find(|known| reason_text(*known) == reason);
    let reason = known.ok_or_else(|| reader.malformed(REASON, format!("{reason:?} is no reason")))?;
    Ok(Queued { key: reader.required(SK)?, reason, asked: reader.required_number(ASKED)? })
}

fn reason_text(reason: QueueReason) -> &'static str {
    match reason {
        QueueReason::Drift => "drift",
        QueueReason::Negative => "negative",
        QueueReason::Doubt => "doubt",
        QueueReason::Asked => "asked",
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
