//! Writes the rows of `likes` for the consumer, and reads and writes cells. Rows are registers: each has the version of
//! the event that it comes from, and a write replaces an older version only. A cell is the row of a sum (a counter that
//! adds amounts, such as views) that one Kafka partition adds to. A row key is a counter and a shard (part) of it.
//!
//! | attribute | |
//! |---|---|
//! | `pk`, `user_id` | the key: row key and member, or row key and cell |
//! | `post_id` | what is liked |
//! | `v` | the [version](tally_core::register::Version) of the event |
//! | `liked_at`, `region` | of a like |
//! | `gone` | of a tombstone: when the store deletes it, in seconds |
//! | `n`, `to` | of a cell: the sum, and the version of the last event in it |
//!
//! Writes are statements of `BatchExecuteStatement`, each with an outcome of its own. A request is sent once: the
//! caller decides whether a statement is sent again, since it may know of a newer event.

use std::sync::Arc;

use aws_sdk_dynamodb::types::BatchStatementRequest;
use tally_core::fault::Fault;
use tally_core::ids::{ReservedKey, RowKey};
use tally_core::ports::Outcome;
use tally_core::register::{Answer, Attempt, Cell, Change, Member, Progress};
use tally_core::topic::Partition;

use super::clock::Confirmed;
use super::connection::{Connection, LIKES};
use super::item::{Reader, item, number, text};
use super::statement::{self, Refusal, statement};
use super::table::{Consistency, Table};

/// Writes rows, and reads and writes cells.
#[derive(Clone, Debug)]
pub struct Registers {
    connection: Connection,
    texts: Arc<Texts>,
}

impl Registers {
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone(), texts: Arc::new(Texts::of(&connection.tables.likes)) }
    }

    fn table(&self) -> Table<'_> {
        self.connection.likes()
    }

    /// Sends one request of statements for different rows, at most [`Progress::STATEMENTS`], each by itself. Returns
    /// the outcomes in their order. The store deletes tombstones that this writes from the second `gone` on.
    ///
    /// Safe to repeat, also late and by others: a row that has the write's version or a greater one stays as it is. A
    /// request must not arrive after the tombstone of a later removal has expired, so it is sent only if the claim was
    /// confirmed lately. After [`Fault::Transient`] it is not known whether a statement was carried out, and it was not
    /// after any other fault.
    ///
    /// # Panics
    /// There are more statements than a request takes.
    pub async fn write(&self, attempts: &[Attempt], gone: u64, confirmed: Confirmed) -> Vec<Outcome<Answer>> {
        let sent = self.send(attempts.len(), |nth| self.texts.statement(&attempts[nth], gone), confirmed).await;
        attempts.iter().zip(sent).map(|(attempt, sent)| self.judged(attempt, sent)).collect()
    }

    fn judged(&self, attempt: &Attempt, sent: Result<(), Refusal>) -> Outcome<Answer> {
        match sent {
            Ok(()) => Ok(Answer::Stored),
            Err(Refusal::Duplicate | Refusal::Condition(None)) if attempt.stands.is_some() => {
                Err(Fault::Transient(format!("{}: the row came or went between two statements", self.table().name)))
            }
            Err(Refusal::Duplicate) => Ok(Answer::Stands(true)),
            Err(Refusal::Condition(None)) => Ok(Answer::Stands(false)),
            Err(Refusal::Condition(Some(row))) => self.table().reader(&row).get("v").map(Answer::Older),
            Err(Refusal::Fault(fault)) => Err(fault),
        }
    }

    /// Sends so many statements as one request. If the request is refused as a whole, sends the statements one by one,
    /// so that a fault of one is not reported for the others.
    ///
    /// # Panics
    /// There are more statements than a request takes.
    async fn send(
        &self,
        count: usize,
        statement: impl Fn(usize) -> BatchStatementRequest,
        confirmed: Confirmed,
    ) -> Vec<Result<(), Refusal>> {
        assert!(count <= Progress::STATEMENTS, "{count} statements are more than a request takes");
        if count == 0 {
            return Vec::new();
        }
        let whole = self.request((0..count).map(&statement).collect(), confirmed).await;
        match whole {
            Ok(sent) => sent,
            Err(Fault::Poison(_)) if count > 1 => {
                let mut each = Vec::with_capacity(count);
                for nth in 0..count {
                    let alone = self.request(vec![statement(nth)], confirmed).await;
                    each.extend(alone.unwrap_or_else(|fault| vec![Err(Refusal::Fault(fault))]));
                }
                each
            }
            Err(fault) => (0..count).map(|_| Err(Refusal::Fault(fault.clone()))).collect(),
        }
    }

    /// Signs and sends one request, if the table may be written and the claim was confirmed lately.
    async fn request(
        &self,
        statements: Vec<BatchStatementRequest>,
        confirmed: Confirmed,
    ) -> Outcome<Vec<Result<(), Refusal>>> {
        self.connection.watch.open_to(LIKES)?;
        let asked = statements.len();
        let request = self.connection.by_store_clock.batch_execute_statement().set_statements(Some(statements));
        self.table().outcomes(asked, request.customize().interceptor(confirmed).send().await)
    }
}

/// The update of a cell from one state to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellUpdate {
    /// The row key that the cell is under.
    pub key: RowKey,
    /// The state as it was last read or written; `None` where the cell was absent.
    pub from: Option<Cell>,
    /// The state afterwards.
    pub to: Cell,
}

