//! The record of a run of the recount, the process that compares counters with their rows and corrects them: what the
//! run was asked, and a summary of what it found, corrected and spent. `tally-batch-recount` stores the record, and the
//! operators' command `tally` shows it.

mod record;
mod shown;
mod summary;

pub use crate::ids::AuditRun;
pub use record::{BadRecord, RunRecord, RunScope};
pub use summary::{Cause, Cost, Drift, QueueReason, Summary};
