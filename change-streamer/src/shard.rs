//! Which stream shard is meant.

use tally_core::ids::{Ordinal, StreamLabel, StreamShardId};

/// One stream shard, with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamShard {
    pub(crate) label: StreamLabel,
    pub(crate) id: StreamShardId,
    pub(crate) ordinal: Ordinal,
}
