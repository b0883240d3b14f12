//! The maps of sets: which shard counts their rows may be under.

use async_trait::async_trait;

use super::Outcome;
use crate::homes::{CounterMap, Sought};
use crate::ids::{CounterId, ShardCount};

/// The map of a counter stands among its rows, in the row key of its shard 0, and counts nothing.
#[async_trait]
pub trait CounterMaps: Send + Sync {
    /// The map of `counter`, read consistently; `None` where it has the deployment's shards and no others.
    async fn map(&self, counter: &CounterId) -> Outcome<Option<CounterMap>>;

    /// The maps of distinct `counters`, in their order, read consistently, each as [`map`](Self::map) answers it.
    async fn maps(&self, counters: &[CounterId]) -> Outcome<Vec<Option<CounterMap>>>;

    /// Under which of its homes each member has a row, in their order; `None`: under none. Read consistently, until the store has
    /// answered for each: what it leaves out is not a row that is not there.
    async fn locate(&self, sought: &[Sought]) -> Outcome<Vec<Option<ShardCount>>>;

    /// Puts `map` if what stands is `seen`; `false` where another stands. Safe to repeat: the time of `map` is later than
    /// that of `seen`, so a second copy is refused.
    async fn put_map(&self, counter: &CounterId, seen: Option<&CounterMap>, map: &CounterMap) -> Outcome<bool>;

    /// How often a change of a map was announced.
    async fn announced(&self) -> Outcome<u64>;

    /// Announces that a map changes or has changed, so that processes read their maps anew. Safe to repeat: they read them
    /// once more.
    async fn announce(&self) -> Outcome<()>;
}
