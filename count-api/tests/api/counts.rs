//! Tests how counts are read, without HTTP: over emulated tables and a cache in memory, in this process and under
//! paused time.

mod absent;
mod cache;
mod freshness;
mod losses;
mod regions;
mod safe;
mod table;
pub(crate) mod world;
