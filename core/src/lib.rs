// Decides, without I/O, what an event, a row, a change and an exact count are. The processes carry that out.
// The README is the documentation.

#![doc = include_str!("../README.md")]

pub mod audit;
pub mod backoff;
pub mod cached;
pub mod changes;
pub mod definitions;
pub mod event;
pub mod fault;
pub mod fold;
pub mod format;
pub mod ids;
pub mod lineage;
pub mod milestone;
pub mod ports;
pub mod recount;
pub mod regions;
pub mod register;
pub mod relay;
pub mod served;
pub mod shards;
pub mod spread;
pub mod tally;
pub mod time;
pub mod topic;
pub mod weight;

/// A map whose iteration order depends on its contents and history alone, never on a seed drawn at start.
pub type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::FixedState>;
/// A set with the same property as [`Map`].
pub type Set<K> = hashbrown::HashSet<K, foldhash::fast::FixedState>;
