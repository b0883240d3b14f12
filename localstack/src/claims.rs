//! Follows the claims: how far the rows have come in each partition, for the gate and for the choice of partitions of sums.

use std::sync::Arc;
use std::time::Duration;

use tally_service::{Stop, Task};

use crate::engine::TOPIC;
use crate::local::Local;

/// How often they are read: twice as often as they are stored.
const EVERY: Duration = Duration::from_millis(500);

pub(crate) struct FollowClaims(pub(crate) Arc<Local>);

impl FollowClaims {
    async fn look(&self) {
        // Where they cannot be read now, writers wait until the next look.
        let Ok(claims) = self.0.engines.store.claims.all(TOPIC, self.0.gate.partitions()).await else { return };
        for (index, claim) in (0..).zip(claims) {
            if let Some(kept) = claim.kept {
                self.0.gate.passed(index, kept.safe);
            }
        }
        self.0.sums.seen(TOPIC, &self.0.gate.lags());
    }
}

impl Task for FollowClaims {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        while stop.unless_requested(self.look()).await.is_ok() {
            stop.unless_requested(self.0.clock.sleep(EVERY)).await?;
        }
        Ok(())
    }
}
