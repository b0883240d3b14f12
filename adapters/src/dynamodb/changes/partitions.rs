//! Reads and writes two items of the table `checkpoints` for each partition of the Kafka topic `changes`. Both are
//! written by folds, which keep counters up to date with that topic. One is the fold's statement: the standing of the
//! partition's counters, which says up to when all changes are counted, and how far the fold has read. The other is the
//! position at which the next reader begins; it only moves forward.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use tally_core::cached::StandingAt;
use tally_core::changes::{Filter, Standing};
use tally_core::fold::{Position, ReadTo, Stated};
use tally_core::ports::Outcome;

use super::super::checkpoints::key;
use super::super::item::{Attribute, Item, Reader, item, number, number_set, text};
use super::super::table::{Consistency, Values};
use super::Changes;

const STANDING: &str = "changes/standing/";
const POSITION: &str = "changes/position/";

fn encode_stated(partition: u32, Stated { standing, last, read, revision }: &Stated) -> Item {
    let mut stored = encode_standing(standing);
    stored.extend(item! {
        "id": text(format!("{STANDING}{partition}")),
        "last": last.map(|last| number(last.stored())),
        "read": read.map(|read| number(read.at)),
        "read_last": read.map(|read| number(read.last.stored())),
        "revision": number(revision),
    });
    stored
}

/// Encodes a standing as attributes.
pub(in crate::dynamodb) fn encode_standing(StandingAt { at, standing }: &StandingAt) -> Item {
    let Standing { as_of, loss, open } = standing;
    item! { "at": number(at), "as_of": as_of.map(number), "loss": loss.map(number), "open": number_set(open) }
}

fn decode_stated(reader: &Reader<'_>) -> Outcome<Stated> {
    let read = match (reader.get("read")?, reader.get("read_last")?) {
        (Some(at), Some(last)) => Some(ReadTo { at, last }),
        (None, None) => None,
        _ => return Err(reader.malformed("read", "it has to be there with its message, or neither")),
    };
    let revision = reader.get::<Option<_>>("revision")?.unwrap_or_default();
    Ok(Stated { standing: decode_standing(reader)?, last: reader.get("last")?, read, revision })
}

/// Decodes a standing from its attributes.
pub(in crate::dynamodb) fn decode_standing(reader: &Reader<'_>) -> Outcome<StandingAt> {
    let standing = Standing { as_of: reader.get("as_of")?, loss: reader.get("loss")?, open: reader.get("open")? };
    Ok(StandingAt { at: reader.get("at")?, standing })
}

fn encode(partition: u32, Position { at, filter, ladder, last }: &Position) -> Item {
    item! {
        "id": text(format!("{POSITION}{partition}")),
        "at": number(at),
        "filter": AttributeValue::B(Blob::new(compressed(filter))),
        "milestones": (!ladder.is_empty()).then(|| text(ladder.to_string())),
        "last": last.map(|last| number(last.stored())),
    }
}

fn decode(reader: &Reader<'_>) -> Outcome<Position> {
    Ok(Position {
        at: reader.get("at")?,
        filter: reader.get("filter")?,
        ladder: reader.get::<Option<_>>("milestones")?.unwrap_or_default(),
        last: reader.get("last")?,
    })
}

impl Attribute for Filter {
    fn read(value: &AttributeValue) -> Result<Self, String> {
        let bytes = value.as_b().map_err(|_| "it has to be there, in bytes".to_owned())?;
        decompressed(bytes.as_ref()).map_err(|error| error.to_string())
    }
}

/// Encodes a filter as compressed JSON: that of two thousand stream shards is 300 KB long, and an item has room for
/// 400.
fn compressed(filter: &Filter) -> Vec<u8> {
    let json = serde_json::to_vec(filter).expect("texts and integers always serialise");
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(&json).and_then(|()| encoder.finish());
    written.expect("a Vec takes everything")
}

fn decompressed(bytes: &[u8]) -> io::Result<Filter> {
    let mut json = Vec::new();
    ZlibDecoder::new(bytes).read_to_end(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

impl Changes {
    /// Returns the fold's statement about a partition, or `None` before the first one.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn stated(&self, partition: u32) -> Outcome<Option<Stated>> {
        self.table().find(key(&format!("{STANDING}{partition}")), decode_stated).await
    }

    /// Returns the standings of all partitions of a log with `partitions` partitions, in one request for each hundred.
    ///
    /// # Errors
    /// The table cannot be read, or one of the items.
    pub async fn standings(&self, partitions: u32) -> Outcome<BTreeMap<u32, StandingAt>> {
        let ids = (0..partitions).map(|partition| (format!("{STANDING}{partition}"), partition));
        self.table().find_all(("id", Item::new()), ids, Consistency::Strong, decode_standing).await
    }

    /// Stores the fold's statement about a partition if the stored one has the revision before. Otherwise returns the
    /// stored one. Safe to repeat: it succeeds where the same statement is stored already.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn state(&self, partition: u32, stated: &Stated) -> Outcome<Result<(), Option<Stated>>> {
        let mut values = Values::default();
        let before = Some(stated.revision - 1).filter(|before| *before > 0);
        let same = values.same("revision", before.map(number));
        let put = self.table().put_if(encode_stated(partition, stated), &same, values).await?;
        let Err(found) = put else { return Ok(Ok(())) };
        let stands = found.map(|found| decode_stated(&self.table().reader(&found))).transpose()?;
        Ok(if stands.as_ref() == Some(stated) { Ok(()) } else { Err(stands) })
    }

    /// Returns where a reader of a partition begins. `None`: nothing is stored, and it begins at the beginning of the
    /// log.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn position(&self, partition: u32) -> Outcome<Option<Position>> {
        self.table().find(key(&format!("{POSITION}{partition}")), decode).await
    }

    /// Stores where a reader of a partition begins, unless this place or a later one is stored. Returns whether it was
    /// stored. Safe to repeat: the store refuses a copy, since this place or a later one is stored afterwards.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn store_position(&self, partition: u32, position: &Position) -> Outcome<bool> {
        let condition = "attribute_not_exists(#at) OR #at<:at";
        let put = self.table().put_if(encode(partition, position), condition, [(":at", number(position.at))]);
        Ok(put.await?.is_ok())
    }
}

#[cfg(test)]
mod tests {
    use tally_core::changes::{Body, LossNumber, Message, Opened, Opening, Place};
    use tally_core::ids::StreamShard;
    use tally_core::time::UnixMillis;

    use super::*;

    #[test]
    fn a_filter_is_read_as_it_is_written_and_two_thousand_stream_shards_fit_into_an_item() {
        let opening = |n: u64| Opening {
            shard: StreamShard::from(
                format!("2026-01-01T00:00:00.000/shardId-{n:020}-{:08x}", n * 0x9e37_79b9).as_str(),
            ),
            at: Some((n * 0x9e37_79b9_7f4a).into()),
            fed: UnixMillis(1_700_000_000_000 + n),
        };
        let shards = (0..2_000).map(opening).collect();
        let mut filter = Filter::default();
        let now = UnixMillis(1_700_000_000_000);
        for body in [Body::Opened(Opened { shards, ended: Vec::new() }), Body::Repaired(LossNumber(7))] {
            filter.take(Place::from_stored(1), now, &Message { read: now, body }, |_, _| {});
        }
        filter.jump(Place::from_stored(2), now);
        let bytes = compressed(&filter);
        assert!(bytes.len() < 150_000, "{} bytes", bytes.len());
        assert_eq!(decompressed(&bytes).unwrap(), filter);
        assert!(decompressed(b"{}").is_err());
    }
}
