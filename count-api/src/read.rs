//! A count, from the nearest layer that has it: this process's memory, or one read of what stands behind it, which
//! everybody who asks meanwhile waits for and nobody who leaves can end.

mod breaker;
mod cache;
mod layers;
mod local;
mod negative;
mod standing;
mod table;

use std::sync::Arc;

use futures_util::future::join_all;
use tally_core::ids::CounterId;
use tally_core::served::Served;
use tally_service::{Stop, Task};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use cache::{Filler, Fills, Layer};
pub use layers::Layered;
pub use local::{Kept, Local};
pub use negative::{Negatives, Recounter};
pub use standing::{FollowStanding, Source, Standing, View};
pub use table::{Bounds, Table};

use local::{Found, Led};

use crate::count::Shown;
use crate::error::{Cause, Problem};

/// Reads that may wait for their beginning.
const WAITING: usize = 1_024;

/// Reads under way at once: those the table is not given wait for it a moment, and are refused.
const AT_ONCE: usize = 4_096;

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
pub struct Reader(Arc<Near>);

/// What a reader has at hand.
struct Near {
    local: Local,
    layered: Arc<Layered>,
    begin: mpsc::Sender<Vec<Led>>,
}

/// The task that does the reads: a client that leaves ends its waiting, not the read.
pub struct Readings {
    layered: Arc<Layered>,
    begun: mpsc::Receiver<Vec<Led>>,
}

impl Reader {
    /// A reader of `layered` that keeps in `local` what it read, and the task that reads.
    pub fn new(local: Local, layered: Layered) -> (Self, Readings) {
        let (begin, begun) = mpsc::channel(WAITING);
        let layered = Arc::new(layered);
        (Self(Arc::new(Near { local, layered: Arc::clone(&layered), begin })), Readings { layered, begun })
    }

    /// The count of `id`. However many ask at once, one of them has it read.
    pub async fn count(&self, id: &CounterId) -> Result<Served, NoAnswer> {
        self.kept(id).await.map(|kept| self.judged(&kept))
    }

    /// The count of `id` as it is sent.
    pub async fn shown(&self, id: &CounterId) -> Result<Shown, NoAnswer> {
        self.kept(id).await.map(|kept| kept.shown(id, &self.judged(&kept)))
    }

    /// The count of `id` as it is sent, if it is in memory `now` and was sent like that before.
    pub fn at_hand(&self, id: &CounterId, now: Instant) -> Option<Shown> {
        let kept = self.0.local.get(id, now)?;
        let shown = kept.at_hand(&self.judged(&kept))?;
        self.0.layered.layers.local.increment(1);
        Some(shown)
    }

    /// The counts of `ids`, in their order: what is not in memory and not being read is read at once.
    pub async fn counts(&self, ids: &[CounterId]) -> Vec<Result<Served, NoAnswer>> {
        let (found, led) = self.0.local.find(ids);
        self.begin(led);
        let kept = join_all(found.into_iter().map(|found| self.arrived(found))).await;
        kept.into_iter().map(|kept| kept.map(|kept| self.judged(&kept))).collect()
    }

    async fn kept(&self, id: &CounterId) -> Result<Arc<Kept>, NoAnswer> {
        if let Some(kept) = self.0.local.get(id, Instant::now()) {
            self.0.layered.layers.local.increment(1);
            return Ok(kept);
        }
        let (mut found, led) = self.0.local.find(std::slice::from_ref(id));
        self.begin(led);
        self.arrived(found.remove(0)).await
    }

    /// Has those read that it is for us to read. Where that cannot be, dropping them tells everybody.
    fn begin(&self, led: Vec<Led>) {
        if led.is_empty() {
            return;
        }
        match self.0.begin.try_send(led) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(led)) => {
                led.into_iter().for_each(|led| led.land(Err(NoAnswer::Busy)));
            }
            Err(mpsc::error::TrySendError::Closed(led)) => drop(led),
        }
    }

    async fn arrived(&self, found: Found) -> Result<Arc<Kept>, NoAnswer> {
        match found {
            Found::Kept(kept) => {
                self.0.layered.layers.local.increment(1);
                Ok(kept)
            }
            Found::Flight(flight) => flight.landed().await,
        }
    }

    fn judged(&self, kept: &Kept) -> Served {
        self.0.layered.standing.now().judge(kept.served())
    }
}

impl Task for Readings {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        // Dropped with this task, and the reads with it: by then nobody waits for any.
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                // A read that panicked has said so, and given itself up.
                Some(_) = under_way.join_next() => {}
                Some(led) = self.begun.recv(), if under_way.len() < AT_ONCE => {
                    under_way.spawn(read(Arc::clone(&self.layered), led));
                }
            }
        }
    }
}

async fn read(layered: Arc<Layered>, led: Vec<Led>) {
    let ids: Vec<CounterId> = led.iter().map(|led| led.id.clone()).collect();
    let read = layered.read(&ids).await;
    led.into_iter().zip(read).for_each(|(led, read)| led.land(read));
}
