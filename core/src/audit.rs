//! A run of the recount as it is kept: what it was asked to do, what it found and did, and what that cost.

mod record;
mod summary;

pub use crate::ids::AuditRun;
pub use record::{BadRecord, RunRecord, RunScope};
pub use summary::{Cause, Cost, Drift, QueueReason, Summary};
