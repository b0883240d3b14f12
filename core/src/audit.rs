//! Runs of the recount: the record of a run, which `tally-batch-recount` stores and `tally` shows, has a summary of
//! what was found, corrected and spent.

mod record;
mod shown;
mod summary;

pub use crate::ids::AuditRun;
pub use record::{BadRecord, RunRecord, RunScope};
pub use summary::{Cause, Cost, Drift, QueueReason, Summary};
