//! Counts in this process's memory for a moment, and one read at a time of those that are not.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use moka::future::Cache;
use tally_core::ids::PostId;
use tally_core::served::Served;

use super::NoAnswer;

/// A bounded memory of counts. Posts asked for once do not drive out those asked for often.
pub struct Local {
    counts: Cache<PostId, Served>,
    keeps: bool,
}

impl Local {
    /// Keeps up to `posts` counts for `ttl` each; with no `ttl` nothing is kept, and simultaneous reads are still one.
    pub fn new(posts: u64, ttl: Duration) -> Self {
        Self { counts: Cache::builder().max_capacity(posts).time_to_live(ttl).build(), keeps: !ttl.is_zero() }
    }

    /// The count of `post`, if it was read a moment ago.
    pub async fn get(&self, post: &PostId) -> Option<Served> {
        if self.keeps { self.counts.get(post).await } else { None }
    }

    /// The count of `post` as `read` has it, which only the first of those who ask at once waits for itself.
    pub async fn read_once(
        &self,
        post: &PostId,
        read: impl Future<Output = Result<Served, NoAnswer>>,
    ) -> Result<Served, NoAnswer> {
        // On the heap: it would make the future of every request as large as that of a miss.
        let read = Box::pin(read);
        let kept = self.counts.try_get_with(post.clone(), read).await;
        kept.map_err(|fault: Arc<NoAnswer>| (*fault).clone())
    }

    /// Keeps what was read with others.
    pub async fn put(&self, post: &PostId, served: Served) {
        if self.keeps {
            self.counts.insert(post.clone(), served).await;
        }
    }
}
