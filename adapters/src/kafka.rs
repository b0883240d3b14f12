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
//!   asked to look at its log again.
//! - A revocation is answered when the workers have dropped their handles, or after a bounded time, whichever is first.
//!   Lost partitions are unassigned inside the hook.
//! - Dropping a consumer blocks while it leaves the group: that happens on a blocking thread.

mod context;
mod fault;
#[cfg(feature = "msk-iam")]
mod iam;
mod owned;
mod producer;
mod settings;
mod shelf;
mod source;
mod topic_id;

pub use producer::Producer;
pub use settings::{Credentials, Sasl, Security, Settings, Tls};
pub use shelf::Shelf;
pub use source::Source;

/// Whether this build can speak TLS to Kafka, and so SCRAM and IAM.
pub const TLS: bool = cfg!(feature = "tls");

/// Whether this build can log in to MSK by IAM.
pub const MSK_IAM: bool = cfg!(feature = "msk-iam");
