//! The table `recounts`: records of recounts (runs), the queue of row keys that wait for one, the ledgers of
//! corrections and of operators' changes, and milestones (who brought a counter to a threshold). A recount compares the
//! rows of `likes` with the counters. A row key, the partition key of rows, is a counter and a shard (part) of it.

mod records;

use std::time::Duration;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::audit::{AuditRun, BadRecord, QueueReason, RunRecord};
use tally_core::fault::Fault;
use tally_core::ids::{CounterId, RowKey};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

pub(super) use self::records::put_milestone;
pub use self::records::{LedgerEntry, Operation, Recorded};
use self::records::{OPERATORS, decode_milestone, ledger_of, milestones_of, place};
use super::connection::Connection;
use super::cursor::{Cursor, Page};
use super::item::{Item, Reader, flag, item, number, text};
use super::table::{Table, Values};

/// The partition key of runs.
const RUNS: &str = "run";
/// The partition key of the queue.
const QUEUE: &str = "queue";
/// The key of the request for an audit.
const AUDIT: &str = "audit";

/// How often a request for an audit is tried while other processes make one.
const ATTEMPTS: usize = 10;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long the progress of an audit is kept.
const WEEK: Duration = Duration::from_secs(7 * DAY.as_secs());
/// How long a run can be looked up.
const SEASON: Duration = Duration::from_secs(90 * DAY.as_secs());

/// A row key that waits for a recount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queued {
    pub key: RowKey,
    /// Why it was first queued.
    pub reason: QueueReason,
    /// How often it was asked for. A recount that has seen fewer requests leaves it queued.
    pub asked: u64,
}

/// Reads and writes the table `recounts`. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Recounts {
    connection: Connection,
}

impl Recounts {
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn table(&self) -> Table<'_> {
        self.connection.recounts()
    }

    fn query(&self, pk: &str) -> QueryFluentBuilder {
        self.table().query("#pk=:pk", None, [(":pk", text(pk))])
    }

    /// Returns the last items under one partition key, the last one first, in as many requests as that takes.
    async fn latest<T>(&self, pk: &str, limit: u32, decode: impl Fn(&Reader<'_>) -> Outcome<T>) -> Outcome<Vec<T>> {
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
        let (mut found, mut start) = (Vec::new(), None);
        loop {
            let left = i32::try_from(wanted - found.len()).unwrap_or(i32::MAX);
            let query = self.query(pk).scan_index_forward(false).limit(left).set_exclusive_start_key(start);
            let reply = query.send().await.map_err(|error| self.table().fault(&error))?;
            for item in reply.items() {
                found.push(decode(&self.table().reader(item))?);
            }
            start = reply.last_evaluated_key;
            if start.is_none() || found.len() >= wanted {
                return Ok(found);
            }
        }
    }
}

fn key(pk: &str, sk: &str) -> Item {
    item! { "pk": text(pk), "sk": text(sk) }
}

/// Returns the key of the progress of an audit.
fn progress_of(run: AuditRun) -> Item {
    key(&format!("segment#{run}"), &padded(0))
}

impl Recounts {
    /// Stores a run's record. Safe to repeat: the latest summary is stored, and a run that has ended stays as it is.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_run(&self, record: &RunRecord) -> Outcome<()> {
        self.table().put_if(encode_run(record), "attribute_not_exists(#ended)", []).await.map(|_| ())
    }

    /// Returns a run's record.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn run(&self, run: AuditRun) -> Outcome<Option<RunRecord>> {
        self.table().find(key(RUNS, &run.to_string()), decode_run).await
    }

    /// Returns the latest runs, newest first: the ids of runs begin with their time.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn runs(&self, limit: u32) -> Outcome<Vec<RunRecord>> {
        self.latest(RUNS, limit, decode_run).await
    }

    /// Queues a row key. Safe to repeat: a key is queued once, for the first reason, and one more request costs a
    /// recount at most.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn enqueue(&self, key: &RowKey, reason: QueueReason, now: UnixMillis) -> Outcome<()> {
        let update = "SET #reason=if_not_exists(#reason,:reason),#at=if_not_exists(#at,:now) ADD #asked :one";
        let values = [(":reason", text(reason_text(reason))), (":now", number(now)), (":one", number(1))];
        self.table().update(self::key(QUEUE, &key.to_string()), update, values).await.map(|_| ())
    }

    /// Returns a page of the queue, read consistently.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn queued(&self, after: Option<&Cursor>) -> Outcome<Page<Queued>> {
        let page = self.table().query_page(self.query(QUEUE), ["pk", "sk"], QUEUE, after).await?;
        page.read(|item| decode_queued(&self.table().reader(&item)).map(Some))
    }

    /// Takes a key off the queue, unless it was asked for again since. Safe to repeat: a key that is gone stays gone,
    /// and one that was asked for again has another number.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn dequeue(&self, queued: &Queued) -> Outcome<()> {
        let asked = [(":asked", number(queued.asked))];
        self.table().delete_if(key(QUEUE, &queued.key.to_string()), "#asked=:asked", asked).await
    }

    /// Queues an audit of everything, asked for at `now`. Safe to repeat: the latest request stays. The stored time
    /// moves with every call, whatever the caller's clock says, so that requests differ.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn enqueue_audit(&self, now: UnixMillis) -> Outcome<()> {
        for _ in 0..ATTEMPTS {
            let standing = self.audit_queued().await?;
            let later = standing.map_or(now, |standing| now.max(UnixMillis(standing.0 + 1)));
            let mut values = Values::from([(":later", number(later))]);
            let condition = values.same("at", standing.map(number));
            if self.table().update_if(key(AUDIT, AUDIT), "SET #at=:later", &condition, values).await?.is_ok() {
                return Ok(());
            }
        }
        Err(Fault::Transient(format!("{}: too many workers queue an audit", self.table().name)))
    }

    /// Returns when the queued audit was last asked for.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn audit_queued(&self) -> Outcome<Option<UnixMillis>> {
        self.table().find(key(AUDIT, AUDIT), |found| found.get("at")).await
    }

    /// Takes the audit that was asked for at `asked` off the queue. Safe to repeat: one that was asked for since has a
    /// later time, and stays queued.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn audit_done(&self, asked: UnixMillis) -> Outcome<()> {
        self.table().delete_if(key(AUDIT, AUDIT), "#at=:asked", [(":asked", number(asked))]).await
    }
}

