//! Ports: the I/O that has more than one implementation, as traits. [`log`] is Kafka, [`ChangeStream`] the table's
//! stream.
//!
//! An adapter repeats a write by itself only where the doc comment of the write says that this is safe. Every write
//! names the condition that makes it so. The traits are object-safe: a service holds `Arc<dyn Port>`, and its tests
//! pass another one.

pub mod log;
mod stream;

pub use log::{Intake, OwnedPartition, Producer, TopicReader, Transactions};
pub use stream::{ChangeStream, Iterator, Position, Records, StreamFault, StreamInfo};

use crate::fault::Fault;

/// The result of a port's call.
pub type Outcome<T> = Result<T, Fault>;
