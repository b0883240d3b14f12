//! Lists of what is trending, compared with all changes.

mod laws;
mod partitions;
mod shedding;
mod world;
