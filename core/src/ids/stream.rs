//! Names of a table's DynamoDB streams and of their shards, and positions of records in them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A position in a stream shard: a number of up to 40 digits, padded with zeros so that texts sort like numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence([u8; Self::DIGITS]);

/// The text is no sequence number.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a sequence number is 1 to 40 digits, not {0:?}")]
pub struct BadSequence(pub String);

impl Sequence {
    /// The greatest number of digits of a sequence number.
    pub const DIGITS: usize = 40;
    /// The fewest digits that DynamoDB writes. Some emulators pad to them, so requests do, too.
    const WIRE_DIGITS: usize = 21;

    /// Returns the position as it is stored and compared: 40 digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a sequence holds ASCII digits alone")
    }

    /// Returns the position right before this one; `None` for the first one.
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

    /// Returns the position as requests to the stream state it: with no more than the padding of DynamoDB.
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

/// DynamoDB's name of one stream shard, an opaque text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamShardId(Box<str>);

impl StreamShardId {
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

/// One stream shard of one stream, as the log of changes names it: the stream's label, a slash, the shard's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StreamShard(Arc<str>);

impl StreamShard {
    /// Returns the name of the stream shard `id` of the stream `label`.
    pub fn new(label: &StreamLabel, id: &StreamShardId) -> Self {
        Self(format!("{label}/{id}").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns DynamoDB's name of it in its stream.
    pub fn id(&self) -> StreamShardId {
        StreamShardId::from(self.0.split_once('/').map_or("", |(_, id)| id))
    }

    /// Returns the label of its stream. Labels are times: a later stream has a greater one.
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

/// The label of a stream of the table `likes`. A stream that is switched off and on again gets another label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamLabel(Box<str>);

impl StreamLabel {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for StreamLabel {
    fn from(label: &str) -> Self {
        Self(label.into())
    }
}

impl fmt::Display for StreamLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    fn a_sequence_is_1_to_40_digits() {
        for text in ["", "-1", "1e3", " 1", "١", &"1".repeat(41)] {
            assert!(text.parse::<Sequence>().is_err(), "{text}");
        }
    }
}
