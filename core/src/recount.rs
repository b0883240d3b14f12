//! An exact count of one row key while it changes: a window in the row key's own stream, and what follows from it.
//!
//! A run puts an opening marker beside the rows, reads them all, and puts a closing marker. Whoever was touched between
//! the markers is counted by the stream, everybody else by the read. The counter's value at the closing marker is kept
//! in the counter itself, so the difference is a correction to *add*, whatever has been counted since.

mod audit;
mod capture;
mod horizon;
mod marker;
mod verdict;

pub use audit::{Finding, RowKeyCount, RowTally, Scanned, compare, gap_may_close, proved};
pub use capture::{Capture, CaptureLimits, Captures, Report};
pub use horizon::Horizon;
pub use marker::{AfterPut, BadRunId, Marker, Phase, RunId, UnknownPhase, after_put};
pub use verdict::{Form, NoWindow, Read, Verdict, exact_rows, verdict};
