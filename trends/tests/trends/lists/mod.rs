//! Tests that lists of what is trending equal the sums over all changes of rows, or say that they may be off.

mod fold;
mod laws;
mod partitions;
pub(crate) mod world;
