//! In-memory twins of the rows, the configuration, the log and the cache, over the decision functions of `tally_core`: what
//! the real engines evaluate as conditions, these call directly.

mod checkpoints;
mod likes;
pub mod log;
mod partitions;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ids::ShardCount;
use tally_core::ports::{Cursor, Outcome, Page};
use tally_core::time::UnixMillis;
use tokio::time::Instant;

pub use checkpoints::Checkpoints;
pub use likes::{Likes, Maps, Rows};
pub use partitions::PartitionCache;

/// How many items one page of a long answer has.
const PAGE: usize = 100;

/// The rows with their fences, and the configuration, in memory. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Memory {
    state: Arc<Mutex<State>>,
    began: UnixMillis,
    origin: Instant,
}

#[derive(Debug, Default)]
struct State {
    likes: likes::Tables,
    checkpoints: checkpoints::Table,
}

impl Memory {
    /// Empty tables whose clock shows `began` now and moves with tokio's.
    pub fn new(began: UnixMillis) -> Self {
        Self { state: Arc::default(), began, origin: Instant::now() }
    }

    /// The likes table of a deployment whose posts have `shards` row keys each.
    pub fn likes(&self, shards: ShardCount) -> Likes {
        Likes::new(self.clone(), shards)
    }

    /// The rows of the likes table.
    pub fn rows(&self) -> Rows {
        Rows::new(self.clone())
    }

    /// The maps of sets.
    pub fn maps(&self) -> Maps {
        Maps::new(self.clone())
    }

    /// What the deployment was created with.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::new(self.clone())
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
