//! Names and positions in the table's change stream.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A position in a stream shard: a number of up to 40 digits, kept left-padded so that text order is number order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence([u8; Self::DIGITS]);

/// A text that is no sequence number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a sequence number is 1 to 40 digits, not {0:?}")]
pub struct BadSequence(pub String);

impl Sequence {
    /// The most digits a sequence number has.
    pub const DIGITS: usize = 40;
    /// The fewest the service writes: some engines pad to them, so requests do too.
    const WIRE_DIGITS: usize = 21;

    /// The position as it is stored and compared: 40 digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a sequence holds ASCII digits alone")
    }

    /// The position right before this one; `None` of the first there is.
    pub fn before(mut self) -> Option<Self> {
        for digit in self.0.iter_mut().rev() {
            if *digit > b'0' {
                *digit -= 1;
                return Some(self);
            }
            *digit = b'9';
        }
        None
    }

    /// The position as a request to the stream states it: without the padding.
    pub fn wire(&self) -> &str {
        let zeros = self.0.iter().take_while(|digit| **digit == b'0').count();
        &self.as_str()[zeros.min(Self::DIGITS - Self::WIRE_DIGITS)..]
    }
}

impl FromStr for Sequence {
    type Err = BadSequence;

    fn from_str(text: &str) -> Result<Self, BadSequence> {
        let fits = (1..=Self::DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        if !fits {
            return Err(BadSequence(text.chars().take(64).collect()));
        }
        let mut digits = [b'0'; Self::DIGITS];
        digits[Self::DIGITS - text.len()..].copy_from_slice(text.as_bytes());
        Ok(Self(digits))
    }
}

impl From<u64> for Sequence {
    fn from(n: u64) -> Self {
        n.to_string().parse().expect("a u64 has at most 20 digits")
    }
}

impl Serialize for Sequence {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Sequence {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sequence({})", self.as_str().trim_start_matches('0'))
    }
}

/// The number a stream shard is given once, when it is first seen: parents have smaller ones than their children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(pub u64);

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The service's name of one stream shard; opaque.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamShardId(Box<str>);

impl StreamShardId {
    /// The name as the service gave it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for StreamShardId {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for StreamShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One stream shard of one life of a stream, as the log `changes` names it: the label, a slash, the shard's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamShard(Arc<str>);

impl StreamShard {
    /// The stream shard `id` of the stream `label`.
    pub fn new(label: &StreamLabel, id: &StreamShardId) -> Self {
        Self(format!("{label}/{id}").into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The service's name of it in its stream.
    pub fn id(&self) -> StreamShardId {
        StreamShardId::from(self.0.split_once('/').map_or("", |(_, id)| id))
    }

    /// The label of its stream. Labels are times: a later stream has a greater one.
    pub fn label(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(label, _)| label)
    }
}

impl From<&str> for StreamShard {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for StreamShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which table a change stream is of. Its stream shards have numbers of their own, whatever other tables are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamTable(Option<&'static str>);

impl StreamTable {
    /// The likes table, whose streams are stored by their labels alone.
    pub const LIKES: Self = Self(None);
    /// What stands between table and label where a stream is stored: labels are times, and hold none.
    const SEPARATOR: char = '@';

    /// Another table; its name has no `@`.
    pub const fn named(name: &'static str) -> Self {
        Self(Some(name))
    }

    /// Whether a stored stream is this table's.
    pub fn has(self, stored: &str) -> bool {
        stored.split_once(Self::SEPARATOR).map(|(table, _)| table) == self.0
    }

    /// The stream of this table that is stored as `stored`.
    pub fn label(self, stored: &str) -> StreamLabel {
        StreamLabel::new(self, stored.split_once(Self::SEPARATOR).map_or(stored, |(_, label)| label))
    }
}

/// One life of one table's stream: switched off and on again, it gets another label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamLabel {
    table: StreamTable,
    label: Box<str>,
}

impl StreamLabel {
    /// The life that the service calls `label`.
    pub fn new(table: StreamTable, label: &str) -> Self {
        Self { table, label: label.into() }
    }

    /// The label as the service gave it.
    pub fn as_str(&self) -> &str {
        &self.label
    }

    /// Whose stream it is.
    pub fn table(&self) -> StreamTable {
        self.table
    }
}

/// A stream of the likes table.
impl From<&str> for StreamLabel {
    fn from(label: &str) -> Self {
        Self::new(StreamTable::LIKES, label)
    }
}

/// As it is stored: the label alone for the likes table, `table@label` for others.
impl fmt::Display for StreamLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.table.0 {
            None => f.write_str(&self.label),
            Some(table) => write!(f, "{table}{}{}", StreamTable::SEPARATOR, self.label),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_of_different_lengths_compare_as_numbers() {
        let at = |text: &str| text.parse::<Sequence>().unwrap();
        assert!(at("999999999999999999999") < at("1000000000000000000000"));
        assert!(at("9") < at(&"9".repeat(40)));
        assert_eq!(at("7"), at("0007"));
    }

    #[test]
    fn the_position_before_another_borrows_like_a_number() {
        let before = |n: u64| Sequence::from(n).before();
        assert_eq!((before(1000), before(1), before(0)), (Some(999.into()), Some(0.into()), None));
    }

    #[test]
    fn a_request_states_a_sequence_as_the_service_wrote_it() {
        for text in ["100000000003498069978", "000000000000000000012", &"9".repeat(40)] {
            assert_eq!(text.parse::<Sequence>().unwrap().wire(), text);
        }
    }

    #[test]
    fn a_stream_is_stored_by_its_label_alone_only_for_the_likes_table() {
        let changes = StreamTable::named("changes");
        let (likes, other) = (StreamLabel::from("2024-05-11T21:21:33.291"), StreamLabel::new(changes, "2024"));
        assert_eq!(
            (likes.to_string().as_str(), likes.as_str()),
            ("2024-05-11T21:21:33.291", "2024-05-11T21:21:33.291")
        );
        assert_eq!((other.to_string().as_str(), other.as_str()), ("changes@2024", "2024"));
        assert!(StreamTable::LIKES.has(&likes.to_string()) && !StreamTable::LIKES.has(&other.to_string()));
        assert!(changes.has(&other.to_string()) && !changes.has(&likes.to_string()));
        assert!(!StreamTable::named("change").has(&other.to_string()));
    }

    #[test]
    fn a_sequence_is_1_to_40_digits() {
        for text in ["", "-1", "1e3", " 1", "١", &"1".repeat(41)] {
            assert!(text.parse::<Sequence>().is_err(), "{text}");
        }
    }
}
