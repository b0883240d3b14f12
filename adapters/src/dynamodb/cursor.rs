//! Long answers: the parts of a scan, the pages of an answer, and where it goes on: the last key seen, as one text that another
//! process can use too.

use aws_sdk_dynamodb::types::{AttributeValue, ConsumedCapacity};
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::item::{Item, Reader, item, text};

/// A part of a long answer, and where the next begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What this part holds.
    pub items: Vec<T>,
    /// Pass it to go on; `None` at the end.
    pub next: Option<Cursor>,
    /// What it cost, in half read units: the least the store charges.
    pub half_units: u64,
}

/// Where a long answer goes on: opaque, valid for the call that gave it, and for another process too.
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

/// The cursor behind the key `last` of a table with a partition key alone, or of a query of one partition.
pub(super) fn after_one(table: &str, name: &str, last: Option<&Item>) -> Outcome<Option<Cursor>> {
    last.map(|last| Ok(Cursor(Reader::new(table, last).required_text(name)?.to_owned()))).transpose()
}

/// The cursor behind the key `last`: the length of its first part in bytes, and both parts.
pub(super) fn after_two(table: &str, names: [&str; 2], last: Option<&Item>) -> Outcome<Option<Cursor>> {
    let Some(last) = last else { return Ok(None) };
    let reader = Reader::new(table, last);
    let (first, second) = (reader.required_text(names[0])?, reader.required_text(names[1])?);
    Ok(Some(Cursor(format!("{}:{first}{second}", first.len()))))
}

/// The start key of a cursor made by [`after_two`].
pub(super) fn start_two(names: [&str; 2], cursor: &Cursor) -> Outcome<Item> {
    let parts = || {
        let (length, parts) = cursor.0.split_once(':')?;
        parts.split_at_checked(length.parse().ok()?)
    };
    let (first, second) = parts().ok_or_else(|| Fault::Poison("a cursor that this call never gave".to_owned()))?;
    Ok(item([(names[0], text(first)), (names[1], text(second))]))
}

/// The start key of a cursor made by [`after_one`], with the rest of the key.
pub(super) fn start_one(name: &str, cursor: &Cursor) -> (String, AttributeValue) {
    (name.to_owned(), text(cursor.0.as_str()))
}

/// What a read cost, in half units: the least the store charges.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a page costs at most some hundred units")]
pub(super) fn half_units(consumed: Option<&ConsumedCapacity>) -> u64 {
    let units = consumed.and_then(ConsumedCapacity::capacity_units);
    units.map_or(0, |units| (units * 2.0).round().max(0.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_gives_back_the_key_it_was_made_of_whatever_is_in_it() {
        for (pk, user) in [("p#0", "u"), ("3:#7", "1:"), ("é\u{1}", "\u{1}recount"), ("p", "日本")] {
            let key = item([("pk", text(pk)), ("user_id", text(user))]);
            let cursor = after_two("likes", ["pk", "user_id"], Some(&key)).unwrap().unwrap();
            assert_eq!(start_two(["pk", "user_id"], &cursor), Ok(key));
        }
    }

    #[test]
    fn a_cursor_nobody_gave_is_refused() {
        for text in ["", "x", "9:abc", "-1:abc", "1:é"] {
            assert!(matches!(start_two(["pk", "user_id"], &Cursor(text.into())), Err(Fault::Poison(_))), "{text}");
        }
    }
}
