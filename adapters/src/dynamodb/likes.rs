//! Reads the rows of the table `likes`, for answers, recounts and audits, and puts markers beside them. (A marker is an
//! item by which a recount sees in the log how far the stream is.) [`Registers`](super::registers::Registers) writes
//! the rows.

use std::collections::BTreeSet;

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::changes::Nonce;
use tally_core::fault::Fault;
use tally_core::ids::{CounterName, MemberKey, RESERVED, ReservedKey, RowKey, UserId, check_id};
use tally_core::ports::Outcome;
use tally_core::register::Version;
use tally_core::time::UnixMillis;
use tally_core::topic::Partition;
use tally_core::weight::{Stated, Weight};

use super::connection::Connection;
use super::cursor::{Cursor, Page, Segment};
use super::item::{Item, Reader, item, text};
use super::table::{Consistency, Table};

/// The attributes of a row's key.
const KEY: [&str; 2] = ["pk", "user_id"];
/// How many rows one request reads. A page could be a megabyte, and its 256 read units, of the 3,000 that a partition
/// has each second, would slow down other requests.
const ROWS: i32 = 1_000;

/// How many requests one page of likes may take. Behind many tombstones a request finds fewer likes than were asked
/// for.
const REQUESTS: usize = 6;

/// How many times as many rows each request reads as the one before, since it is not known how many tombstones follow.
const GROWTH: i32 = 4;

/// The least sort key a user can have: reserved keys begin with U+0001, and ids hold no control character.
const FIRST_USER: &str = " ";

/// A like of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Like {
    pub user: UserId,
    pub liked_at: UnixMillis,
}

/// The row of a member, read by its key alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    pub user: UserId,
    /// When the store deletes a tombstone, the row that is left of a removed member, in seconds; `None` for a member.
    pub gone: Option<u64>,
}

/// A row as a scan finds it, also under a key where it should not be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScannedRow {
    /// The row's partition key.
    pub pk: String,
    /// The row's sort key.
    pub sort: String,
    /// What the row says that it counts for.
    pub stated: Stated,
    /// When the store deletes a tombstone, which counts for nothing, in seconds; `None` for any other row.
    pub gone: Option<u64>,
}

impl ScannedRow {
    /// Returns what the row counts for; `None` for a row that the fold skips.
    pub fn weight(&self) -> Option<Weight> {
        match ReservedKey::read(&self.sort) {
            Some(reserved) => self.stated.weight(true).filter(|_| reserved.is_counted()),
            None => self.stated.weight(false).filter(|_| check_id(&self.sort).is_ok()),
        }
    }
}

/// Reads rows. A tombstone is no like and no member. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Rows {
    connection: Connection,
}

