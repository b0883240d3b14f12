//! How counts are read: over the emulated tables and the cache in memory, in this process and under paused time.

mod absent;
mod cache;
mod corrections;
mod freshness;
mod history;
mod losses;
mod regions;
mod safe;
mod table;
pub(crate) mod world;
