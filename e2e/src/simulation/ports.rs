//! The ports of a mutated process: each does what the real one is asked to do, but for one rule.

mod changes;
mod checkpoints;
mod counts;
mod rows;
mod stream;

pub(crate) use checkpoints::{MutatedCheckpoints, Watch};
pub(crate) use counts::MutatedCounts;
pub(crate) use rows::{MutatedMarkers, MutatedRows};
pub(crate) use stream::{MutatedStream, Shadows};
