//! The attack on Tally: what would find our bugs.

pub mod attack;
pub mod fuzz;
pub mod lifecycle;
pub mod meter;
pub mod pipeline;
pub mod policies;
pub mod scale;
pub mod simulation;
mod undisturbed;
