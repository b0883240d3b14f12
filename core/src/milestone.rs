//! Milestones: who or what first brought a counter's total to a threshold. The thresholds of a deployment are its
//! [`Ladder`].
//!
//! The log of changes has everything that happens to a counter in one order, so the log alone decides the winner: the
//! entry that lifts the total to the threshold ([`Partition`](crate::fold::Partition) finds it). The fold writes the
//! counter and the record of the threshold in one transaction.
//!
//! A threshold that a correction crossed, or that was crossed before the ladder was in force, never has a winner.

mod ladder;
mod record;

pub use ladder::{BadLadder, Crossed, Ladder};
pub use record::{Events, Milestone, Winner};
