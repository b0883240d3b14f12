//! Models: small worlds around the production state machines and decisions, which the tests explore exhaustively.
//!
//! Each world follows every rule of the design, and its laws have to hold. Each mutant of a world breaks one rule, and
//! the exploration has to notice it.

mod cached;
mod cells;
mod counts;
mod honest;
mod regions;
mod regrown;
mod relay;
mod rows;

use tally_core::changes::{Body, Effect, Entry, Filter, Opened, Opening, Place, Section, Side};
use tally_core::ids::{CounterId, MemberKey, PostId, RowKey, Sequence, Shard, StreamShard};
use tally_core::time::UnixMillis;
use tally_core::topic::Offset;

/// Returns a position in the one log.
fn place(at: impl TryInto<u64>) -> Place {
    Place::new(1, Offset(at.try_into().ok().expect("a log is short")))
}

/// The inverse of [`place`].
fn offset<N: TryFrom<u64>>(place: Place) -> N {
    N::try_from(place.offset().0).ok().expect("a log is short")
}

/// Returns the sequence number of the nth record of the stream, counted from 1.
fn sequence(record: u8) -> Sequence {
    Sequence::from(u64::from(record))
}

/// The inverse of [`sequence`].
fn number(sequence: Sequence) -> u8 {
    sequence.as_str().parse().expect("sequences are small")
}

/// Returns the position after this many records.
fn position(records: u8) -> Option<Sequence> {
    (records > 0).then(|| sequence(records))
}

/// Returns the last record that a reader has of the only open stream shard.
fn reached(filter: &Filter) -> u8 {
    filter.open_shards().find_map(|(_, reached)| reached).map_or(0, number)
}

/// Returns a stream shard.
fn stream_shard(shard: usize) -> StreamShard {
    StreamShard::from(["2024/a", "2024/b"][shard])
}

/// Returns a time of a world whose times are few.
fn time(at: u8) -> UnixMillis {
    UnixMillis(at.into())
}

/// Returns a row key of the likes of one post.
fn likes(post: &str, shard: Shard) -> RowKey {
    RowKey { counter: CounterId::likes(PostId::new(post).expect("an id")), shard }
}

/// Returns a change of one row's weight, as the record with this number.
fn weighed(key: &RowKey, member: &str, [before, after]: [i64; 2], record: u8) -> Entry {
    let side = |weight| Side { weight, ..Side::default() };
    let member = MemberKey::new(member).expect("an id");
    let effect = Effect::Weighed { member, before: side(before), after: side(after) };
    Entry { key: key.clone(), effect, second: 0, sequence: sequence(record) }
}

/// Announces stream shards from their beginning.
fn opened(shards: impl IntoIterator<Item = StreamShard>) -> Body {
    let opening = |shard| Opening { shard, at: None, fed: UnixMillis(0) };
    Body::Opened(Opened { shards: shards.into_iter().map(opening).collect(), ended: Vec::new() })
}

fn sections(sections: Vec<Section>) -> Body {
    Body::Sections { sections, losses: Vec::new() }
}
