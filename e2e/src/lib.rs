//! The attack on Tally: what would find our bugs.

pub mod attack;
mod crowd;
pub mod fuzz;
pub mod simulation;
mod undisturbed;
