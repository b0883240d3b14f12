//! Kafka through librdkafka: membership of a group, a producer, and a reader outside of groups. What a record means is
//! not known here.
//!
//! What librdkafka does, as found against its in-process cluster, and what follows from it:
//!
//! - The rebalance hook runs inside `poll`, so nothing can be awaited there. An assignment is answered at once with an
//!   incremental assign of *nothing*, which lets the group settle; a partition is added later, by itself, at the
//!   offset its worker has read from the fence. So nothing is fetched before its position is known, no committed offset
//!   is ever looked up, and the "erroneous state" of a seek right after an assignment cannot arise.
//! - To start elsewhere is to unassign and assign again. The unassign call returns with the fetcher's version barrier in
//!   place: a record fetched under the older position is dropped inside librdkafka. Positions are set by the task that
//!   polls, and the queue of what was read is emptied with them, so that a position is an epoch.
//! - A pause outlives an unassign: a partition that was paused is resumed when it is started again.
//! - A position out of range is an error that names no partition (`auto.offset.reset=error`), so every partition is
//!   asked to look at its log again. So it is after any error behind which there may be another log: a topic that is
//!   deleted and created again keeps the fetcher's position, and neither an error nor a rebalance says so.
//! - A revocation is answered when the workers have dropped their handles, or after a bounded time, whichever is first.
//!   Until then the client reads none of the member's partitions. Lost partitions are unassigned inside the hook.
//! - Dropping a consumer blocks while it leaves the group, and for ever where a revocation was not answered: that happens
//!   on a blocking thread, with every revocation answered.
//! - An idempotent producer may fail for good, say for a permission missing for a moment: it is replaced.

#[cfg(feature = "args")]
mod args;
mod context;
#[cfg(feature = "embedded")]
mod embedded;
mod fault;
mod holdings;
#[cfg(feature = "msk-iam")]
mod iam;
mod owned;
mod producer;
mod settings;
mod shelf;
mod source;
mod topic_id;

#[cfg(feature = "args")]
pub use args::{KafkaArgs, Mechanism};
#[cfg(feature = "embedded")]
pub use embedded::Embedded;
pub use producer::Producer;
pub use settings::{Credentials, Sasl, Security, Settings, Tls};
pub use shelf::Shelf;
pub use source::Source;

/// Whether this build can speak TLS to Kafka, and so SCRAM and IAM.
pub const TLS: bool = cfg!(feature = "tls");

/// Whether this build can log in to MSK by IAM.
pub const MSK_IAM: bool = cfg!(feature = "msk-iam");