impl Recounts {
    /// Stores how far an audit is, and how many row keys it has left unsettled so far. Safe to repeat, by any process:
    /// the progress of an audit that is done stays as it is.
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
        let mut stored = progress_of(run);
        stored.extend(item! {
            "cursor": text(progress),
            "unsettled": number(left),
            "done": flag(is_done),
            "ttl": expiry(now, WEEK),
        });
        let condition = "attribute_not_exists(#done) OR #done<>:yes";
        self.table().put_if(stored, condition, [(":yes", flag(true))]).await.map(|_| ())
    }

    /// Returns how far an audit is.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn audit_progress(&self, run: AuditRun) -> Outcome<Option<String>> {
        self.table().find(progress_of(run), |found| found.get("cursor")).await
    }

    /// Puts lines of the ledger of corrections, up to [`PUTS`](super::PUTS) in one request. Safe to repeat: the lines
    /// are the same.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_ledger(&self, lines: &[LedgerEntry]) -> Outcome<()> {
        self.table().put_all(lines.iter().map(LedgerEntry::encode)).await
    }

    /// Returns the lines of a counter's ledger, newest first.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn ledger(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<LedgerEntry>> {
        self.latest(&ledger_of(counter), limit, |line| LedgerEntry::decode(counter, line)).await
    }

    /// Puts a line of the operators' ledger, over the line that was put when the operation began. Safe to repeat: the
    /// line is the same.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn put_operation(&self, operation: &Operation) -> Outcome<()> {
        self.table().put(operation.encode()).await
    }

    /// Returns the latest lines of the operators' ledger, newest first.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn operations(&self, limit: u32) -> Outcome<Vec<Operation>> {
        self.latest(OPERATORS, limit, Operation::decode).await
    }

    /// Returns the milestones of a counter, the greatest first, read consistently.
    ///
    /// # Errors
    /// The table cannot be read, or what was found in it.
    pub async fn milestones(&self, counter: &CounterId, limit: u32) -> Outcome<Vec<Recorded>> {
        self.latest(&milestones_of(counter), limit, decode_milestone).await
    }

    /// Returns the milestone of threshold `n`, read consistently.
    ///
    /// # Errors
    /// The table cannot be read; [`Fault::Poison`] where the milestone cannot.
    pub async fn milestone(&self, counter: &CounterId, n: i64) -> Outcome<Option<Recorded>> {
        self.table().find(key(&milestones_of(counter), &place(n)), decode_milestone).await
    }
}

fn encode_run(record: &RunRecord) -> Item {
    item! {
        "pk": text(RUNS),
        "sk": text(record.run.to_string()),
        "began": number(record.began),
        "scope": text(record.scope_text()),
        "summary": text(record.to_stored()),
        "ttl": expiry(record.began, SEASON),
        "ended": record.ended.map(number),
    }
}

fn decode_run(reader: &Reader<'_>) -> Outcome<RunRecord> {
    let times = (reader.get("began")?, reader.get("ended")?);
    let (run, scope, record) = (reader.get("sk")?, reader.text("scope")?, reader.text("summary")?);
    RunRecord::from_stored(run, times, scope, record).map_err(|error| match &error {
        BadRecord::Scope(_) => reader.malformed("scope", error),
        BadRecord::Malformed(_) => reader.malformed("summary", error),
    })
}

fn decode_queued(reader: &Reader<'_>) -> Outcome<Queued> {
    let reason = reader.text("reason")?;
    let reasons = [QueueReason::Drift, QueueReason::Negative, QueueReason::Doubt, QueueReason::Asked];
    let known = reasons.into_iter().find(|known| reason_text(*known) == reason);
    let reason = known.ok_or_else(|| reader.malformed("reason", format!("{reason:?} is no reason")))?;
    Ok(Queued { key: reader.get("sk")?, reason, asked: reader.get("asked")? })
}

fn reason_text(reason: QueueReason) -> &'static str {
    match reason {
        QueueReason::Drift => "drift",
        QueueReason::Negative => "negative",
        QueueReason::Doubt => "doubt",
        QueueReason::Asked => "asked",
    }
}

/// Pads a number so that text order is number order.
fn padded(n: u64) -> String {
    format!("{n:020}")
}

/// Returns when the store may delete an item that was written at `now` and is kept for `long`, in seconds.
fn expiry(now: UnixMillis, long: Duration) -> AttributeValue {
    number(now.0 / 1000 + long.as_secs())
}
