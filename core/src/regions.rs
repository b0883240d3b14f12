//! Counts over several Regions: each Region runs a pipeline of its own for the users whose home it is, and is the only writer of
//! its own entry of every counter. An answer is the sum of the entries.
//!
//! A Region's fold publishes its entries in a compacted topic, `counts`: [`Told::Counted`] for each counter that has changed, and
//! behind those the standing of the partition, [`Told::Stated`]. Kafka's own replication copies the topic to the other Regions,
//! where a [`Remote`] reads each partition. An entry takes the place of one of an earlier version, so copies, delays and
//! repetitions change nothing.
//!
//! # When a standing may be believed
//!
//! A standing says that every change before its place is in the entries before it in the topic. But a compacted topic forgets an
//! entry once a later one of the same counter is there. Who reads an old part of it may find the standing and miss an entry before
//! it, whose successor is still to come. Kafka leaves alone what is younger than the topic's `min.compaction.lag.ms`, so this only
//! happens to who reads something that is [`LAG`] old. A reader that had fallen so far behind believes no standing that was
//! published before it noticed: what replaced the missing entry is before those that were published later.

mod message;
mod remote;

pub use message::{BadTold, ENTRY_FORMAT, STANDING_KEY, Told, ToldMessage};
pub use remote::{Another, LAG, Remote, RemoteFlush, RemotePosition};

/// How much the clocks of two Regions may differ.
const CLOCKS: std::time::Duration = std::time::Duration::from_secs(5);
