//! End-to-end tests that try to break Tally: a simulator, attacks on real processes and benchmarks.

pub mod attack;
pub mod lifecycle;
pub mod meter;
pub mod pipeline;
pub mod scale;
pub mod simulation;
pub mod tables;
