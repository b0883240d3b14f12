//! The partition key of a like row: `post_id#shard`, split at its last `#`, the shard in canonical decimal.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::{BadId, PostId, Shard, ShardCount};

/// Where one shard of one post's rows live.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// The post liked.
    pub post: PostId,
    /// Which of its shards.
    pub shard: Shard,
}

/// Why a partition key is not a row key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BadRowKey {
    /// No `#` at all.
    #[error("a row key has no #")]
    NoShard,
    /// What follows the last `#` is not a shard number as we write it.
    #[error("a row key does not end in a shard number")]
    BadShard,
    /// What stands before the last `#` is not a post id.
    #[error("a row key's post: {0}")]
    BadPost(BadId),
}

impl RowKey {
    /// The row key of `user`'s like of `post`.
    pub fn of(post: &PostId, user: &str, shards: ShardCount) -> Self {
        Self { post: post.clone(), shard: shards.shard_of(user) }
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.post, self.shard)
    }
}

impl FromStr for RowKey {
    type Err = BadRowKey;

    fn from_str(text: &str) -> Result<Self, BadRowKey> {
        let (post, shard) = text.rsplit_once('#').ok_or(BadRowKey::NoShard)?;
        Ok(Self { post: PostId::new(post).map_err(BadRowKey::BadPost)?, shard: canonical(shard)? })
    }
}

/// A shard number without sign, spaces or leading zeros: two texts never name one shard.
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

    #[test]
    fn a_row_key_is_split_at_its_last_hash_sign() {
        let key: RowKey = "a#3#7".parse().unwrap();
        assert_eq!((key.post.as_str(), key.shard.index()), ("a#3", 7));
        assert_eq!(key.to_string(), "a#3#7");
    }

    #[test]
    fn a_shard_number_has_one_spelling() {
        for text in ["a#", "a#-1", "a#+1", "a# 1", "a#01", "a#00", "a#1 ", "a#256", "a#99999", "a#x", "a#١"] {
            assert_eq!(text.parse::<RowKey>(), Err(BadRowKey::BadShard), "{text}");
        }
        assert!("a#0".parse::<RowKey>().is_ok());
        assert_eq!("a".parse::<RowKey>(), Err(BadRowKey::NoShard));
        assert_eq!("#1".parse::<RowKey>(), Err(BadRowKey::BadPost(BadId::Empty)));
    }
}
