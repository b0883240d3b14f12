//! Kafka through librdkafka: membership of a group, producers, and a reader outside of groups. Other crates decide what
//! a record means.
//!
//! What librdkafka does, as found against its in-process cluster, and what follows from it:
//!
//! - The rebalance hook runs inside `poll`, so nothing can be awaited there. An assignment is answered at once with an
//!   incremental assign of *nothing*, which lets the group settle; each partition is added later, at the offset that
//!   its worker has read from its claim. So nothing is fetched before its position is known, no committed offset is
//!   looked up, and a seek right after an assignment, which fails with "erroneous state", is not needed.
//! - To start elsewhere is to unassign and assign again. When the unassign call returns, librdkafka drops every record
//!   fetched under the older position. The task that polls sets positions, and empties the queue of records with them:
//!   after a new position no record of an older one is seen.
//! - A pause outlives an unassign: a partition that was paused is resumed when it is started again.
//! - A position out of range is an error that names no partition (`auto.offset.reset=error`), so every worker looks at
//!   its log again. The same follows any error that another log may have caused: a topic that is deleted and created
//!   again keeps the fetcher's position, and neither an error nor a rebalance says so.
//! - A revocation is answered when the workers have dropped their handles, or after a bounded time, whichever is first.
//!   Until then the client reads none of the member's partitions. Lost partitions are unassigned inside the hook.
//! - Dropping a consumer blocks while it leaves the group, and for ever where a revocation was not answered. So it is
//!   dropped on a blocking thread, after every revocation is answered.
//! - A client may forget every broker and never look for one again. After a call in vain the caller names them again.
//! - An idempotent producer may fail for good, for instance after a moment without a permission. It is replaced.

mod args;
mod context;
mod convert;
mod embedded;
mod holdings;
mod membership;
mod owned;
mod producer;
mod reader;
mod source;
mod spreading;
mod topic_id;
mod topics;

pub use args::{
    BlocksTopic, BoardsTopic, ChangesTopic, KafkaArgs, LikesTopic, Mechanism, Settings, check_brokers, topic,
};
pub use embedded::Embedded;
pub use membership::Membership;
pub use producer::{Producer, Transactions};
pub use reader::{Member, TopicReader};
pub use source::{Source, joining};
pub use spreading::Spreading;
pub use topics::{
    NeededTopic, create_topic, foreign_log, last_records, retention, say_whether_there, shared, topic_settings,
};
