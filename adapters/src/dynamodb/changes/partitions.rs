//! What folds state of a partition, and where its next reader begins. No place ever goes back.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use tally_core::cached::StandingAt;
use tally_core::changes::{Filter, LossNumber, Place, Standing};
use tally_core::fold::{Mark, Position, ReadTo, Stated};
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::checkpoints::key;
use super::super::expression::Aliases;
use super::super::get::{self, Consistency};
use super::super::item::{Item, Reader, item, number, text};
use super::super::items::Conditional;
use super::super::names::checkpoints::{
    AS_OF, AT, FILTER, ID, LAST, LOSS, MILESTONES, OPEN, READ, READ_LAST, REVISION,
};
use super::Changes;

const STANDING: &str = "changes/standing/";
const POSITION: &str = "changes/position/";

fn encode_stated(partition: u32, Stated { standing, last, read, revision }: &Stated) -> Item {
    let mut stored = item([(ID, text(format!("{STANDING}{partition}")))]);
    stored.extend(encode_standing(standing));
    stored.extend(last.map(|last| (LAST.to_owned(), number(last.stored()))));
    if let Some(ReadTo { at, last }) = read {
        stored.extend([(READ.to_owned(), number(at)), (READ_LAST.to_owned(), number(last.stored()))]);
    }
    stored.insert(REVISION.to_owned(), number(revision));
    stored
}

/// A standing as attributes.
pub(in crate::dynamodb) fn encode_standing(StandingAt { at, standing }: &StandingAt) -> Item {
    let Standing { as_of, loss, open } = standing;
    let mut stored = item([(AT, number(*at))]);
    stored.extend(as_of.map(|as_of| (AS_OF.to_owned(), number(as_of))));
    stored.extend(loss.map(|loss| (LOSS.to_owned(), number(loss))));
    let open: Vec<String> = open.iter().map(LossNumber::to_string).collect();
    stored.extend((!open.is_empty()).then(|| (OPEN.to_owned(), AttributeValue::Ns(open))));
    stored
}

fn decode_stated(reader: &Reader<'_>) -> Outcome<Stated> {
    let mark = |name| -> Outcome<Option<Mark>> { Ok(reader.number(name)?.map(Mark::from_stored)) };
    let read = match (reader.number(READ)?.map(Place::from_stored), mark(READ_LAST)?) {
        (Some(at), Some(last)) => Some(ReadTo { at, last }),
        (None, None) => None,
        _ => return Err(reader.malformed(READ, "it has to be there with its message, or neither")),
    };
    let revision = reader.number(REVISION)?.unwrap_or_default();
    Ok(Stated { standing: decode_standing(reader)?, last: mark(LAST)?, read, revision })
}

/// The standing that such attributes say.
pub(in crate::dynamodb) fn decode_standing(reader: &Reader<'_>) -> Outcome<StandingAt> {
    let number = |digits: &String| digits.parse().map(LossNumber).map_err(|error| reader.malformed(OPEN, error));
    let standing = Standing {
        as_of: reader.number(AS_OF)?.map(UnixMillis),
        loss: reader.number(LOSS)?.map(Place::from_stored),
        open: reader.number_set(OPEN)?.iter().map(number).collect::<Outcome<_>>()?,
    };
    Ok(StandingAt { at: Place::from_stored(reader.required_number(AT)?), standing })
}

fn encode(partition: u32, Position { at, filter, ladder, last }: &Position) -> Item {
    let mut stored = item([
        (ID, text(format!("{POSITION}{partition}"))),
        (AT, number(at)),
        (FILTER, AttributeValue::B(Blob::new(compressed(filter)))),
    ]);
    stored.extend((!ladder.is_empty()).then(|| (MILESTONES.to_owned(), text(ladder.to_string()))));
    stored.extend(last.map(|last| (LAST.to_owned(), number(last.stored()))));
    stored
}

fn decode(reader: &Reader<'_>, stored: &Item) -> Outcome<Position> {
    let Some(AttributeValue::B(filter)) = stored.get(FILTER) else {
        return Err(reader.malformed(FILTER, "it has to be there, in bytes"));
    };
    Ok(Position {
        at: Place::from_stored(reader.required_number(AT)?),
        filter: decompressed(filter.as_ref()).map_err(|error| reader.malformed(FILTER, error))?,
        ladder: reader.parsed(MILESTONES)?.unwrap_or_default(),
        last: reader.number(LAST)?.map(Mark::from_stored),
    })
}

/// A filter as compressed JSON: of two thousand stream shards it has 300 KB, and an item has room for 400.
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
    /// What folds state of a partition; `None` before the first of it was read.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn stated(&self, partition: u32) -> Outcome<Option<Stated>> {
        let found = self.items().get(key(&format!("{STANDING}{partition}"))).await?;
        found.map(|found| decode_stated(&Reader::new(self.table(), &found))).transpose()
    }

    /// What may be said of the counters of every partition of a log of so many, in one request for each hundred.
    ///
    /// # Errors
    /// The table cannot be read, or one of the items.
    pub async fn standings(&self, partitions: u32) -> Outcome<BTreeMap<u32, StandingAt>> {
        let keys: Vec<Item> = (0..partitions).map(|partition| key(&format!("{STANDING}{partition}"))).collect();
        let found = get::items(&self.connection, self.table(), &keys, Consistency::Strong).await?;
        let standing = |found: &Item| {
            let reader = Reader::new(self.table(), found);
            let partition = reader.required_text(ID)?.strip_prefix(STANDING).and_then(|index| index.parse().ok());
            let partition = partition.ok_or_else(|| reader.malformed(ID, "it was not asked for"))?;
            Ok((partition, decode_standing(&reader)?))
        };
        found.iter().map(standing).collect()
    }

    /// States something of a partition, unless what stands there is not of the revision before; then that is answered. Safe to
    /// repeat: what is stated already is stated.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn state(&self, partition: u32, stated: &Stated) -> Outcome<Result<(), Option<Stated>>> {
        let mut say = Aliases::default();
        let (name, before) = (say.name(REVISION), stated.revision - 1);
        let condition = match before {
            0 => format!("attribute_not_exists({name})"),
            before => format!("{name}={}", say.number(before)),
        };
        match self.items().put_if(encode_stated(partition, stated), say, condition).await? {
            Conditional::Done(_) => Ok(Ok(())),
            Conditional::Refused(None) => Ok(Err(None)),
            Conditional::Refused(Some(item)) => {
                let stands = decode_stated(&Reader::new(self.table(), &item))?;
                Ok(if stands == *stated { Ok(()) } else { Err(Some(stands)) })
            }
        }
    }

    /// Where a reader of a partition begins; `None` where none was stored: at the beginning of the log.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn position(&self, partition: u32) -> Outcome<Option<Position>> {
        let found = self.items().get(key(&format!("{POSITION}{partition}"))).await?;
        found.map(|found| decode(&Reader::new(self.table(), &found), &found)).transpose()
    }

    /// Stores where a reader of a partition begins, unless this or a later place is stored; whether it was stored. Safe to
    /// repeat: the stored place is not before this one afterwards.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn store_position(&self, partition: u32, position: &Position) -> Outcome<bool> {
        let mut say = Aliases::default();
        let (name, at) = (say.name(AT), say.number(position.at));
        let condition = format!("attribute_not_exists({name}) OR {name}<{at}");
        Ok(matches!(self.items().put_if(encode(partition, position), say, condition).await?, Conditional::Done(_)))
    }
}

#[cfg(test)]
mod tests {
    use tally_core::changes::{Body, Message, Opened, Opening};
    use tally_core::ids::StreamShard;

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
