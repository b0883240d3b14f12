//! What a process knows of the stream at one moment.

use super::Lineage;
use crate::ids::Ordinal;
use crate::time::UnixMillis;

/// The stream at one moment. An old picture is safe to apply by: what is closed stays closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Picture {
    /// Its shards.
    pub lineage: Lineage,
    /// `F`: every shard up to here is closed.
    pub closed_through: Option<Ordinal>,
    /// Whether some loss of stream is not repaired yet.
    pub open_gaps: bool,
    /// What every counter is known to include.
    pub as_of: UnixMillis,
}
