//! Every row held against its counter while both change, as machines without I/O.
//!
//! [`Audit`] decides the order: the rows' segments, the counters' segments, and what may close. [`Scanner`] weighs the
//! rows of a segment per row key. [`Prover`] compares them with the counters and proves what it can. [`FollowUp`] looks
//! at the others by themselves, also while they move, and leaves to windows what differs and what no look could tell.

mod follow_up;
mod horizon;
mod look;
mod met;
mod open_at_start;
mod passes;
mod plan;
mod prover;
mod record;
mod scanner;
mod summary;
mod total;
mod trail;
mod wrong;

pub use crate::ids::AuditRun;
pub use follow_up::{Candidate, FollowUp, FollowUpEffect, FollowUpInput};
pub use horizon::Horizon;
pub use look::RowsRead;
pub use met::{Met, MetKeys, in_doubt};
pub use open_at_start::{OpenAtStart, OpenGap};
pub use passes::{Audit, AuditEffect, AuditInput};
pub use plan::{Plan, SegmentOf};
pub use prover::{Doubt, ProofEffect, ProofInput, Prover};
pub use record::{AuditRecord, BadRecord, RunRecord, RunScope};
pub use scanner::{Batch, Before, ScanEffect, ScanInput, Scanner, Weighed};
pub use summary::{Cause, Cost, Drift, LISTED, Summary};
pub use total::{MendTotal, TotalEffect, TotalEnding, TotalInput, WrongTotal};
pub use trail::{Broken, Missing, Touched, Trail};
pub use wrong::Wrong;
