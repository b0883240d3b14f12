//! Items to and from our types: the only reader of attributes. What cannot be read is a fault that names table, key
//! and attribute, never a panic.

use std::collections::HashMap;
use std::fmt::Display;
use std::str::FromStr;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::fault::Fault;
use tally_core::ports::Outcome;

use super::names::{PK, SK, checkpoints, counts, likes};

/// An item as the SDK has it.
pub(super) type Item = HashMap<String, AttributeValue>;

/// An item of these attributes.
pub(super) fn item<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A text attribute.
pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// A number attribute.
pub(super) fn number(value: impl Display) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A flag attribute.
pub(super) fn flag(value: bool) -> AttributeValue {
    AttributeValue::Bool(value)
}

/// Reads one item of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    table: &'a str,
    item: &'a Item,
}

impl<'a> Reader<'a> {
    /// Reads `item` of `table`.
    pub(super) fn new(table: &'a str, item: &'a Item) -> Self {
        Self { table, item }
    }

    /// A text that may be absent.
    pub(super) fn text(&self, name: &str) -> Outcome<Option<&'a str>> {
        match self.item.get(name) {
            None => Ok(None),
            Some(AttributeValue::S(text)) => Ok(Some(text)),
            Some(_) => Err(self.malformed(name, "not a text")),
        }
    }

    /// A text that has to be there.
    pub(super) fn required_text(&self, name: &str) -> Outcome<&'a str> {
        self.text(name)?.ok_or_else(|| self.malformed(name, "missing"))
    }

    /// A text of a form of its own.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Outcome<Option<T>> {
        self.text(name)?.map(|text| text.parse().map_err(|error: T::Err| self.malformed(name, error))).transpose()
    }

    /// A text of a form of its own that has to be there.
    pub(super) fn required<T: FromStr<Err: Display>>(&self, name: &str) -> Outcome<T> {
        self.parsed(name)?.ok_or_else(|| self.malformed(name, "missing"))
    }

    /// A number that may be absent; one that does not fit its type is malformed.
    pub(super) fn number<T: FromStr<Err: Display>>(&self, name: &str) -> Outcome<Option<T>> {
        self.item.get(name).map(|value| self.as_number(name, value)).transpose()
    }

    /// A number that has to be there.
    pub(super) fn required_number<T: FromStr<Err: Display>>(&self, name: &str) -> Outcome<T> {
        self.number(name)?.ok_or_else(|| self.malformed(name, "missing"))
    }

    /// A flag; absent is false.
    pub(super) fn flag(&self, name: &str) -> Outcome<bool> {
        self.item.get(name).map_or(Ok(false), |value| self.as_flag(name, value))
    }

    /// The members of a set of numbers, as they are written; absent is empty.
    pub(super) fn number_set(&self, name: &str) -> Outcome<&'a [String]> {
        match self.item.get(name) {
            None => Ok(&[]),
            Some(AttributeValue::Ns(numbers)) => Ok(numbers),
            Some(_) => Err(self.malformed(name, "not a set of numbers")),
        }
    }

    /// The elements of a list, if it is there.
    pub(super) fn list(&self, name: &str) -> Outcome<Option<&'a [AttributeValue]>> {
        match self.item.get(name) {
            None => Ok(None),
            Some(AttributeValue::L(elements)) => Ok(Some(elements)),
            Some(_) => Err(self.malformed(name, "not a list")),
        }
    }

    /// The entries of a map, if it is there.
    pub(super) fn map(&self, name: &str) -> Outcome<Option<&'a Item>> {
        match self.item.get(name) {
            None => Ok(None),
            Some(AttributeValue::M(entries)) => Ok(Some(entries)),
            Some(_) => Err(self.malformed(name, "not a map")),
        }
    }

    /// `value`, met under `name`, as a number.
    pub(super) fn as_number<T: FromStr<Err: Display>>(&self, name: &str, value: &AttributeValue) -> Outcome<T> {
        let AttributeValue::N(digits) = value else { return Err(self.malformed(name, "not a number")) };
        digits.parse().map_err(|error| self.malformed(name, error))
    }

    /// `value`, met under `name`, as a flag.
    pub(super) fn as_flag(&self, name: &str, value: &AttributeValue) -> Outcome<bool> {
        let AttributeValue::Bool(flag) = value else { return Err(self.malformed(name, "not a flag")) };
        Ok(*flag)
    }

    /// The fault of an attribute that cannot be read.
    pub(super) fn malformed(&self, attribute: &str, why: impl Display) -> Fault {
        Fault::Poison(format!("table {}, item {}: {attribute}: {why}", self.table, self.key()))
    }

    /// The item's key, as far as it is texts.
    fn key(&self) -> String {
        let names = [PK, likes::USER_ID, SK, counts::POST_ID, checkpoints::ID];
        let parts = names.iter().filter_map(|name| match self.item.get(*name)? {
            AttributeValue::S(text) => Some(format!("{name} {text:?}")),
            _ => None,
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_malformed_item_is_a_poison_fault_that_names_table_key_and_attribute() {
        let broken = item([(PK, text("p#0")), ("n", number("1e99")), ("t", flag(true))]);
        let reader = Reader::new("likes", &broken);
        let faults = [
            reader.number::<i64>("n").map(|_| ()),
            reader.text("t").map(|_| ()),
            reader.required_text("absent").map(|_| ()),
        ];
        for (fault, attribute) in faults.into_iter().zip(["n", "t", "absent"]) {
            let Err(Fault::Poison(message)) = fault else { panic!("{fault:?}") };
            let named = format!("table likes, item pk \"p#0\": {attribute}: ");
            assert!(message.starts_with(&named), "{message}");
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_malformed() {
        let broken = item([("n", number("9223372036854775808"))]);
        assert!(matches!(Reader::new("t", &broken).number::<i64>("n"), Err(Fault::Poison(_))));
        assert_eq!(Reader::new("t", &broken).number::<u64>("n"), Ok(Some(1 << 63)));
    }
}
