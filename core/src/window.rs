//! An exact count of one row key while it changes: a window in the row key's own stream, and what follows from it.
//!
//! An [`Attempt`] puts an opening marker beside the rows, reads them all, and puts a closing marker. A row touched between
//! the markers counts as the stream has it, every other row as it was read. The counter's value at the closing marker is
//! kept in the counter itself, so the difference is a correction to *add*, whatever has been counted since. A [`Repair`]
//! makes attempts until one finds nothing to correct. The change-streamer's part are the [`Captures`].

mod attempt;
mod capture;
mod marker;
mod repair;
mod roster;
mod verdict;

pub use crate::ids::WindowRun;
pub use attempt::{Again, Attempt, AttemptRules, Effect, Ending, Input};
pub use capture::{Capture, CaptureLimits, Captures, Report};
pub use marker::{AfterPut, Marker, Phase, UnknownPhase, after_put};
pub use repair::{Proof, Repair, RepairEffect, RepairInput, Repaired};
pub use roster::Roster;
#[cfg(test)]
pub(crate) use roster::by_name;
pub use verdict::{Form, Judgement, NoVerdict, Verdict, exact_weight, judgement};
