//! In-memory twins of the log and of the cache, over the decision functions of `tally_core`: what the real engines evaluate as
//! conditions, these call directly.

pub mod log;
mod partitions;

pub use partitions::PartitionCache;