impl Rows {
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    fn table(&self) -> Table<'_> {
        self.connection.likes()
    }

    /// Builds a consistent query of one row key from the sort key `first` on, with these attributes of each row, or
    /// all.
    fn rows_of(&self, key: &RowKey, first: impl Into<String>, projection: Option<&str>) -> QueryFluentBuilder {
        let values = [(":pk", text(key.to_string())), (":first", text(first))];
        self.table().query("#pk=:pk AND #user_id>=:first", projection, values)
    }

    /// Reads a page of a query of one row key, after `after`.
    async fn page(&self, query: QueryFluentBuilder, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<Item>> {
        self.table().query_page(query, KEY, &key.to_string(), after).await
    }

    /// Returns the likes among `rows`. Skips tombstones, and malformed rows so that paging continues.
    fn likes_in<'a>(&self, rows: &'a [Item]) -> impl Iterator<Item = Like> + use<'a, '_> {
        rows.iter().filter(|row| !row.contains_key("gone")).filter_map(|row| self.like_in(row).ok())
    }

    fn like_in(&self, row: &Item) -> Outcome<Like> {
        let reader = self.table().reader(row);
        Ok(Like { user: reader.get("user_id")?, liked_at: reader.get("liked_at")? })
    }

    /// Returns `user`'s like in `key`, read consistently.
    ///
    /// # Errors
    /// The table cannot be read, or the row is malformed.
    pub async fn like(&self, key: &RowKey, user: &UserId) -> Outcome<Option<Like>> {
        let row = self.table().get(row_key(key.to_string(), user.as_str()), Consistency::Strong).await?;
        row.filter(|row| !row.contains_key("gone")).map(|row| self.like_in(&row)).transpose()
    }

    /// Returns whether `member` is in each of `keys`, in their order; reads all of them together, consistently.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn present(&self, keys: &[RowKey], member: &UserId) -> Outcome<Vec<bool>> {
        let pks: Vec<String> = keys.iter().map(RowKey::to_string).collect();
        // DynamoDB refuses a request that names a key twice.
        let distinct: BTreeSet<&String> = pks.iter().collect();
        let named = distinct.into_iter().map(|pk| (pk.clone(), pk));
        let rest = item! { "user_id": text(member.as_str()) };
        let is_member = |row: &Reader<'_>| Ok(!row.item.contains_key("gone"));
        let found = self.table().find_all(("pk", rest), named, Consistency::Strong, is_member).await?;
        Ok(pks.iter().map(|pk| found.get(pk).is_some_and(|is_member| *is_member)).collect())
    }

    /// Returns the likes of one row key in the order of user ids, after `after`, without reserved rows; reads
    /// consistently. A page without a `next` is the last one. Any other may have fewer than `limit` likes, or none,
    /// since there were rows that are no likes.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn likes(&self, key: &RowKey, after: Option<&Cursor>, limit: Option<u32>) -> Outcome<Page<Like>> {
        let most = limit.map_or(usize::MAX, |limit| limit as usize);
        let mut read = limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX));
        let mut page = Page { items: Vec::new(), next: after.cloned(), half_units: 0 };
        for _ in 0..REQUESTS {
            let query = self.rows_of(key, FIRST_USER, None).set_limit(read);
            let rows = self.page(query, key, page.next.as_ref()).await?;
            page.half_units += rows.half_units;
            page.items.extend(self.likes_in(&rows.items));
            page.next = rows.next;
            if page.items.len() > most {
                page.items.truncate(most);
                page.next = page.items.last().map(|last| Cursor(last.user.as_str().to_owned()));
            }
            if limit.is_none() || page.items.len() == most || page.next.is_none() {
                break;
            }
            read = read.map(|rows| rows.saturating_mul(GROWTH).min(ROWS).max(rows));
        }
        Ok(page)
    }

    /// Returns every row of `key` that has a valid user's id, tombstones too, after `after`, whatever else is in the
    /// rows; reads consistently. Leaves reserved rows out.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn users(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<MemberRow>> {
        let query = self.rows_of(key, FIRST_USER, Some("#user_id,#gone")).limit(ROWS);
        self.page(query, key, after).await?.read(|row| {
            let user = UserId::new(self.table().reader(&row).text("user_id")?).ok();
            Ok(user.map(|user| MemberRow { user, gone: gone(&row) }))
        })
    }

    /// Returns the rows of `key` with their weights, after `after`: what the fold counts. The weight is `None` where it
    /// is not readable. Leaves out markers, tombstones and rows of no valid member, which weigh nothing. Reads
    /// consistently.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn weights(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<(MemberKey, Option<Weight>)>> {
        let query = self.rows_of(key, RESERVED, Some("#user_id,#n,#gone")).limit(ROWS);
        self.page(query, key, after).await?.read(|row| {
            if row.contains_key("gone") {
                return Ok(None);
            }
            let Some(member) = MemberKey::new(self.table().reader(&row).text("user_id")?) else { return Ok(None) };
            let weight = stated(&row).weight(member.is_cell());
            Ok(Some((member, weight)))
        })
    }

    /// Reads one page of a table scan, keys and weights only, consistently. Leaves out reserved rows that are no cells,
    /// and keeps tombstones. The rows of a key follow each other, within a page and from page to page.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<ScannedRow>> {
        let page = self.table().scan_page(segment, Some("#pk,#user_id,#n,#gone"), &KEY, after).await?;
        page.read(|row| Ok(Some(scanned(self.table().name, row)?).filter(is_counted)))
    }

    /// Puts a marker beside the rows of each key, over the marker that is there: up to [`PUTS`](crate::dynamodb::PUTS)
    /// in one request. Safe to repeat, also late: a marker promises that what happened to the key before its first copy
    /// was written comes before it in the stream.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn mark(&self, markers: &[(RowKey, Nonce)]) -> Outcome<()> {
        let marker = |(key, nonce): &(RowKey, Nonce)| {
            let mut marker = row_key(key.to_string(), ReservedKey::Recount.to_string());
            marker.extend(item! { "run": text(nonce.to_string()) });
            marker
        };
        self.table().put_all(markers.iter().map(marker)).await
    }
}

