//! A count, from the nearest layer that has it: this process's memory, the shared cache, the table. Which is right when
//! they differ is not decided here: the table is, and no layer's value is ever made up.

mod breaker;
mod cache;
mod local;
mod negative;
mod standing;
mod table;

use std::sync::Arc;

use tally_core::Map;
use tally_core::ids::PostId;
use tally_core::ports::{Cached, Counts, FillToken};
use tally_core::served::Served;
use thiserror::Error;

pub use cache::{Filler, Fills, Layer};
pub use local::Local;
pub use negative::{Negatives, Recounter};
pub use standing::{FollowStanding, Source, Standing, View};
pub use table::{Bounds, Table};

use crate::error::{Cause, Problem};
use crate::metrics::Layers;

/// Why a number could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoAnswer {
    /// The table has as many reads under way as it is given.
    #[error("as many reads of the table are under way as are allowed")]
    Busy,
    /// It did not answer, or with a fault.
    #[error("{}", .0.as_str())]
    Away(Cause),
    /// It will never take this request.
    #[error("{}", .0.as_str())]
    Refused(Cause),
}

impl From<NoAnswer> for Problem {
    fn from(fault: NoAnswer) -> Self {
        match fault {
            NoAnswer::Busy => Self::Busy,
            NoAnswer::Away(cause) => Self::StoreAway(cause),
            NoAnswer::Refused(cause) => Self::Internal(cause),
        }
    }
}

/// Reads counts. Clones share everything.
#[derive(Clone)]
pub struct Reader(Arc<Layered>);

/// The layers, nearest first.
pub struct Layered {
    /// This process's memory.
    pub local: Local,
    /// The shared cache; none is a supported way to run.
    pub cache: Option<Layer>,
    /// What the cache is given.
    pub fills: Fills,
    /// The table.
    pub table: Arc<Table>,
    /// The counts in it.
    pub counts: Arc<dyn Counts>,
    /// How far a number can be trusted now.
    pub standing: View,
    /// Where counts below zero are reported.
    pub negatives: Negatives,
    /// What is counted.
    pub layers: Layers,
}

impl From<Layered> for Reader {
    fn from(layers: Layered) -> Self {
        Self(Arc::new(layers))
    }
}

impl Reader {
    /// The count of `post`. However many ask at once, one of them reads.
    pub async fn count(&self, post: &PostId) -> Result<Served, NoAnswer> {
        let Layered { local, layers, standing, .. } = &*self.0;
        if let Some(served) = local.get(post).await {
            layers.local.increment(1);
            return Ok(standing.now().judge(served));
        }
        let served = local.read_once(post, self.read_one(post)).await?;
        Ok(standing.now().judge(served))
    }

    /// The counts of `posts`, in their order: the cache is asked once for all that are not in memory, the table once for
    /// the rest.
    pub async fn counts(&self, posts: &[PostId]) -> Result<Vec<Served>, NoAnswer> {
        let mut missing: Vec<PostId> = Vec::new();
        let mut known: Map<&str, Served> = Map::default();
        for post in posts {
            match self.0.local.get(post).await {
                Some(served) => _ = known.insert(post, served),
                None if missing.contains(post) => {}
                None => missing.push(post.clone()),
            }
        }
        self.0.layers.local.increment(known.len() as u64);
        let read = self.read(&missing).await?;
        for (post, served) in missing.iter().zip(read) {
            self.0.local.put(post, served).await;
            known.insert(post, served);
        }
        let now = self.0.standing.now();
        Ok(posts.iter().filter_map(|post| known.get(post.as_str())).map(|served| now.judge(*served)).collect())
    }

    /// Counts that are not in memory, in the order of `posts`, each of them once.
    async fn read(&self, posts: &[PostId]) -> Result<Vec<Served>, NoAnswer> {
        let Layered { cache, standing, negatives, layers, .. } = &*self.0;
        let cached = match cache {
            Some(cache) if !posts.is_empty() => cache.get(posts).await.unwrap_or_default(),
            Some(_) | None => Vec::new(),
        };
        let mut found: Vec<Option<Served>> = cached.iter().copied().map(hit).collect();
        found.resize(posts.len(), None);
        // What was called inexact for a gap may be exact now that there is none: the table knows.
        let gaps = standing.now().open_gaps;
        let settled = |at: &usize| found[*at].is_some_and(|served| served.exact || gaps);
        let open: Vec<usize> = (0..posts.len()).filter(|at| !settled(at)).collect();
        layers.cache.increment((posts.len() - open.len()) as u64);
        if !open.is_empty() {
            let wanted: Vec<PostId> = open.iter().map(|at| posts[*at].clone()).collect();
            match self.read_table(&wanted).await {
                Ok(read) => open.iter().zip(read).for_each(|(at, served)| found[*at] = Some(served)),
                // An inexact number that says so is better than none.
                Err(_) if found.iter().all(Option::is_some) => {}
                Err(fault) => return Err(fault),
            }
        }
        let found: Vec<Served> = found.into_iter().flatten().collect();
        posts.iter().zip(&found).for_each(|(post, served)| negatives.report(post, served));
        Ok(found)
    }

    async fn read_one(&self, post: &PostId) -> Result<Served, NoAnswer> {
        let read = self.read(std::slice::from_ref(post)).await?;
        read.first().copied().ok_or_else(|| NoAnswer::Away(Cause::new("nothing was read")))
    }

    /// Reads the table. The right to fill the cache is asked for before, and `as_of` read before, so that neither says
    /// more than the value holds.
    async fn read_table(&self, posts: &[PostId]) -> Result<Vec<Served>, NoAnswer> {
        let Layered { cache, table, counts, standing, fills, layers, .. } = &*self.0;
        let tokens: Vec<Option<FillToken>> = match cache {
            Some(cache) => cache.begin_fills(posts).await,
            None => Vec::new(),
        };
        let standing = standing.now();
        let counters = match posts {
            [post] => vec![table.read(counts.counter(post)).await?],
            _ => table.read(counts.counters(posts)).await?,
        };
        if counters.len() != posts.len() {
            return Err(NoAnswer::Away(Cause::new("the table answered for other posts than were asked for")));
        }
        layers.table.increment(posts.len() as u64);
        let served: Vec<Served> = counters.iter().map(|counter| standing.serve(counter.as_ref())).collect();
        for ((post, token), (served, counter)) in posts.iter().zip(tokens).zip(served.iter().zip(&counters)) {
            // A post without a counter stays out: ids nobody has would drive out those that are asked for.
            if let (Some(token), Some(_)) = (token, counter) {
                fills.offer(post, token, *served);
            }
        }
        Ok(served)
    }
}

fn hit(cached: Cached) -> Option<Served> {
    match cached {
        Cached::Hit(served) => Some(served),
        Cached::Miss => None,
    }
}
