//! Lists of what is trending, compared with sums over all changes.

mod fold;
mod laws;
mod partitions;
pub(crate) mod world;
