//! An exact count of one row key while it changes: a window in the row key's own stream, and what follows from it.
//!
//! A run puts an opening marker beside the rows, reads them all, and puts a closing marker. A row touched between
//! the markers is counted by the stream, every other row by the read. The counter's value at the closing marker is kept
//! in the counter itself, so the difference is a correction to *add*, whatever has been counted since.

mod audit;
mod capture;
mod horizon;
mod marker;
mod run;
mod verdict;

pub use audit::{Finding, RowKeyCount, RowTally, Scanned, compare, gap_may_close, proved};
pub use capture::{Capture, CaptureLimits, Captures, Report};
pub use horizon::Horizon;
pub use marker::{AfterPut, Marker, Phase, UnknownPhase, after_put};
pub use run::{AuditRun, BadRunId, WindowRun};
pub use verdict::{Form, NoVerdict, Read, Verdict, exact_weight, verdict};
