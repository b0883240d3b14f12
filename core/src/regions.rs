//! Counts over several Regions. Each Region runs its own pipeline for the users whose home it is, and alone writes its
//! own entry (count) of every counter. An answer is the sum of the entries.
//!
//! A Region's fold publishes its entries in a compacted topic, `counts`: [`Told::Counted`] for each counter that has
//! changed, and behind those the standing of the partition, [`Told::Stated`], which says up to which time all changes
//! are counted. Kafka's replication copies the topic to the other Regions, where a [`Remote`] reads each partition. An
//! entry replaces only one of an earlier version, so copies, delays and repetitions change nothing.
//!
//! # When a reader believes a standing
//!
//! A standing says that every change before its place is in the entries before it in the topic. But compaction deletes
//! an entry once a later one of the same counter is there. So a reader of an old part may find the standing and miss
//! an entry before it, whose successor is still to come. Kafka compacts nothing younger than the topic's
//! `min.compaction.lag.ms`, so this happens only to a reader of something that is [`LAG`] old. A reader that had
//! fallen so far behind believes no standing that was published before it noticed: whatever replaced the missing
//! entries comes before the later standings.

mod message;
mod remote;

pub use message::{BadTold, ENTRY_FORMAT, STANDING_KEY, Told, ToldMessage};
pub use remote::{Another, LAG, Remote, RemoteFlush, RemotePosition};

/// How much the clocks of two Regions may differ.
const CLOCKS: std::time::Duration = std::time::Duration::from_secs(5);
