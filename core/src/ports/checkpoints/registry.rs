//! The numbers that stream shards are given, and the floor below which all of them are closed.

use async_trait::async_trait;

use crate::ids::{Ordinal, StreamLabel, StreamShardId};
use crate::ports::Outcome;
use crate::time::UnixMillis;

/// The numbers given out for one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registry {
    /// The next number.
    pub next: Ordinal,
    /// Every shard numbered up to here is closed.
    pub floor: Option<Ordinal>,
}

impl Registry {
    /// Numbers left free between two labels, for workers that still follow the earlier one.
    pub const ROOM: u64 = 1_000;

    /// The registry of a label never seen before, `next` being the greatest of the earlier labels, if there are any.
    pub fn after(next: Option<Ordinal>) -> Self {
        match next {
            None => Self { next: Ordinal(1), floor: None },
            Some(Ordinal(next)) => {
                Self { next: Ordinal(next + Self::ROOM), floor: Some(Ordinal(next + Self::ROOM - 1)) }
            }
        }
    }
}

/// The numbers of stream shards.
#[async_trait]
pub trait StreamRegistry: Send + Sync {
    /// The registry of a stream, read consistently; `None` for one never seen.
    async fn registry(&self, label: &StreamLabel) -> Outcome<Option<Registry>>;

    /// Gives `shard` its number, once: the checkpoint is put if absent together with the registry's next step, its `at`
    /// a time before which nothing was written to it. Safe to repeat: the number already given is answered.
    ///
    /// No number is given twice to streams of one table, whatever the label, for counters tell stream shards apart by
    /// their numbers alone: the registry of a new label begins [`Registry::ROOM`] behind the greatest `next` of all
    /// earlier ones of its table, and its floor says that everything before is done with. So no earlier label may begin
    /// behind a later one: that is a fault that passes, for a worker that lists the stream anew. Labels are times, and
    /// compare as such.
    async fn number(
        &self,
        label: &StreamLabel,
        shard: &StreamShardId,
        parent: Option<&StreamShardId>,
        at: UnixMillis,
    ) -> Outcome<Ordinal>;

    /// Every shard up to `floor` is closed. Safe to repeat: the floor never moves back.
    async fn raise_floor(&self, label: &StreamLabel, floor: Ordinal) -> Outcome<()>;
}
