//! Recording a loss of stream: durably, before anybody reads on.

use std::sync::Arc;

use tally_core::lineage::Loss;
use tally_core::ports::Checkpoints;
use tally_service::{Patience, Stop, Until};

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
    /// Returns once the gap is open and an audit queued, which repeating cannot harm.
    ///
    /// # Errors
    /// A store that will not take it; [`Stopped`](tally_service::Stopped) at the last call.
    pub(crate) async fn open(&self, loss: &Loss, stop: &Stop) -> anyhow::Result<()> {
        tracing::error!(kind = loss.kind(), "stream lost, counts are not exact until an audit has passed: {loss}");
        metrics::lost(loss);
        self.view.lost();
        let open = || self.checkpoints.open_gap(loss, self.patience.clock().now());
        self.patience.persist("record a loss of stream", Until::LastCall(stop), open).await?;
        Ok(())
    }
}
