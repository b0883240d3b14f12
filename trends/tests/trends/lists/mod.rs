//! Lists of what is trending, compared with sums over all changes.

mod laws;
mod partitions;
mod shedding;
mod world;
