//! Which worker reads which stream shard: saves double work, and is never trusted for more.

/// A worker's name, drawn at its start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Worker(pub String);

/// A worker's claim to read a stream shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The worker.
    pub holder: Worker,
    /// Moves with every renewal: a lease whose beat stands still is stale.
    pub beat: u64,
}

/// Whether a lease could be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseTaken {
    /// It is ours, and this is what to renew it by.
    Taken(Lease),
    /// Another worker was faster.
    Lost,
}
