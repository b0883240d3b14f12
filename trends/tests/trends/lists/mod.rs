//! What is trending, held against every change there was.

mod laws;
mod partitions;
mod shedding;
mod world;
