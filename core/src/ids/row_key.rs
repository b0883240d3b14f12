//! The partition key of rows in the table `likes`: post, counter and shard in one text, split at the last `#`. Shards
//! are the parts that a counter's rows are divided into.
//!
//! Likes are `p#3`. A set has its name before the shard, `p#retweets.3`, a sum its name behind a `+`, `p#+views.0`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{BadCounterName, BadId, CounterId, CounterName, PostId, Shard, ShardCount};

/// The partition key of the rows of one shard of a counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    pub counter: CounterId,
    pub shard: Shard,
}

/// Why a partition key is no row key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadRowKey {
    /// It has no `#`.
    #[error("a row key has no #")]
    NoShard,
    /// It does not end in a shard number in canonical decimal.
    #[error("a row key does not end in a shard number")]
    BadShard,
    /// The text between the last `#` and the shard is no counter's name.
    #[error("a row key's counter: {0}")]
    BadCounter(BadCounterName),
    /// The text before the last `#` is no post id.
    #[error("a row key's post: {0}")]
    BadPost(BadId),
}

impl RowKey {
    /// Returns the row key of `member` in `counter`.
    pub fn of(counter: &CounterId, member: &str, shards: ShardCount) -> Self {
        Self { counter: counter.clone(), shard: shards.shard_of(member) }
    }

    /// Returns the first row key of `counter`, which it has with any number of shards.
    pub fn first(counter: &CounterId) -> Self {
        Self { counter: counter.clone(), shard: Shard::FIRST }
    }

    /// Returns every row key of `counter`.
    pub fn all(counter: &CounterId, shards: ShardCount) -> impl Iterator<Item = Self> {
        shards.all().map(|shard| Self { counter: counter.clone(), shard })
    }

    /// Returns the row key of the cell of Kafka partition `index` in `counter`.
    pub fn of_cell(counter: &CounterId, index: u32, shards: ShardCount) -> Self {
        Self { counter: counter.clone(), shard: shards.shard_of_cell(index) }
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { counter: CounterId { post, name }, shard } = self;
        match name.stored() {
            None => write!(f, "{post}#{shard}"),
            Some(name) => write!(f, "{post}#{name}.{shard}"),
        }
    }
}

impl FromStr for RowKey {
    type Err = BadRowKey;

    fn from_str(text: &str) -> Result<Self, BadRowKey> {
        let (post, behind) = text.rsplit_once('#').ok_or(BadRowKey::NoShard)?;
        let (name, shard) = match behind.split_once('.') {
            None => (CounterName::LIKES, behind),
            Some((name, shard)) => (CounterName::from_stored(name).map_err(BadRowKey::BadCounter)?, shard),
        };
        let shard = canonical(shard)?;
        let post = PostId::new(post).map_err(BadRowKey::BadPost)?;
        Ok(Self { counter: CounterId { post, name }, shard })
    }
}

/// Reads a shard number without sign, spaces or leading zeros, so that each shard has one text.
fn canonical(text: &str) -> Result<Shard, BadRowKey> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (text.len() > 1 && text.starts_with('0')) {
        return Err(BadRowKey::BadShard);
    }
    text.parse().ok().and_then(Shard::new).ok_or(BadRowKey::BadShard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CounterKind;

    #[test]
    fn a_shard_number_has_one_spelling() {
        for shard in ["", "-1", "+1", " 1", "01", "00", "1 ", "256", "99999", "x", "١"] {
            for text in [format!("a#{shard}"), format!("a#views.{shard}"), format!("a#+views.{shard}")] {
                assert_eq!(text.parse::<RowKey>(), Err(BadRowKey::BadShard), "{text}");
            }
        }
        assert!("a#0".parse::<RowKey>().is_ok());
        assert_eq!("a".parse::<RowKey>(), Err(BadRowKey::NoShard));
        assert_eq!("#1".parse::<RowKey>(), Err(BadRowKey::BadPost(BadId::Empty)));
    }

    #[test]
    fn a_row_key_names_every_counter_but_likes() {
        let of = |post: &str, name: &str, kind, shard| RowKey {
            counter: CounterId { post: PostId::new(post).unwrap(), name: CounterName::new(name, kind).unwrap() },
            shard: Shard::new(shard).unwrap(),
        };
        for (key, text) in [
            (of("p", "likes", CounterKind::Set, 3), "p#3"),
            (of("p", "retweets", CounterKind::Set, 3), "p#retweets.3"),
            (of("p", "views", CounterKind::Sum, 0), "p#+views.0"),
            (of("p#retweets.3", "likes", CounterKind::Set, 3), "p#retweets.3#3"),
        ] {
            assert_eq!(key.to_string(), text);
            assert_eq!(text.parse(), Ok(key));
        }
    }
}
