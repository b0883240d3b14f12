//! The I/O the services need, as traits in our words.
//!
//! Calls repeat themselves inside an adapter only where the doc comment of the write says that this is safe. Every
//! write names the condition that makes it so. Object-safe, so that a service holds `Arc<dyn Port>` and its tests
//! hand it another.

mod deployment;
mod leases;
pub mod log;
mod recounts;
mod rows;
mod stream;

pub use deployment::DeploymentConfig;
pub use leases::{Lease, LeaseTaken, Worker};
pub use log::{Intake, OwnedPartition, Producer, TopicReader, Transactions};
pub use recounts::{
    AuditSegment, AuditSegments, Ledger, LedgerEntry, Milestones, Operation, Operations, QueueReason, Queued, Recorded,
    RecountQueue, Recounts, Runs,
};
pub use rows::{Like, MemberRow, Rows, ScannedRow, Segment};
pub use stream::{ChangeStream, Iterator, Position, Records, StreamFault, StreamInfo};

use crate::fault::Fault;

/// What a port's calls come to.
pub type Outcome<T> = Result<T, Fault>;

/// A part of a long answer, and where the next begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// What this part holds.
    pub items: Vec<T>,
    /// Pass it to go on; `None` at the end.
    pub next: Option<Cursor>,
    /// What it cost, in half read units: the least the store charges.
    pub half_units: u64,
}

/// Where a long answer goes on: opaque, valid for the call that gave it, and for another process too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cursor(pub String);
