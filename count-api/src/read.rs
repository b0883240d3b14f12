//! A count, from the nearest place that has it: this process's memory, the shared cache, or the table.
//!
//! Of all requests for one counter one reads and the others wait for it. The read is a task of its own: a client that
//! leaves does not end it, so clients with less patience than a slow table find its count when they come back.

mod breaker;
mod cache;
mod heard;
mod layers;
mod local;
mod negative;
mod path;
mod standing;
mod table;

use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tally_core::counter::Counter;
use tally_core::ids::CounterId;
use tally_core::served::Served;
use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use cache::{Filler, Fills, SharedCache};
pub use heard::{AskCounts, Heard};
pub use layers::Layers;
pub use local::{KeptCount, Local};
pub use negative::{Negatives, Recounter};
pub use path::ReadPath;
pub use standing::{FollowStanding, Judge, StandingSource};
pub use table::{Bounds, TableGate};

use local::ReadLead;

use crate::count::Rendered;
use crate::error::{LoggedCause, Problem};

/// Reads under way at once. More are refused: the table's gate lets far fewer through.
const AT_ONCE: usize = 4_096;

/// Why a number could not be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoAnswer {
    #[error("as many reads of the table are under way as are allowed")]
    Busy,
    /// The table did not answer, or with a fault that passes.
    #[error("{}", .0.as_str())]
    Away(LoggedCause),
    /// The table will never answer this request.
    #[error("{}", .0.as_str())]
    Refused(LoggedCause),
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

/// Reads counts. Clones share everything; when the last one is dropped, the reads under way end.
#[derive(Clone)]
pub struct Reader(Arc<Shared>);

struct Shared {
    local: Local,
    layers: Arc<Layers>,
    reads: Mutex<JoinSet<()>>,
}

impl Reader {
    /// A reader of `layers` that keeps in `local` what it read.
    pub fn new(local: Local, layers: Layers) -> Self {
        Self(Arc::new(Shared { local, layers: Arc::new(layers), reads: Mutex::default() }))
    }

    /// The count of `id`, judged now.
    pub async fn count(&self, id: &CounterId) -> Result<Served, NoAnswer> {
        self.kept(id).await.map(|kept| self.judged(kept.served()))
    }

    /// The count of `id`, judged now, in the bytes of its answer.
    pub async fn rendered(&self, id: &CounterId) -> Result<Rendered, NoAnswer> {
        self.kept(id).await.map(|kept| kept.rendered(id, &self.judged(kept.served())))
    }

    /// The same, if the count is in memory `now` and was answered in the same bytes before.
    pub fn rendered_before(&self, id: &CounterId, now: Instant) -> Option<Rendered> {
        let kept = self.0.local.get(id, now)?;
        let rendered = kept.rendered_before(&self.judged(kept.served()))?;
        self.0.layers.counters.local.increment(1);
        Some(rendered)
    }

    /// The counts of `ids`, in their order, judged now. Those neither in memory nor being read are read together.
    pub async fn counts(&self, ids: &[CounterId]) -> Vec<Result<Served, NoAnswer>> {
        let read = self.read(ids).await;
        read.into_iter().map(|read| read.map(|served| self.judged(served))).collect()
    }

    /// The same as they arrived, for a caller that judges them when it answers.
    pub async fn read(&self, ids: &[CounterId]) -> Vec<Result<Served, NoAnswer>> {
        let (found, leads) = self.0.local.find(ids);
        self.0.layers.counters.local.increment(found.iter().filter(|found| found.is_kept()).count() as u64);
        self.begin(leads);
        join_all(found.into_iter().map(async |found| found.count().await.map(|kept| kept.served()))).await
    }

    /// The count of `id` as the table has it, judged now, and the whole counter.
    pub async fn detailed(&self, id: &CounterId) -> Result<(Served, Option<Counter>), NoAnswer> {
        let layers = &self.0.layers;
        let reading = layers.judge.reading();
        let counter = layers.table.read(layers.heard.of(layers.counts.counter(id))).await?;
        let served = layers.judge.arrived(&reading, id, counter.as_ref());
        Ok((self.judged(served), counter))
    }

    async fn kept(&self, id: &CounterId) -> Result<Arc<KeptCount>, NoAnswer> {
        if let Some(kept) = self.0.local.get(id, Instant::now()) {
            self.0.layers.counters.local.increment(1);
            return Ok(kept);
        }
        let (mut found, leads) = self.0.local.find(std::slice::from_ref(id));
        self.begin(leads);
        found.remove(0).count().await
    }

    /// Starts the reads this caller leads; dropping one fails its waiters.
    fn begin(&self, leads: Vec<ReadLead>) {
        if leads.is_empty() {
            return;
        }
        let mut reads = self.0.reads.lock();
        // A read that panicked has been logged by the panic hook, and its leads were dropped.
        while reads.try_join_next().is_some() {}
        if reads.len() < AT_ONCE {
            let layers = Arc::clone(&self.0.layers);
            reads.spawn(async move { layers.read(leads).await });
        } else {
            drop(reads);
            leads.into_iter().for_each(|lead| lead.finish(Err(NoAnswer::Busy)));
        }
    }

    fn judged(&self, served: Served) -> Served {
        self.0.layers.judge.judge(served)
    }
}
