//! Converts attributes of DynamoDB's items to Tally's types and back. An attribute that cannot be read is a fault that
//! names table, key and attribute, never a panic.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::fmt::Display;

use aws_sdk_dynamodb::types::AttributeValue;
use tally_core::changes::{DeploymentId, LossNumber, Place};
use tally_core::fault::Fault;
use tally_core::fold::Mark;
use tally_core::ids::{AuditRun, CounterId, Region, RowKey, Sequence, Shard, ShardCount, StreamShard, UserId};
use tally_core::milestone::Ladder;
use tally_core::ports::Outcome;
use tally_core::register::{Earlier, Past, Version};
use tally_core::time::UnixMillis;
use tally_core::topic::{Offset, TopicId};

/// An item as the SDK has it.
pub(super) type Item = HashMap<String, AttributeValue>;

/// Builds an item from attributes. A value may be an `Option`: `None` leaves the attribute out.
macro_rules! item {
    ($($name:literal: $value:expr),* $(,)?) => {{
        let attributes = [$(($name, Option::<aws_sdk_dynamodb::types::AttributeValue>::from($value))),*];
        let present = attributes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        present.collect::<$crate::dynamodb::item::Item>()
    }};
}
pub(super) use item;

/// A text attribute.
pub(super) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

/// A number attribute.
pub(super) fn number(value: impl Display) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

/// A list of numbers.
pub(super) fn numbers(values: &[impl Display]) -> AttributeValue {
    AttributeValue::L(values.iter().map(number).collect())
}

/// A set of numbers; `None` where it would be empty, since DynamoDB has no empty sets.
pub(super) fn number_set(values: &BTreeSet<impl ToString>) -> Option<AttributeValue> {
    (!values.is_empty()).then(|| AttributeValue::Ns(values.iter().map(ToString::to_string).collect()))
}

/// A flag attribute.
pub(super) fn flag(value: bool) -> AttributeValue {
    AttributeValue::Bool(value)
}

/// A type that an attribute can be read as.
pub(super) trait Attribute: Sized {
    /// # Errors
    /// Why it cannot be read.
    fn read(value: &AttributeValue) -> Result<Self, String>;

    /// Returns the value where the attribute is absent; `None` where it has to be there.
    fn absent() -> Option<Self> {
        None
    }
}

macro_rules! attributes {
    ($kind:ident, $other:literal: $($type:ty = $read:expr),+ $(,)?) => {$(
        impl Attribute for $type {
            fn read(value: &AttributeValue) -> Result<Self, String> {
                let AttributeValue::$kind(text) = value else { return Err($other.to_owned()) };
                let read: fn(&str) -> Result<Self, _> = $read;
                read(text).map_err(|error| error.to_string())
            }
        }
    )+};
}

attributes! { N, "not a number":
    u16 = str::parse,
    u32 = str::parse,
    u64 = str::parse,
    i64 = str::parse,
    Version = str::parse,
    Offset = |digits| digits.parse().map(Offset),
    UnixMillis = |digits| digits.parse().map(UnixMillis),
    LossNumber = |digits| digits.parse().map(LossNumber),
    Place = |digits| digits.parse().map(Self::from_stored),
    Mark = |digits| digits.parse().map(Self::from_stored),
    Shard = |digits| {
        let shard = digits.parse().ok().and_then(Self::new);
        shard.ok_or_else(|| format!("no counter has a shard {digits}"))
    },
    ShardCount = |digits| {
        let count = digits.parse().map_err(|error: std::num::ParseIntError| error.to_string())?;
        Self::new(count).map_err(|error| error.to_string())
    },
}

attributes! { S, "not a text":
    String = |text| Ok::<_, Infallible>(text.to_owned()),
    TopicId = |text| Ok::<_, Infallible>(Self(text.into())),
    DeploymentId = |text| Ok::<_, Infallible>(Self(text.into())),
    StreamShard = |text| Ok::<_, Infallible>(text.into()),
    AuditRun = str::parse,
    CounterId = str::parse,
    Earlier = str::parse,
    Ladder = str::parse,
    Past = str::parse,
    Region = |text| Self::new(text).ok_or_else(|| format!("{text:?} is no name of a Region")),
    RowKey = str::parse,
    Sequence = str::parse,
    UserId = str::parse,
}

impl<T: Attribute> Attribute for Option<T> {
    fn read(value: &AttributeValue) -> Result<Self, String> {
        T::read(value).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

impl Attribute for bool {
    fn read(value: &AttributeValue) -> Result<Self, String> {
        value.as_bool().copied().map_err(|_| "not a flag".to_owned())
    }

    fn absent() -> Option<Self> {
        Some(false)
    }
}

impl<T: Attribute> Attribute for Vec<T> {
    fn read(value: &AttributeValue) -> Result<Self, String> {
        value.as_l().map_err(|_| "not a list".to_owned())?.iter().map(T::read).collect()
    }
}

impl<T: Attribute + Ord> Attribute for BTreeSet<T> {
    fn read(value: &AttributeValue) -> Result<Self, String> {
        match value {
            AttributeValue::Ns(numbers) => numbers.iter().map(|digits| T::read(&number(digits))).collect(),
            AttributeValue::Ss(texts) => texts.iter().map(|each| T::read(&text(each))).collect(),
            _ => Err("not a set".to_owned()),
        }
    }

    fn absent() -> Option<Self> {
        Some(Self::new())
    }
}

impl<T: Attribute> Attribute for BTreeMap<String, T> {
    fn read(value: &AttributeValue) -> Result<Self, String> {
        let entries = value.as_m().map_err(|_| "not a map".to_owned())?;
        let entry = |(name, value): (&String, &AttributeValue)| {
            Ok((name.clone(), T::read(value).map_err(|why| format!("{name}: {why}"))?))
        };
        entries.iter().map(entry).collect()
    }
}

/// Reads one item of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) table: &'a str,
    pub(super) item: &'a Item,
}

impl<'a> Reader<'a> {
    /// Reads an attribute. An absent one is malformed, unless its type has a value for that.
    pub(super) fn get<T: Attribute>(&self, name: &str) -> Outcome<T> {
        let read = match self.item.get(name) {
            Some(value) => T::read(value),
            None => T::absent().ok_or_else(|| "missing".to_owned()),
        };
        read.map_err(|why| self.malformed(name, why))
    }

    /// Returns a text that has to be there, without copying it.
    pub(super) fn text(&self, name: &str) -> Outcome<&'a str> {
        match self.item.get(name) {
            Some(AttributeValue::S(text)) => Ok(text),
            Some(_) => Err(self.malformed(name, "not a text")),
            None => Err(self.malformed(name, "missing")),
        }
    }

    /// Returns the fault of an attribute that cannot be read.
    pub(super) fn malformed(&self, attribute: &str, why: impl Display) -> Fault {
        Fault::Poison(format!("table {}, item {}: {attribute}: {why}", self.table, self.key()))
    }

    /// Returns the parts of the item's key that are texts.
    fn key(&self) -> String {
        let parts = ["pk", "user_id", "sk", "post_id", "id"].iter().filter_map(|name| match self.item.get(*name)? {
            AttributeValue::S(text) => Some(format!("{name} {text:?}")),
            _ => None,
        });
        parts.collect::<Vec<_>>().join(", ")
    }
}
