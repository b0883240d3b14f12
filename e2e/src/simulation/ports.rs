//! The ports of a mutated process: each does what the real one is asked to do, but for one rule.

mod changes;
mod checkpoints;
mod counts;
mod ledger;
mod rows;
mod stream;

pub(crate) use checkpoints::{MutatedCheckpoints, Watch};
pub(crate) use counts::MutatedCounts;
pub(crate) use ledger::{EarlyProducer, LedgerIntake, LedgerProducer, UnderWay};
pub(crate) use rows::{MutatedMarkers, MutatedRows};
pub(crate) use stream::{MutatedStream, Shadows};
