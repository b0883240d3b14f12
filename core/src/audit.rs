//! A run of the recount as it is stored: what was asked, what it found and corrected, and what that cost.

mod record;
mod summary;

pub use crate::ids::AuditRun;
pub use record::{BadRecord, RunRecord, RunScope};
pub use summary::{Cause, Cost, Drift, QueueReason, Summary};
