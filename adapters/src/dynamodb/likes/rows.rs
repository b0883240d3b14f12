//! Reading rows.

use std::collections::{BTreeSet, HashSet};

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use tally_core::fault::Fault;
use tally_core::ids::{MemberKey, RESERVED, ReservedKey, RowKey, UserId, check_id};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;
use tally_core::weight::{Stated, Weight};

use super::super::connection::Connection;
use super::super::cursor::{Cursor, Page, Segment, after_one, after_two, half_units, start_one, start_two};
use super::super::fault::fault;
use super::super::get::{self, Consistency};
use super::super::item::{Item, Reader, text};
use super::super::names::PK;
use super::super::names::likes::{GONE, LIKED_AT, N, USER_ID};
use super::row_key;

/// Rows read at once. A page could be a megabyte, and at 256 units of the 3,000 that a partition has each second those
/// beside it would feel it.
const ROWS: i32 = 1_000;

/// Requests that are made for one page of likes. Behind many tombstones it has fewer than were asked for.
const REQUESTS: usize = 6;

/// How many times as many rows each of them reads as the one before: how many tombstones come next is not known.
const GROWTH: i32 = 4;

/// The least sort key a user can have: reserved keys begin with U+0001, and ids hold no control character.
const FIRST_USER: &str = " ";

/// A like that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Like {
    /// The user who gave it.
    pub user: UserId,
    /// When it was given.
    pub liked_at: UnixMillis,
}

/// The row of a member, by its key alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRow {
    pub user: UserId,
    /// Of a tombstone, which is left of a member that was removed: when the store deletes it, in seconds.
    pub gone: Option<u64>,
}

/// A row as a scan meets it: also one that stands where it should not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScannedRow {
    /// The row's partition key.
    pub pk: String,
    /// The row's sort key.
    pub sort: String,
    /// What the row says that it counts for.
    pub stated: Stated,
    /// Of a tombstone, which counts for nothing: when the store deletes it, in seconds.
    pub gone: Option<u64>,
}

impl ScannedRow {
    /// What it counts for; `None` for one that the fold passes over.
    pub fn weight(&self) -> Option<Weight> {
        match ReservedKey::read(&self.sort) {
            Some(reserved) => self.stated.weight(true).filter(|_| reserved.is_counted()),
            None => self.stated.weight(false).filter(|_| check_id(&self.sort).is_ok()),
        }
    }
}

/// The rows, to be read. A tombstone is no like and no member. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Rows {
    connection: Connection,
}

impl Rows {
    /// The rows of a deployment.
    pub fn new(connection: &Connection) -> Self {
        Self { connection: connection.clone() }
    }

