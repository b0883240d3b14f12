//! A stream shard's checkpoint and lease as an item.

use tally_core::ids::{Ordinal, StreamLabel, StreamShardId};
use tally_core::ledger::Fed;
use tally_core::lineage::Checkpoint;
use tally_core::ports::{Lease, Outcome, ShardState, Worker};
use tally_core::time::UnixMillis;

use super::super::item::{Item, Reader, flag, item, number, text};
use super::super::names::checkpoints::{AT, BEAT, CLOSED, FED, FED_AT, FED_END, ID, ORDINAL, OWNER, PARENT, SEQUENCE};

/// Where the checkpoints of a stream are kept.
pub(super) fn prefix(label: &StreamLabel) -> String {
    format!("stream/{label}/")
}

pub(super) fn id(label: &StreamLabel, shard: &StreamShardId) -> String {
    format!("{}{shard}", prefix(label))
}

/// A checkpoint before its first record, still without its number.
pub(super) fn new(id: &str, parent: Option<&StreamShardId>, now: UnixMillis) -> Item {
    let mut created = item([(ID, text(id)), (CLOSED, flag(false)), (AT, number(now))]);
    created.extend(parent.map(|parent| (PARENT.to_owned(), text(parent.as_str()))));
    created
}

/// The shard `id`, as its item has it.
pub(super) fn decode(id: &str, reader: &Reader<'_>) -> Outcome<ShardState> {
    let checkpoint = Checkpoint {
        id: id.into(),
        parent: reader.text(PARENT)?.map(Into::into),
        ordinal: Ordinal(reader.required_number(ORDINAL)?),
        sequence: reader.parsed(SEQUENCE)?,
        closed: reader.flag(CLOSED)?,
        at: UnixMillis(reader.required_number(AT)?),
    };
    let at = reader.number(FED_AT)?.map(UnixMillis);
    let fed = Fed { sequence: reader.parsed(FED)?, at, end: reader.flag(FED_END)? };
    Ok(ShardState { checkpoint, fed, lease: lease(reader)? })
}

/// Who says to be working on the shard.
pub(super) fn lease(reader: &Reader<'_>) -> Outcome<Option<Lease>> {
    let Some(holder) = reader.text(OWNER)? else { return Ok(None) };
    Ok(Some(Lease { holder: Worker(holder.to_owned()), beat: reader.number(BEAT)?.unwrap_or(0) }))
}
