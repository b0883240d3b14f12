//! Milestones: who or what lifted a counter's total to a threshold first.
//!
//! A log of several partitions has no order of its own. The Nth is the Nth in the order in which updates reach the counter's
//! item, and within an update in that of its records: one order that agrees with that of every partition, fixed once and
//! never revised. So the update that lifts a total over a threshold carries the record of it, in one transaction. Every
//! other update wants the total to stand where it cannot reach one on its way; what refuses it says what to send instead.
//!
//! A threshold that an update finds reached and unrecorded was crossed by a correction, or before it was known: no record
//! of the stream is to be named for it, then or later.

mod guard;
mod ladder;
mod record;
mod replay;

pub use guard::{Bound, Guard, Seen, Step, Terms, guard};
pub use ladder::{BadLadder, Crossed, Ladder};
pub use record::{Events, Milestone, Winner};
pub use replay::{Change, First, Replay, is_within};