fn row_key(pk: String, user: impl Into<String>) -> Item {
    item! { "pk": text(pk), "user_id": text(user) }
}

/// Moves the texts out of the item without copying them: audits spend most of their time here.
fn scanned(table: &str, mut row: Item) -> Outcome<ScannedRow> {
    let (stated, gone) = (stated(&row), gone(&row));
    let mut part = |name| match row.remove(name) {
        Some(AttributeValue::S(text)) => Ok(text),
        _ => Err(Fault::Poison(format!("table {table}: a row whose key is not two texts"))),
    };
    Ok(ScannedRow { pk: part("pk")?, sort: part("user_id")?, stated, gone })
}

/// Returns what a row states to count for. A tombstone counts for nothing.
fn stated(row: &Item) -> Stated {
    if row.contains_key("gone") {
        return Stated::Amount(Weight::ABSENT);
    }
    match row.get("n") {
        None => Stated::Nothing,
        Some(AttributeValue::N(n)) => Stated::number(n),
        Some(_) => Stated::Unreadable,
    }
}

/// Returns when the store deletes a tombstone, in seconds. One without a readable number stays for ever.
fn gone(row: &Item) -> Option<u64> {
    let seconds = row.get("gone")?.as_n().ok().and_then(|seconds| seconds.parse().ok());
    Some(seconds.unwrap_or(u64::MAX))
}

fn is_counted(row: &ScannedRow) -> bool {
    ReservedKey::read(&row.sort).is_none_or(ReservedKey::is_counted)
}

/// What the rows of a deployment whose checkpoints are lost show: their generation, and which sums there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The greatest generation in the version of a row or a cell; 0 where there is none.
    pub generation: u16,
    /// The partitions that have added to a sum.
    pub added: BTreeSet<Partition>,
    /// The sums that have cells.
    pub sums: BTreeSet<CounterName>,
}

impl Remains {
    /// Reads every row, consistently.
    ///
    /// # Errors
    /// The table cannot be read, or a row is not what it has to be.
    pub async fn read(connection: &Connection) -> Outcome<Self> {
        let (table, mut found) = (connection.likes(), Self::default());
        table.scan_all(table.scan(Some("#pk,#user_id,#v,#to")), |row| found.take(row)).await?;
        Ok(found)
    }

    fn take(&mut self, reader: &Reader<'_>) -> Outcome<()> {
        let sort = reader.text("user_id")?;
        let cell = match ReservedKey::read(sort) {
            Some(ReservedKey::Cell { topic, partition }) => Some(Partition { topic: topic.into(), index: partition }),
            Some(_) => return Ok(()),
            None => None,
        };
        // A cell or row that no consumer wrote has no version.
        let version = reader.get::<Option<Version>>(if cell.is_some() { "to" } else { "v" })?;
        self.generation = self.generation.max(version.map_or(0, Version::generation));
        // A row whose key is no row key counts for nothing.
        if let (Some(cell), Ok(key)) = (cell, reader.text("pk")?.parse::<RowKey>()) {
            self.sums.insert(key.counter.name);
            self.added.extend(version.map(|_| cell));
        }
        Ok(())
    }
}
