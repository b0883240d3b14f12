//! Milestones: who or what lifted a counter's total to a threshold first.
//!
//! The log `changes` holds everything that happens to a counter in one order, so the winner is a function of the log: the
//! entry that lifts the total to the threshold ([`Partition`](crate::fold::Partition) finds it). The counter and the
//! record of the threshold are written in one transaction.
//!
//! A threshold that a correction crossed, or that was crossed before the ladder was in force, has no winner, then or later.

mod ladder;
mod record;

pub use ladder::{BadLadder, Crossed, Ladder};
pub use record::{Events, Milestone, Winner};
