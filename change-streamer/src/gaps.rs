//! Recording a loss of stream: durably, and some time before anything behind it is applied.

use std::sync::Arc;

use tally_core::lineage::{HOLD, Loss};
use tally_core::ports::Checkpoints;
use tally_service::{Patience, Until};

use crate::metrics;
use crate::view::View;

/// Where losses are recorded. Clones are the same.
#[derive(Clone)]
pub(crate) struct Gaps {
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) view: View,
    pub(crate) patience: Patience,
}

impl Gaps {
    /// Returns once the gap is open and an audit queued. Safe to repeat: the same loss is one gap.
    ///
    /// # Errors
    /// A store that will not take it; [`Stopped`](tally_service::Stopped).
    pub(crate) async fn record(&self, loss: &Loss, until: Until<'_>) -> anyhow::Result<()> {
        tracing::error!(kind = loss.kind(), "stream lost, counts are not exact until an audit has passed: {loss}");
        metrics::lost(loss);
        self.view.lost();
        let open = || self.checkpoints.open_gap(loss, self.patience.clock().now());
        self.patience.persist("record a loss of stream", until, open).await?;
        Ok(())
    }

    /// Records the gap and returns once what lies behind the loss may be applied.
    ///
    /// # Errors
    /// Those of [`record`](Self::record).
    pub(crate) async fn hold(&self, loss: &Loss, until: Until<'_>) -> anyhow::Result<()> {
        self.record(loss, until).await?;
        Ok(until.unless_over(self.patience.clock().sleep(HOLD)).await?)
    }
}
