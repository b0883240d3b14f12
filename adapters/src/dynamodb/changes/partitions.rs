//! How far the counters of a partition are, and where its next reader begins. Neither ever goes back.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use tally_core::cached::StandingAt;
use tally_core::changes::{Filter, LossNumber, Place, Standing};
use tally_core::fold::Position;
use tally_core::ports::Outcome;
use tally_core::time::UnixMillis;

use super::super::expression::Aliases;
use super::super::get::{self, Consistency};
use super::super::item::{Item, Reader, item, number, text};
use super::super::names::checkpoints::{AS_OF, AT, FILTER, ID, LOSS, MILESTONES, OPEN};
use super::{Changes, Conditional, key};

const STANDING: &str = "changes/standing/";
const POSITION: &str = "changes/position/";

fn encode_standing(partition: u32, StandingAt { at, standing }: &StandingAt) -> Item {
    let Standing { as_of, loss, open } = standing;
    let mut stored = item([(ID, text(format!("{STANDING}{partition}"))), (AT, number(*at))]);
    stored.extend(as_of.map(|as_of| (AS_OF.to_owned(), number(as_of))));
    stored.extend(loss.map(|loss| (LOSS.to_owned(), number(loss))));
    let open: Vec<String> = open.iter().map(LossNumber::to_string).collect();
    stored.extend((!open.is_empty()).then(|| (OPEN.to_owned(), AttributeValue::Ns(open))));
    stored
}

fn decode_standing(reader: &Reader<'_>) -> Outcome<StandingAt> {
    let number = |digits: &String| digits.parse().map(LossNumber).map_err(|error| reader.malformed(OPEN, error));
    let standing = Standing {
        as_of: reader.number(AS_OF)?.map(UnixMillis),
        loss: reader.number(LOSS)?.map(Place::from_stored),
        open: reader.number_set(OPEN)?.iter().map(number).collect::<Outcome<_>>()?,
    };
    Ok(StandingAt { at: Place::from_stored(reader.required_number(AT)?), standing })
}

fn encode(partition: u32, Position { at, filter, ladder }: &Position) -> Item {
    let mut stored = item([
        (ID, text(format!("{POSITION}{partition}"))),
        (AT, number(at)),
        (FILTER, AttributeValue::B(Blob::new(compressed(filter)))),
    ]);
    stored.extend((!ladder.is_empty()).then(|| (MILESTONES.to_owned(), text(ladder.to_string()))));
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
    /// What may be said of the counters of a partition; `None` before the first of it was read.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn standing(&self, partition: u32) -> Outcome<Option<StandingAt>> {
        let found = self.get(&format!("{STANDING}{partition}")).await?;
        found.map(|found| decode_standing(&Reader::new(self.table(), &found))).transpose()
    }

    /// The same of every partition of a log of so many, in one request for each hundred.
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

    /// Stores what may be said of the counters of a partition, unless the stored standing is of this or a later place;
    /// whether it was stored. Safe to repeat: the stored place is not before this one afterwards.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn store_standing(&self, partition: u32, standing: &StandingAt) -> Outcome<bool> {
        self.put_later(encode_standing(partition, standing), standing.at).await
    }

    /// Where a reader of a partition begins; `None` where none was stored: at the beginning of the log.
    ///
    /// # Errors
    /// The table cannot be read, or the item.
    pub async fn position(&self, partition: u32) -> Outcome<Option<Position>> {
        let found = self.get(&format!("{POSITION}{partition}")).await?;
        found.map(|found| decode(&Reader::new(self.table(), &found), &found)).transpose()
    }

    /// Stores where a reader of a partition begins, unless this or a later place is stored; whether it was stored. Safe to
    /// repeat: the stored place is not before this one afterwards.
    ///
    /// # Errors
    /// The table takes no write.
    pub async fn store_position(&self, partition: u32, position: &Position) -> Outcome<bool> {
        self.put_later(encode(partition, position), position.at).await
    }

    async fn put_later(&self, stored: Item, at: Place) -> Outcome<bool> {
        let mut say = Aliases::default();
        let (name, at) = (say.name(AT), say.number(at));
        let condition = format!("attribute_not_exists({name}) OR {name}<{at}");
        Ok(matches!(self.put_if(stored, say, condition).await?, Conditional::Done(_)))
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
