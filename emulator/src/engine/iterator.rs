//! Shard iterators of DynamoDB Streams: opaque tokens for a position in a shard and the time of issue, protected by a
//! checksum.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use xxhash_rust::xxh64::xxh64;

use crate::clock::Millis;
use crate::error::{Error, Kind};
use crate::limits::ITERATOR_MILLIS;

/// A position in a shard, after a sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) stream: String,
    pub(crate) shard: String,
    pub(crate) after: u64,
}

impl Position {
    /// The token for this position. Like DynamoDB's, it begins with the stream's ARN.
    pub(crate) fn token(&self, now: Millis) -> String {
        let inside = format!("{}/{}/{now}", self.shard, self.after);
        let sum = checksum(&self.stream, &inside);
        format!("{}|1|{}", self.stream, STANDARD.encode(format!("{inside}/{sum:016x}")))
    }

    /// The position of a token, if it was issued here less than fifteen minutes ago.
    pub(crate) fn parse(token: &str, now: Millis) -> Result<Self, Error> {
        let (position, issued) = Self::read(token).ok_or_else(|| Error::validation("Invalid ShardIterator"))?;
        if issued + ITERATOR_MILLIS < now {
            return Err(Error::new(Kind::ExpiredIterator, "Iterator expired"));
        }
        Ok(position)
    }

    fn read(token: &str) -> Option<(Self, Millis)> {
        let (stream, rest) = token.split_once("|1|")?;
        let text = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
        let (inside, sum) = text.rsplit_once('/')?;
        if u64::from_str_radix(sum, 16).ok()? != checksum(stream, inside) {
            return None;
        }
        let mut fields = inside.split('/');
        let shard = fields.next()?.to_owned();
        let after = fields.next()?.parse().ok()?;
        let issued = fields.next()?.parse().ok()?;
        Some((Self { stream: stream.to_owned(), shard, after }, issued))
    }
}

fn checksum(stream: &str, inside: &str) -> u64 {
    xxh64(inside.as_bytes(), xxh64(stream.as_bytes(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_can_be_read_until_it_expires_unless_it_was_changed() {
        let position = Position { stream: "arn:stream/x".into(), shard: "shardId-1".into(), after: 42 };
        let token = position.token(1000);
        assert_eq!(Position::parse(&token, 1000 + ITERATOR_MILLIS), Ok(position));
        assert_eq!(Position::parse(&token, 1001 + ITERATOR_MILLIS).unwrap_err().kind, Kind::ExpiredIterator);
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(Position::parse(&changed, 1000).unwrap_err().kind, Kind::Validation, "{changed}");
        }
    }
}
