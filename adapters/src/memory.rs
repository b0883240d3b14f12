//! Stand-ins in memory for Kafka and the cache, for tests and simulations. They call the decision functions of
//! `tally_core` where the real engines evaluate conditions.

pub mod log;
mod mirror;
mod partitions;

pub use mirror::Mirror;
pub use partitions::PartitionCache;
