//! What a process knows of the stream at one moment.

use super::Lineage;
use crate::ids::Ordinal;
use crate::standing::Reading;
use crate::time::{Now, UnixMillis};

/// The stream at one moment. An old picture is safe to apply by: what is closed stays closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Picture {
    /// When its reading began: before shards and gaps were asked for. A picture never read calls no count exact.
    pub began: Option<Now>,
    /// Its shards.
    pub lineage: Lineage,
    /// `F`: every shard up to here is closed.
    pub closed_through: Option<Ordinal>,
    /// Whether some loss of stream is not repaired yet.
    pub open_gaps: bool,
    /// What every counter is known to include.
    pub as_of: UnixMillis,
}

impl Picture {
    /// What counts are judged by that were asked for after this picture was taken.
    pub fn reading(&self) -> Reading {
        let open_gaps = self.open_gaps || self.began.is_none();
        Reading { began: self.began.unwrap_or_default(), as_of: self.as_of, open_gaps }
    }
}
