//! Which partition a record belongs to. A topic has one key scheme and one partitioner: with more, one user's events lose
//! their order.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::Event;
use crate::ids::ShardCount;

/// What producers put in a record's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyScheme {
    /// The post's id: all events of a post are in one partition.
    #[default]
    Post,
    /// `post_id#shard`: the events of a post are spread over the partitions, each user's still in one.
    PostShard,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a key scheme is \"post\" or \"post-shard\", not {0:?}")]
pub struct UnknownKeyScheme(pub String);

impl KeyScheme {
    /// The key of `user`'s events about `post`.
    pub fn key(self, post: &str, user: &str, shards: ShardCount) -> String {
        match self {
            Self::Post => post.to_owned(),
            Self::PostShard => format!("{post}#{}", shards.shard_of(user)),
        }
    }

    /// The key of an event. One of a sum is in order with no other, so that its subject's does.
    pub fn key_of(self, event: &Event<'_>, shards: ShardCount) -> String {
        event.member().map_or_else(|| event.subject().to_owned(), |member| self.key(event.subject(), member, shards))
    }
}

impl FromStr for KeyScheme {
    type Err = UnknownKeyScheme;

    fn from_str(text: &str) -> Result<Self, UnknownKeyScheme> {
        match text {
            "post" => Ok(Self::Post),
            "post-shard" => Ok(Self::PostShard),
            other => Err(UnknownKeyScheme(other.to_owned())),
        }
    }
}

impl fmt::Display for KeyScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Post => "post",
            Self::PostShard => "post-shard",
        })
    }
}

/// Where a topic's records belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Routing {
    /// What producers put in the key.
    pub scheme: KeyScheme,
    /// How many shards a post has.
    pub shards: ShardCount,
    /// How many partitions the topic has.
    pub partitions: u32,
}

impl Routing {
    /// Whether `event` belongs into `partition`. What is added to a sum may come by any.
    pub fn fits(&self, event: &Event<'_>, partition: u32) -> bool {
        let Some(member) = event.member() else { return true };
        let belongs = match self.scheme {
            KeyScheme::Post => partition_of(event.subject().as_bytes(), self.partitions),
            scheme => partition_of(scheme.key(event.subject(), member, self.shards).as_bytes(), self.partitions),
        };
        belongs == partition
    }
}

/// Where Kafka's default partitioner sends `key` in a topic of `partitions`: murmur2, sign bit cleared.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// MurmurHash2, 32 bit, with the seed of Kafka's Java client.
fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let len = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let (words, rest) = key.as_chunks::<4>();
    let mut hash = words.iter().fold(SEED ^ len, |hash, word| {
        let k = u32::from_le_bytes(*word).wrapping_mul(M);
        hash.wrapping_mul(M) ^ (k ^ (k >> 24)).wrapping_mul(M)
    });
    if !rest.is_empty() {
        let tail = rest.iter().rev().fold(0, |tail, byte| (tail << 8) | u32::from(*byte));
        hash = (hash ^ tail).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::{Definitions, Entry};
    use crate::event::{Action, LikeEvent, decode_value};
    use crate::ids::{PostId, UserId};
    use crate::time::UnixMillis;

    /// Kafka's own published vectors for its Java partitioner.
    #[test]
    fn murmur2_is_kafkas() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
    }

    #[test]
    fn a_users_events_share_a_key_under_either_scheme() {
        let shards = ShardCount::DEFAULT;
        assert_eq!(KeyScheme::Post.key("p#1", "u", shards), "p#1");
        let key = KeyScheme::PostShard.key("p#1", "u-1", shards);
        assert_eq!(key, "p#1#10", "the shard of u-1 is pinned");
        assert!("random".parse::<KeyScheme>().is_err());
    }

    #[test]
    fn what_is_added_to_a_sum_fits_every_partition_whatever_the_key_scheme() {
        let views = Entry { name: "views".into(), kind: "sum".into(), add: "view".into(), ..Entry::default() };
        let defined = Definitions::new(&[views]).unwrap();
        let value = br#"{"post_id":"p","action":"view","user_id":"u"}"#;
        let event = decode_value(Some(value), UnixMillis(5), &defined).unwrap();
        for scheme in [KeyScheme::Post, KeyScheme::PostShard] {
            let routing = Routing { scheme, shards: ShardCount::DEFAULT, partitions: 12 };
            assert!((0..12).all(|partition| routing.fits(&event, partition)));
        }
    }

    #[test]
    fn an_event_fits_the_partition_of_its_key_and_no_other() {
        let (post, user) = (PostId::new("p").unwrap(), UserId::new("u").unwrap());
        let event = LikeEvent::new(&post, &user, Action::Like, UnixMillis(5)).into();
        for scheme in [KeyScheme::Post, KeyScheme::PostShard] {
            let routing = Routing { scheme, shards: ShardCount::DEFAULT, partitions: 12 };
            let fitting: Vec<u32> = (0..12).filter(|partition| routing.fits(&event, *partition)).collect();
            let key = scheme.key("p", "u", ShardCount::DEFAULT);
            assert_eq!(fitting, [partition_of(key.as_bytes(), 12)]);
        }
    }
}
