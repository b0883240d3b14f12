//! The ports of a process: those of the log with its faults; and in a mutant's hands each does what the real one is asked to
//! do, but for one rule.

mod intake;
mod producer;
mod rewrite;

pub(crate) use intake::{FaultyIntake, FaultyReader};
pub(crate) use producer::{EarlyProducer, FaultyProducer, UnderWay};
pub(crate) use rewrite::{Asked, Rewriter, announced_nowhere};