    /// A consistent query of one row key from the sort key `first` on, behind `after`.
    fn rows_of(&self, key: &RowKey, first: impl Into<String>, after: Option<&Cursor>) -> QueryFluentBuilder {
        let pk = key.to_string();
        let start = after.map(|cursor| Item::from([(PK.to_owned(), text(pk.as_str())), start_one(USER_ID, cursor)]));
        self.connection
            .client
            .query()
            .table_name(&self.connection.tables.likes)
            .key_condition_expression("#pk=:pk AND #user>=:first")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#user", USER_ID)
            .expression_attribute_values(":pk", AttributeValue::S(pk))
            .expression_attribute_values(":first", text(first))
            .set_exclusive_start_key(start)
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total)
    }

    /// The likes among `rows`. Skips tombstones, and malformed rows so that paging continues.
    fn likes_in<'a>(&self, rows: &'a [Item]) -> impl Iterator<Item = Like> + use<'a, '_> {
        rows.iter().filter(|row| !row.contains_key(GONE)).filter_map(|row| self.like_in(row).ok())
    }

    fn like_in(&self, row: &Item) -> Outcome<Like> {
        let reader = Reader::new(&self.connection.tables.likes, row);
        Ok(Like { user: reader.required(USER_ID)?, liked_at: UnixMillis(reader.required_number(LIKED_AT)?) })
    }

    /// `user`'s like in `key`, read consistently.
    ///
    /// # Errors
    /// The table cannot be read, or the row is malformed.
    pub async fn like(&self, key: &RowKey, user: &UserId) -> Outcome<Option<Like>> {
        let table = &self.connection.tables.likes;
        let key = row_key(key.to_string(), text(user.as_str()));
        let row = self.connection.items(table).get(key).await?;
        row.filter(|row| !row.contains_key(GONE)).map(|row| self.like_in(&row)).transpose()
    }

    /// Whether `member` is in each of `keys`, in their order, read consistently and together.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn present(&self, keys: &[RowKey], member: &UserId) -> Outcome<Vec<bool>> {
        let table = &self.connection.tables.likes;
        let pks: Vec<String> = keys.iter().map(RowKey::to_string).collect();
        // A request that names a key twice is refused.
        let distinct: BTreeSet<&String> = pks.iter().collect();
        let keys: Vec<Item> = distinct.into_iter().map(|pk| row_key(pk.clone(), text(member.as_str()))).collect();
        let found = get::items(&self.connection, table, &keys, Consistency::Strong).await?;
        let found = found.iter().filter(|row| !row.contains_key(GONE));
        let found = found.map(|row| Reader::new(table, row).required_text(PK)).collect::<Outcome<HashSet<_>>>()?;
        Ok(pks.iter().map(|pk| found.contains(pk.as_str())).collect())
    }

    /// The likes of one row key in the order of user ids, behind `after`, read consistently; reserved rows left out. A page of
    /// fewer than `limit`, or of none, is not the last one if it has a `next`: rows that are no likes came in between.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn likes(&self, key: &RowKey, after: Option<&Cursor>, limit: Option<u32>) -> Outcome<Page<Like>> {
        let table = &self.connection.tables.likes;
        let most = limit.map_or(usize::MAX, |limit| limit as usize);
        let mut read = limit.map(|limit| i32::try_from(limit).unwrap_or(i32::MAX));
        let mut page = Page { items: Vec::new(), next: after.cloned(), half_units: 0 };
        for _ in 0..REQUESTS {
            let query = self.rows_of(key, FIRST_USER, page.next.as_ref()).set_limit(read);
            let reply = query.send().await.map_err(|error| fault(table, &error))?;
            page.half_units += half_units(reply.consumed_capacity());
            page.items.extend(self.likes_in(reply.items()));
            page.next = after_one(table, USER_ID, reply.last_evaluated_key())?;
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

    /// Every row of `key` that has a user's id, tombstones too, behind `after`, read consistently: whatever else is in the
    /// rows. Reserved rows and those of no valid user are left out.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn users(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<MemberRow>> {
        let table = &self.connection.tables.likes;
        let query = self.rows_of(key, FIRST_USER, after).projection_expression("#user,#gone").limit(ROWS);
        let reply =
            query.expression_attribute_names("#gone", GONE).send().await.map_err(|error| fault(table, &error))?;
        let rows = reply.items().iter().map(|row| Ok((Reader::new(table, row).required_text(USER_ID)?, gone(row))));
        let rows = rows.collect::<Outcome<Vec<_>>>()?;
        let member = |(user, gone)| Some(MemberRow { user: UserId::new(user).ok()?, gone });
        let items = rows.into_iter().filter_map(member).collect();
        let next = after_one(table, USER_ID, reply.last_evaluated_key())?;
        Ok(Page { items, next, half_units: half_units(reply.consumed_capacity()) })
    }

    /// The rows of `key` with what they weigh, behind `after`, read consistently: what the fold counts, whatever else is
    /// in them; `None` where that is not readable. Markers, tombstones and rows of no valid member are left out: they weigh
    /// nothing.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn weights(&self, key: &RowKey, after: Option<&Cursor>) -> Outcome<Page<(MemberKey, Option<Weight>)>> {
        let table = &self.connection.tables.likes;
        let query = self.rows_of(key, RESERVED, after).projection_expression("#user,#n,#gone").limit(ROWS);
        let query = query.expression_attribute_names("#n", N).expression_attribute_names("#gone", GONE);
        let reply = query.send().await.map_err(|error| fault(table, &error))?;
        let rows = reply.items().iter().filter(|row| !row.contains_key(GONE));
        let rows = rows.map(|row| Ok((Reader::new(table, row).required_text(USER_ID)?, stated(row))));
        let rows = rows.collect::<Outcome<Vec<_>>>()?;
        let weight = |(sort, stated): (&str, Stated)| {
            let member = MemberKey::new(sort)?;
            let weight = stated.weight(member.is_cell());
            Some((member, weight))
        };
        let items = rows.into_iter().filter_map(weight).collect();
        let next = after_one(table, USER_ID, reply.last_evaluated_key())?;
        Ok(Page { items, next, half_units: half_units(reply.consumed_capacity()) })
    }

    /// One page of a table scan, keys and weights only, read consistently; reserved rows that are no cells left out, and
    /// tombstones not. The rows of a key follow each other, within a page and from page to page.
    ///
    /// # Errors
    /// The table cannot be read.
    pub async fn scan(&self, segment: Segment, after: Option<&Cursor>) -> Outcome<Page<ScannedRow>> {
        let table = &self.connection.tables.likes;
        let scan = self
            .connection
            .client
            .scan()
            .table_name(table)
            .projection_expression("#pk,#user,#n,#gone")
            .expression_attribute_names("#pk", PK)
            .expression_attribute_names("#user", USER_ID)
            .expression_attribute_names("#n", N)
            .expression_attribute_names("#gone", GONE)
            .segment(i32::try_from(segment.index).unwrap_or(i32::MAX))
            .total_segments(i32::try_from(segment.of).unwrap_or(i32::MAX))
            .set_exclusive_start_key(after.map(|cursor| start_two([PK, USER_ID], cursor)).transpose()?)
            .consistent_read(true)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let reply = scan.send().await.map_err(|error| fault(table, &error))?;
        let next = after_two(table, [PK, USER_ID], reply.last_evaluated_key())?;
        let half_units = half_units(reply.consumed_capacity());
        let rows = reply.items.unwrap_or_default().into_iter().map(|row| scanned(table, row));
        let items = rows.filter(|row| row.as_ref().map_or(true, is_counted)).collect::<Outcome<_>>()?;
        Ok(Page { items, next, half_units })
    }
}

