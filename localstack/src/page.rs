//! The web page of the local stack: what it shows, and what a person can ask the stack to do, as a trait that the stack
//! implements.

mod routes;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use routes::routes;

/// What the page needs of the stack behind it.
#[async_trait::async_trait]
pub trait Stack: Send + Sync + 'static {
    fn snapshot(&self) -> Snapshot;

    /// Carries the action out, and says in a sentence what was done.
    ///
    /// # Errors
    /// What could not be done, and why: a [`Refusal`] where it makes no sense now, anything else where it failed.
    async fn act(&self, command: Command) -> anyhow::Result<String>;
}

/// Why an action makes no sense as things are, for the person who asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// Everything the page shows, at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// When this stack started, likewise: a page sees by it that another stack took its place.
    pub since: u64,
    pub endpoints: Endpoints,
    pub load: Load,
    pub rows: u64,
    /// From an event's acknowledgement by Kafka until the API shows it, over the last seconds; none before the first.
    pub staleness: Option<Staleness>,
    pub drift: Drift,
    /// Losses of stream that no recount has closed yet: while there is one, no count is exact.
    pub open_gaps: usize,
    /// The stream's shards, parents before children.
    pub shards: Vec<StreamShard>,
    /// The services and engines of the stack, in the order data flows.
    pub parts: Vec<Part>,
    /// The last recount of everything, or the one under way.
    pub recount: Option<Recount>,
    /// Posts whose counts were corrected, the last one first.
    pub ledger: Vec<Corrected>,
    /// How many more there are.
    pub ledger_more: u64,
    /// Posts worth showing, hottest first.
    pub posts: Vec<String>,
    /// What lists of what is trending there are, once there are any.
    pub trending: Option<Trending>,
    /// Whether the mirror between the two Regions copies; none where there is one Region.
    pub mirror: Option<bool>,
}

/// Of what there are lists.
#[derive(Clone, Debug, Serialize)]
pub struct Trending {
    pub counters: Vec<Trended>,
    /// Those that the load's events come from.
    pub regions: Vec<String>,
    pub windows: Vec<String>,
}

/// A counter that has lists.
#[derive(Clone, Debug, Serialize)]
pub struct Trended {
    pub name: String,
    /// Whether it counts something of hashtags; of posts otherwise.
    pub hashtags: bool,
    /// Whether it has lists of one region.
    pub regions: bool,
}

/// Where things listen; all of them on loopback.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Endpoints {
    pub kafka: String,
    pub dynamodb: String,
    /// URL of the API and this page.
    pub api: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Load {
    pub running: bool,
    /// Events a second that it aims at.
    pub rate: u64,
    /// Events a second that were applied, over the last second.
    pub events_per_second: f64,
    /// Events that Kafka acknowledged.
    pub events: u64,
    /// Why it makes fewer events than it aims at, if it does.
    pub limit: Option<Limit>,
}

/// Why the load makes fewer events than it aims at. Neither is a measure of what the pipeline could take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The gate holds it back, so that the embedded Kafka trims nothing unread.
    Gate,
    /// Its users wait for acknowledgements, or it has no more processor time.
    Generator,
}

/// How late the counts are.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Staleness {
    pub p50_ms: f64,
    pub p99_ms: f64,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Drift {
    /// Recounts that are through.
    pub runs: u64,
    /// Likes that counts were off by, signs ignored.
    pub found: u64,
    /// Corrections on the ledger.
    pub corrected: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct StreamShard {
    pub id: String,
    pub parent: Option<String>,
    /// Open, or closed by a split, or read to its end.
    pub state: ShardState,
    /// How far behind its reader is, in milliseconds; none for a shard that is read to its end or not begun.
    pub lag_ms: Option<u64>,
}

/// Where a stream shard is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardState {
    /// It takes new records.
    Open,
    /// It takes no more, and is still being read.
    Closing,
    /// Everything in it is applied.
    Done,
}

#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// Its name, as in [`Command::Kill`].
    pub name: String,
    pub state: PartState,
    /// How often it was started again.
    pub restarts: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartState {
    Up,
    /// Coming up, or waiting for something.
    Starting,
    /// Killed or stopped.
    Down,
}

/// A recount of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Recount {
    /// When, in milliseconds since 1970; it goes on while it has no end.
    pub began: u64,
    pub ended: Option<u64>,
    /// Rows counted so far.
    pub rows: u64,
    /// Row keys that moved or differ, and those of them that are settled.
    pub doubted: u64,
    pub settled: u64,
    /// Counts found to differ, and counts and totals corrected.
    pub found: u64,
    pub corrected: u64,
}

/// What corrections have done to one post's count. Those that changed nothing are not among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Corrected {
    pub post_id: String,
    /// Corrections, and by how many likes in all.
    pub corrections: u64,
    pub by: i64,
    pub last: Correction,
}

/// One line of the correction ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Correction {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// The part of the post's count; none where the total was mended.
    pub shard: Option<u16>,
    pub before: i64,
    pub after: i64,
    pub why: String,
}

/// What a person may do to the stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Command {
    /// Kills a service as a crash would; it is started again after a moment.
    Kill {
        /// Which: `consumer` or `change-streamer`.
        part: String,
    },
    /// Takes the cache away, with all it holds.
    StopCache,
    /// Brings it back, empty.
    StartCache,
    /// Puts one post's counter wrong: adds likes that have no rows.
    InjectDrift {
        post_id: String,
        by: i64,
    },
    Recount,
    /// Splits a shard of the stream in two.
    SplitShard,
    PauseLoad {
        paused: bool,
    },
    /// Stops the copying between the two Regions, both ways.
    CutMirror,
    HealMirror,
}
