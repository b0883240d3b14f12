//! What a runner hands to the machine, and what it carries out for it.

use std::sync::Arc;
use std::time::Duration;

use super::{Fault, Lapse, Outgoing, Seconds};
use crate::ids::Sequence;
use crate::ports::Outcome;
use crate::tally::Record;
use crate::time::UnixMillis;

/// What bounds the ledger's part of one stream shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long records are gathered.
    pub age: Duration,
    /// The shortest time between two writes of how far the stream shard is fed.
    pub store: Duration,
    /// Bytes that may wait in the whole process.
    pub bytes: usize,
    /// How long a prefix may wait.
    pub patience: Duration,
    /// How long what waits may still take once the reader was stopped.
    pub farewell: Duration,
}

/// One request of one machine: its answer names it. No two are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The last record of the latest prefix.
    pub(super) prefix: Option<Sequence>,
    /// Requests since that prefix was sealed.
    pub(super) nth: u64,
}

impl RequestId {
    pub(super) fn take(&mut self) -> Self {
        let taken = *self;
        self.nth += 1;
        taken
    }
}

/// What the runner tells the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Records from the reader that follow right on those before. Those that are fed already are passed over.
    Records(Vec<Record>),
    /// The reader has passed on everything written before this time.
    UpTo(UnixMillis),
    /// Records written before this time may be missing between those handed in and the next.
    Lost(UnixMillis),
    /// The stream shard has ended, and the reader has passed on all of it.
    EndOfShard,
    /// The reader was stopped: what it has passed on is to be finished, but not waited for long.
    ReaderStopped,
    /// A request was answered.
    Answered(RequestId, Answer),
    /// Bytes that other stream shards of this process have waiting.
    Others(usize),
    /// The time of [`Changes::wake_at`](super::Changes::wake_at) has come.
    Woke,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Of [`Request::Send`], with every fault: after one the message may be in the log all the same.
    Sent(Outcome<()>),
    /// Of every other request, once it has succeeded.
    Done,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send this, side by side with other requests, and answer it.
    Ask(RequestId, Request),
    /// A prefix was cut.
    Sealed {
        /// Its records.
        records: usize,
        /// The messages it became.
        messages: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// What waited was dropped: changes of these seconds are missing in the log.
    GaveUp(Seconds),
    /// Nothing more will be asked for.
    Ended(End),
}

/// What is asked of the log and of the store. Every one of them is safe to repeat; faults of the store that pass are repeated
/// by the runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Write a message to the log. A repetition is passed over by readers.
    Send {
        /// The message.
        message: Arc<Outgoing>,
        /// Why it is sent once more.
        again: Option<Again>,
    },
    /// Store how far the stream shard is fed. It never moves back.
    StoreFed {
        /// Everything up to here is.
        to: Sequence,
        /// So is everything written before this time.
        at: UnixMillis,
    },
    /// Store that everything written before this time is fed. It never moves back.
    StoreFedAt(UnixMillis),
    /// Store that changes of these seconds are missing in the log.
    StoreLapse(Lapse),
    /// Store that all of the stream shard is fed, whose records were all written before it ended; everything written before
    /// this time was.
    StoreEnd(UnixMillis),
}

/// What a message that is sent once more has to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// The fault that its last try ended in.
    pub fault: Fault,
    /// How many tries have failed before that one.
    pub tries: u32,
}

/// How a machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The reader was stopped. What is not stored as fed is read again.
    Stopped,
    /// All of the stream shard is fed.
    Fed,
}