/// The hot path of an audit: the texts are moved out of the item, not copied.
fn scanned(table: &str, mut row: Item) -> Outcome<ScannedRow> {
    let (stated, gone) = (stated(&row), gone(&row));
    let mut part = |name| match row.remove(name) {
        Some(AttributeValue::S(text)) => Ok(text),
        _ => Err(Fault::Poison(format!("table {table}: a row whose key is not two texts"))),
    };
    Ok(ScannedRow { pk: part(PK)?, sort: part(USER_ID)?, stated, gone })
}

/// What a row states to count for. A tombstone counts for nothing.
fn stated(row: &Item) -> Stated {
    if row.contains_key(GONE) {
        return Stated::Amount(Weight::ABSENT);
    }
    match row.get(N) {
        None => Stated::Nothing,
        Some(AttributeValue::N(n)) => Stated::number(n),
        Some(_) => Stated::Unreadable,
    }
}

/// When the store deletes a tombstone, in seconds. One that does not say it in a number stays for ever.
fn gone(row: &Item) -> Option<u64> {
    let seconds = row.get(GONE)?.as_n().ok().and_then(|seconds| seconds.parse().ok());
    Some(seconds.unwrap_or(u64::MAX))
}

fn is_counted(row: &ScannedRow) -> bool {
    ReservedKey::read(&row.sort).is_none_or(ReservedKey::is_counted)
}
