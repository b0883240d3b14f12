//! Kafka and the cache in memory, for tests, simulations and the local stack. They call the decision functions of
//! `tally_core` where the real engines evaluate conditions. Also [`Mirror`], which copies a topic from one Kafka to
//! another.

pub mod log;
mod mirror;
mod partitions;

pub use mirror::Mirror;
pub use partitions::PartitionCache;