/// The outcome of one update. It is refused if the cell has another version than the update names.
pub type Advanced = statement::Written<Cell>;

/// Cells: the rows that Kafka partitions add to sums.
impl Registers {
    /// Returns the cells of `partition` under different row keys, in their order; reads consistently. A cell that
    /// cannot be read is [`Fault::Poison`].
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn read_cells(&self, partition: &Partition, keys: &[RowKey]) -> Outcome<Vec<Outcome<Option<Cell>>>> {
        self.connection.watch.open_to(LIKES)?;
        let named = keys.iter().enumerate().map(|(nth, key)| (key.to_string(), nth));
        let rest = item! { "user_id": text(sort(partition)) };
        let decode = |found: &Reader<'_>| Ok(cell(found));
        let mut cells = self.table().find_all(("pk", rest), named, Consistency::Strong, decode).await?;
        Ok((0..keys.len()).map(|nth| cells.remove(&nth).transpose()).collect())
    }

    /// Updates cells of `partition` under different row keys, at most [`Progress::STATEMENTS`], each by itself. Returns
    /// the outcomes in their order.
    ///
    /// Safe to repeat, also late and by others: each update names the cell's version and replaces it by a later one, so
    /// a copy is refused.
    ///
    /// # Panics
    /// There are more updates than a request takes.
    pub async fn advance_cells(
        &self,
        partition: &Partition,
        updates: &[CellUpdate],
        confirmed: Confirmed,
    ) -> Vec<Advanced> {
        let sort = sort(partition);
        let statement = |nth: usize| updates[nth].statement(self.table().name, &sort);
        let sent = self.send(updates.len(), statement, confirmed).await;
        sent.into_iter().map(|sent| Advanced::of(sent, |found| cell(&self.table().reader(found)))).collect()
    }
}

impl CellUpdate {
    fn statement(&self, table: &str, sort: &str) -> BatchStatementRequest {
        let (key, to) = ([text(self.key.to_string()), text(sort)], [number(self.to.n), number(self.to.to)]);
        match &self.from {
            None => {
                let insert = format!("INSERT INTO \"{table}\" VALUE {{'pk':?,'user_id':?,'n':?,'to':?}}");
                statement(insert, key.into_iter().chain(to).collect())
            }
            Some(from) => {
                let update = format!(
                    "UPDATE \"{table}\" SET \"n\"=? SET \"to\"=? WHERE \"pk\"=? AND \"user_id\"=? AND \"to\"=?"
                );
                statement(update, to.into_iter().chain(key).chain([number(from.to)]).collect())
            }
        }
    }
}

/// Returns the sort key of a partition's cells.
fn sort(partition: &Partition) -> String {
    ReservedKey::Cell { topic: &partition.topic, partition: partition.index }.to_string()
}

fn cell(found: &Reader<'_>) -> Outcome<Cell> {
    Ok(Cell { n: found.get("n")?, to: found.get("to")? })
}

/// The texts of all statements. Two writes differ only in their parameters.
#[derive(Debug)]
struct Texts {
    put: [String; 2],
    put_with_region: [String; 2],
    remove: [String; 2],
}

impl Texts {
    /// The statements of a table. Each removes the attributes that the row may have from what it was before.
    fn of(table: &str) -> Self {
        Self {
            put: both(table, &["liked_at"], &["region", "gone"]),
            put_with_region: both(table, &["liked_at", "region"], &["gone"]),
            remove: both(table, &["gone"], &["liked_at", "region"]),
        }
    }

    /// Returns the statement of an attempt.
    fn statement(&self, attempt: &Attempt, gone: u64) -> BatchStatementRequest {
        let (write, replaces) = (&*attempt.write, attempt.replaces());
        let (pk, member) = (text(write.row.key.to_string()), text(write.row.member.as_str()));
        let version = number(write.version);
        let (mut parameters, condition) = if replaces {
            (vec![version.clone()], Some([pk, member, version]))
        } else {
            (vec![pk, member, text(&*write.row.key.counter.post), version], None)
        };
        let texts = match &write.change {
            Change::Put(Member { liked_at, region }) => {
                parameters.push(number(liked_at));
                parameters.extend(region.as_ref().map(|region| text(region.as_str())));
                if region.is_some() { &self.put_with_region } else { &self.put }
            }
            Change::Remove => {
                parameters.push(number(gone));
                &self.remove
            }
        };
        parameters.extend(condition.into_iter().flatten());
        statement(&*texts[usize::from(replaces)], parameters)
    }
}

/// Returns an `INSERT` and an `UPDATE` that set the version and the attributes `set`. The `UPDATE` removes the
/// attributes `removed`.
fn both(table: &str, set: &[&str], removed: &[&str]) -> [String; 2] {
    let each = |names: &[&str], part: fn(&str) -> String| names.iter().map(|name| part(name)).collect::<String>();
    let put = each(set, |name| format!(",'{name}':?"));
    let (set, removed) =
        (each(set, |name| format!(" SET \"{name}\"=?")), each(removed, |name| format!(" REMOVE \"{name}\"")));
    [
        format!("INSERT INTO \"{table}\" VALUE {{'pk':?,'user_id':?,'post_id':?,'v':?{put}}}"),
        format!("UPDATE \"{table}\" SET \"v\"=?{set}{removed} WHERE \"pk\"=? AND \"user_id\"=? AND \"v\"<?"),
    ]
}
