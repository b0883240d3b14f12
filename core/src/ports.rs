//! The I/O that has more than one implementation, as traits in our words: the log and the change stream.
//!
//! Calls repeat themselves inside an adapter only where the doc comment of the write says that this is safe. Every
//! write names the condition that makes it so. Object-safe, so that a service holds `Arc<dyn Port>` and its tests
//! hand it another.

pub mod log;
mod stream;

pub use log::{Intake, OwnedPartition, Producer, TopicReader, Transactions};
pub use stream::{ChangeStream, Iterator, Position, Records, StreamFault, StreamInfo};

use crate::fault::Fault;

/// What a port's calls come to.
pub type Outcome<T> = Result<T, Fault>;
