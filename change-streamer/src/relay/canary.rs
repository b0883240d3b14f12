//! Writes canaries while nothing else of the table shows how late its stream is.

use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::changes::Changes;
use tally_core::relay::Canary;
use tally_service::{Chance, Clock, Stop, Task};

use super::lateness::Lateness;

/// The wait between two.
const EVERY: Duration = Duration::from_secs(1);
/// Rows that were written so lately show it as well, to the second.
const RECENT: Duration = Duration::from_millis(1500);
/// How many rows are written while none is known that a reader of this process reads.
const TRIES: usize = 4;

/// The task.
pub(super) struct Canaries {
    pub(super) store: Arc<Changes>,
    pub(super) lateness: Lateness,
    pub(super) clock: Clock,
    pub(super) chance: Chance,
}

impl Canaries {
    async fn write(&self) {
        let at = self.clock.now();
        if !self.lateness.is_reading(at) || at.since(self.lateness.newest_row()) <= RECENT {
            return;
        }
        let known = self.lateness.canary(at);
        let rows = known.map_or_else(
            || (0..TRIES).map(|_| u16::try_from(self.chance.token() % u64::from(Canary::ROWS)).unwrap_or(0)).collect(),
            |row| vec![row],
        );
        let writes = rows.into_iter().map(|row| self.store.write_canary(Canary { row, at }));
        for outcome in futures_util::future::join_all(writes).await {
            if let Err(fault) = outcome {
                tracing::warn!(%fault, "a canary was not written: without one, nothing is claimed of an idle table");
            }
        }
    }
}

impl Task for Canaries {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let next = async || {
            self.write().await;
            self.clock.sleep(EVERY).await;
        };
        while stop.unless_requested(next()).await.is_ok() {}
        Ok(())
    }
}
