//! The attack on Tally: what would find our bugs.

pub mod attack;
pub mod fuzz;
pub mod simulation;
