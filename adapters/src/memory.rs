//! Kafka and the cache in memory, for tests, simulations and the local stack. The cache calls the decision functions of
//! `tally_core` where Redis runs scripts. Also [`Mirror`], which copies a topic from one Kafka to another, on one
//! machine.

pub mod log;
mod mirror;
mod partitions;

pub use mirror::Mirror;
pub use partitions::PartitionCache;
