//! The fold: from change records of the likes table to what each counter gains.
//!
//! The streamer and the recount both read records with these functions, so that they cannot disagree on what a row is.

mod prefix;
mod record;

pub use prefix::{Boundary, CounterRecords, Cut, CutRules, Fold, MAX_TOUCHED, Prefix, UpdateContext};
pub use record::{Image, Quarantine, RawRecord, Record, RecordKind, Regions, Span, read};
