//! In-memory twins of every port, over the decision functions of `tally_core`: what the real engines evaluate as
//! conditions, these call directly. They share one state, so that rows written through one port appear in the change
//! stream of another.

mod cache;
mod checkpoints;
mod counts;
mod likes;
pub mod log;
mod partitions;
mod recounts;
mod streams;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ids::ShardCount;
use tally_core::ports::{Cursor, Outcome, Page};
use tally_core::time::UnixMillis;
use tokio::time::Instant;

pub use cache::Cache;
pub use checkpoints::Checkpoints;
pub use counts::Counts;
pub use likes::{Likes, Maps, Markers, Rows};
pub use partitions::PartitionCache;
pub use recounts::Recounts;
pub use streams::Streams;

/// How many items one page of a long answer has.
const PAGE: usize = 100;

/// All tables, their stream and a cache, in memory. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    began: UnixMillis,
    origin: Instant,
}

#[derive(Debug)]
struct State {
    likes: likes::Tables,
    stream: streams::Log,
    counts: counts::Table,
    checkpoints: checkpoints::Table,
    recounts: recounts::Table,
    cache: cache::Slots,
}

impl Memory {
    /// Empty tables whose clock shows `began` now and moves with tokio's; the stream begins with `shards` shards.
    pub fn new(began: UnixMillis, shards: u16) -> Self {
        let state = State {
            likes: likes::Tables::default(),
            stream: streams::Log::new(shards),
            counts: counts::Table::default(),
            checkpoints: checkpoints::Table::default(),
            recounts: recounts::Table::default(),
            cache: cache::Slots::default(),
        };
        Self { state: Arc::new(Mutex::new(state)), began, origin: Instant::now() }
    }

    /// The likes table of a deployment whose posts have `shards` row keys each.
    pub fn likes(&self, shards: ShardCount) -> Likes {
        Likes::new(self.clone(), shards)
    }

    /// The rows of the likes table.
    pub fn rows(&self) -> Rows {
        Rows::new(self.clone())
    }

    /// The markers beside the rows.
    pub fn markers(&self) -> Markers {
        Markers::new(self.clone())
    }

    /// The maps of sets.
    pub fn maps(&self) -> Maps {
        Maps::new(self.clone())
    }

    /// The change stream of the likes table.
    pub fn streams(&self) -> Streams {
        Streams::new(self.clone())
    }

    /// The counts table.
    pub fn counts(&self) -> Counts {
        Counts::new(self.clone())
    }

    /// The checkpoints table.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.clone())
    }

    /// The recounts table.
    pub fn recounts(&self) -> Recounts {
        Recounts::new(self.clone())
    }

    /// The cache.
    pub fn cache(&self) -> Cache {
        Cache::new(self.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> UnixMillis {
        self.began.plus(self.elapsed())
    }

    fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// Cuts a page of at most `limit` items off `items`, which come with the cursor behind each.
fn page<T>(mut items: impl Iterator<Item = (T, String)>, limit: usize) -> Page<T> {
    let (taken, mut cursors): (Vec<T>, Vec<String>) = items.by_ref().take(limit).unzip();
    let next = items.next().and_then(|_| cursors.pop()).map(Cursor);
    Page { items: taken, next, half_units: 2 }
}

/// A pair of texts as one cursor.
fn pair(first: &str, second: &str) -> String {
    format!("{}:{first}{second}", first.len())
}

/// The texts of a cursor made by [`pair`].
fn unpair(cursor: &Cursor) -> Outcome<(String, String)> {
    let parts = || {
        let (length, texts) = cursor.0.split_once(':')?;
        texts.split_at_checked(length.parse().ok()?)
    };
    let (first, second) = parts().ok_or_else(|| Fault::Poison("a cursor that this call never gave".to_owned()))?;
    Ok((first.to_owned(), second.to_owned()))
}

/// Which of `of` parts a key falls into.
fn part_of(key: &str, of: u32) -> u32 {
    let hash = std::hash::BuildHasher::hash_one(&foldhash::fast::FixedState::default(), key);
    u32::try_from(hash % u64::from(of.max(1))).expect("a remainder of a u32 fits a u32")
}
