//! What the stream's checkpoints say, read at most once a second for everybody who asks.

use std::sync::Arc;
use std::time::Duration;

use tally_core::recount::Horizon;
use tally_core::time::UnixMillis;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::tools::Tools;

/// How old a view may be.
const AGE: Duration = Duration::from_secs(1);

/// One look at the checkpoints.
#[derive(Debug)]
pub(super) struct View {
    /// What every counter was sure to have.
    pub(super) horizon: Horizon,
    /// The least `at` over the open stream shards.
    pub(super) as_of: Option<UnixMillis>,
    taken: Instant,
}

/// The latest look, shared.
pub(super) struct Views {
    tools: Tools,
    latest: Mutex<Option<Arc<View>>>,
}

impl Views {
    pub(super) fn new(tools: Tools) -> Self {
        Self { tools, latest: Mutex::default() }
    }

    /// A look at most a second old: an older horizon proves less, never too much.
    pub(super) async fn recent(&self) -> anyhow::Result<Arc<View>> {
        let mut latest = self.latest.lock().await;
        if let Some(view) = latest.as_ref().filter(|view| view.taken.elapsed() < AGE) {
            return Ok(Arc::clone(view));
        }
        let taken = Instant::now();
        let lineage = self.tools.lineage().await?;
        let view = Arc::new(View { horizon: Horizon::of(&lineage), as_of: lineage.as_of(), taken });
        *latest = Some(Arc::clone(&view));
        Ok(view)
    }

    /// Waits until every open stream shard came past `time`, so that whatever was written before is in the counters; what
    /// the slowest came to. Without a streamer this does not end, but it is said why.
    pub(super) async fn past(&self, time: UnixMillis) -> anyhow::Result<UnixMillis> {
        let passed = time.plus(self.tools.rules.guard);
        let mut said = Instant::now();
        loop {
            let as_of = self.recent().await?.as_of;
            if let Some(as_of) = as_of.filter(|as_of| *as_of > passed) {
                return Ok(as_of);
            }
            if said.elapsed() >= self.tools.rules.passing {
                tracing::warn!(?as_of, "waiting for the change-streamer: nothing can be proved until it has caught up");
                said = Instant::now();
            }
            self.tools.wait(AGE / 2).await?;
        }
    }
}
