//! DynamoDB's items and their typed values, with their sizes and their order. `wire` has their JSON form.

mod wire;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

pub use self::wire::Values;
use crate::number::Number;

/// The message of a `ValidationException`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub String);

impl Invalid {
    /// A validation error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// One attribute's value.
///
/// The derived order is DynamoDB's within `S`, `N` and `B` (bytes, numeric, unsigned bytes), which suffices for keys. Between
/// types it is arbitrary but total.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    S(String),
    N(Number),
    B(Bytes),
    Bool(bool),
    /// The null value, which counts as present.
    Null,
    M(BTreeMap<String, Value>),
    L(Vec<Value>),
    /// A set of strings, numbers or binaries: never empty, all of one of these types.
    Set(BTreeSet<Value>),
}

impl Value {
    /// The bytes that this value adds to the size of an item.
    pub fn size(&self) -> usize {
        match self {
            Self::S(text) => text.len(),
            Self::N(number) => number.size(),
            Self::B(bytes) => bytes.len(),
            Self::Bool(_) | Self::Null => 1,
            Self::M(map) => CONTAINER_SIZE + attributes_size(map) + map.len(),
            Self::L(list) => CONTAINER_SIZE + list.iter().map(|element| element.size() + 1).sum::<usize>(),
            Self::Set(set) => set.iter().map(Self::size).sum(),
        }
    }

    /// The number of nested levels; a scalar has one.
    pub fn depth(&self) -> usize {
        1 + match self {
            Self::M(map) => map.values().map(Self::depth).max().unwrap_or(0),
            Self::L(list) => list.iter().map(Self::depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    /// Compares two strings, numbers or binaries. Other values have no order.
    pub(crate) fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::S(one), Self::S(other)) => Some(one.cmp(other)),
            (Self::N(one), Self::N(other)) => Some(one.cmp(other)),
            (Self::B(one), Self::B(other)) => Some(one.cmp(other)),
            _ => None,
        }
    }

    /// Whether a string or binary begins with another.
    pub(crate) fn begins_with(&self, prefix: &Self) -> bool {
        match (self, prefix) {
            (Self::S(text), Self::S(prefix)) => text.starts_with(prefix.as_str()),
            (Self::B(bytes), Self::B(prefix)) => bytes.starts_with(prefix),
            _ => false,
        }
    }

    /// Whether a string or binary contains another, or a set or list contains a member.
    pub(crate) fn contains(&self, part: &Self) -> bool {
        match (self, part) {
            (Self::S(text), Self::S(part)) => text.contains(part.as_str()),
            (Self::B(bytes), Self::B(part)) => {
                part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
            }
            (Self::Set(set), member) => set.contains(member),
            (Self::L(list), element) => list.contains(element),
            _ => false,
        }
    }

    /// The result of the function `size`: the bytes of a string or binary, or the elements of a container; `None` for other
    /// types.
    pub(crate) fn length(&self) -> Option<usize> {
        match self {
            Self::S(text) => Some(text.len()),
            Self::B(bytes) => Some(bytes.len()),
            Self::M(map) => Some(map.len()),
            Self::L(list) => Some(list.len()),
            Self::Set(set) => Some(set.len()),
            Self::N(_) | Self::Bool(_) | Self::Null => None,
        }
    }

    /// The type's descriptor on the wire: `S`, `N`, `B`, `BOOL`, `NULL`, `M`, `L`, `SS`, `NS`, `BS`.
    pub fn type_code(&self) -> &'static str {
        match self {
            Self::S(_) => "S",
            Self::N(_) => "N",
            Self::B(_) => "B",
            Self::Bool(_) => "BOOL",
            Self::Null => "NULL",
            Self::M(_) => "M",
            Self::L(_) => "L",
            Self::Set(set) => match set.first() {
                Some(Self::N(_)) => "NS",
                Some(Self::B(_)) => "BS",
                _ => "SS",
            },
        }
    }
}

/// The maximum number of nested levels of an attribute, including its own value.
pub(crate) const MAX_DEPTH: usize = 32;
pub(crate) const NESTED_TOO_DEEP: &str =
    "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit";

/// The error for a name longer than [`crate::limits::NAME_BYTES`].
pub(crate) const NAME_TOO_LONG: &str = "Attribute name is too large, must be less than 65536 bytes";

/// The bytes of a map or list without its elements. Each element adds its size and one byte.
const CONTAINER_SIZE: usize = 3;

fn attributes_size(attributes: &BTreeMap<String, Value>) -> usize {
    attributes.iter().map(|(name, value)| name.len() + value.size()).sum()
}

/// An item or a key: attributes by name, in the order of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Item(pub(crate) BTreeMap<String, Value>);

impl Item {
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The string in an attribute, if it is one.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::S(text)) => Some(text),
            _ => None,
        }
    }

    /// The number in an attribute, if it is an integer of 64 bits.
    pub fn whole(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Value::N(number)) => number.to_string().parse().ok(),
            _ => None,
        }
    }

    /// Sets an attribute, and returns its previous value.
    pub fn insert(&mut self, name: impl Into<String>, value: Value) -> Option<Value> {
        self.0.insert(name.into(), value)
    }

    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    /// The attributes in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&String, &Value)> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The size in bytes as DynamoDB counts it: the names in UTF-8 and the values.
    pub fn size(&self) -> usize {
        attributes_size(&self.0)
    }
}

impl<K: Into<String>> FromIterator<(K, Value)> for Item {
    fn from_iter<I: IntoIterator<Item = (K, Value)>>(attributes: I) -> Self {
        Self(attributes.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}
