//! Pages of queries and scans that are too long for one answer. A [`Cursor`] is where the next page begins: the last
//! key of the page before, as one text that another process can use, too. A [`Segment`] is one part of a scan that
//! several readers divide.

use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::types::{ConsumedCapacity, ReturnConsumedCapacity};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::item::{Item, Reader, text};
use super::table::Table;

/// One page of a long answer, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
    /// What the page cost, in half read units, the least that the store charges.
    pub half_units: u64,
}

/// Where a long answer goes on: an opaque text, valid for the call that returned it, also in another process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cursor(pub String);

/// One of `of` parts of a table scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its number, from 0.
    pub index: u32,
    /// The number of parts.
    pub of: u32,
}

impl Cursor {
    /// Returns the cursor after the key `last`, whose attributes are `names`; `None` without a key. For a key of one
    /// attribute the cursor is its text. For two it is the first one's length in bytes, a colon, and both texts.
    pub(super) fn behind(table: Table<'_>, names: &[&str], last: Option<&Item>) -> Outcome<Option<Self>> {
        let Some(last) = last else { return Ok(None) };
        let part = |name: &&str| Reader { table: table.name, item: last }.text(name);
        let parts = names.iter().map(part).collect::<Outcome<Vec<_>>>()?;
        let length = parts[1..].first().map(|_| format!("{}:", parts[0].len()));
        Ok(Some(Self(length.unwrap_or_default() + &parts.concat())))
    }

    /// Returns the key that the cursor was made of.
    pub(super) fn start(&self, names: &[&str]) -> Outcome<Item> {
        let parts = || {
            if names.len() == 1 {
                return Some(vec![self.0.as_str()]);
            }
            let (length, parts) = self.0.split_once(':')?;
            let (first, second) = parts.split_at_checked(length.parse().ok()?)?;
            Some(vec![first, second])
        };
        let parts = parts().ok_or_else(|| Fault::Poison("a cursor that this call never gave".to_owned()))?;
        Ok(names.iter().zip(parts).map(|(name, part)| ((*name).to_owned(), text(part))).collect())
    }
}

impl<T> Page<T> {
    /// Returns the page with its items converted by `read`, without those of which it makes nothing.
    pub(super) fn read<U>(self, mut read: impl FnMut(T) -> Outcome<Option<U>>) -> Outcome<Page<U>> {
        let items = self.items.into_iter().filter_map(|item| read(item).transpose()).collect::<Outcome<_>>()?;
        Ok(Page { items, next: self.next, half_units: self.half_units })
    }
}

impl Table<'_> {
    /// Reads a page of a query of the items under the partition key `pk`, after `after`. `first` and `second` are the
    /// names of the partition key and the sort key.
    pub(super) async fn query_page(
        self,
        query: QueryFluentBuilder,
        [first, second]: [&str; 2],
        pk: &str,
        after: Option<&Cursor>,
    ) -> Outcome<Page<Item>> {
        let start =
            after.map(|after| [(first.to_owned(), text(pk)), (second.to_owned(), text(after.0.as_str()))].into());
        let query = query.set_exclusive_start_key(start).return_consumed_capacity(ReturnConsumedCapacity::Total);
        let reply = query.send().await.map_err(|error| self.fault(&error))?;
        self.page(&[second], reply.items, reply.last_evaluated_key.as_ref(), reply.consumed_capacity.as_ref())
    }

    /// Reads a page of a consistent scan of one part of the table, after `after`. `keys` are the names of the key's
    /// attributes.
    pub(super) async fn scan_page(
        self,
        part: Segment,
        projection: Option<&str>,
        keys: &[&str],
        after: Option<&Cursor>,
    ) -> Outcome<Page<Item>> {
        let scan = self
            .scan(projection)
            .segment(i32::try_from(part.index).unwrap_or(i32::MAX))
            .total_segments(i32::try_from(part.of).unwrap_or(i32::MAX))
            .set_exclusive_start_key(after.map(|after| after.start(keys)).transpose()?)
            .return_consumed_capacity(ReturnConsumedCapacity::Total);
        let reply = scan.send().await.map_err(|error| self.fault(&error))?;
        self.page(keys, reply.items, reply.last_evaluated_key.as_ref(), reply.consumed_capacity.as_ref())
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a page costs some hundred units")]
    fn page(
        self,
        keys: &[&str],
        items: Option<Vec<Item>>,
        last: Option<&Item>,
        consumed: Option<&ConsumedCapacity>,
    ) -> Outcome<Page<Item>> {
        let units = consumed.and_then(ConsumedCapacity::capacity_units).unwrap_or_default();
        let half_units = (units * 2.0).round().max(0.0) as u64;
        Ok(Page { items: items.unwrap_or_default(), next: Cursor::behind(self, keys, last)?, half_units })
    }
}

#[cfg(test)]
mod tests {
    use tally_core::time::UnixMillis;

    use super::super::connection::Connection;
    use super::super::connection::Settings;
    use super::super::connection::told::Told;
    use super::super::item::item;
    use super::*;

    const KEY: [&str; 2] = ["pk", "user_id"];

    #[tokio::test]
    async fn a_cursor_gives_back_the_key_it_was_made_of_whatever_is_in_it() {
        let connection = Connection::in_process(&Settings::local(""), Told::new(&[]), UnixMillis(0));
        for (pk, user) in [("p#0", "u"), ("3:#7", "1:"), ("é\u{1}", "\u{1}recount"), ("p", "日本")] {
            let key = item! { "pk": text(pk), "user_id": text(user) };
            let cursor = Cursor::behind(connection.likes(), &KEY, Some(&key)).unwrap().unwrap();
            assert_eq!(cursor.start(&KEY), Ok(key));
        }
        let key = item! { "post_id": text("3:p") };
        let cursor = Cursor::behind(connection.counts(), &["post_id"], Some(&key)).unwrap().unwrap();
        assert_eq!((cursor.0.as_str(), cursor.start(&["post_id"])), ("3:p", Ok(key)));
    }

    #[test]
    fn a_cursor_nobody_gave_is_refused() {
        for text in ["", "x", "9:abc", "-1:abc", "1:é"] {
            assert!(matches!(Cursor(text.into()).start(&KEY), Err(Fault::Poison(_))), "{text}");
        }
    }
}
