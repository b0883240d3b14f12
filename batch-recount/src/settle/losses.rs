//! The losses that an audit repairs.

use std::collections::BTreeSet;

use tally_core::changes::{Body, LossNumber};

use super::Recount;

impl Recount {
    /// The losses that are open now.
    pub(super) async fn open_losses(&self) -> anyhow::Result<BTreeSet<LossNumber>> {
        let losses = self.calls.persist("read losses", || self.stores.changes.losses()).await?;
        self.read_items(1);
        Ok(losses.open().map(|(number, _)| number).collect())
    }

    /// Closes losses that were open when an audit began that has settled every row key: in every partition, behind the audit's
    /// corrections, and then in the table. Safe to repeat: a loss that is repaired never opens again. One that is repaired in
    /// some partitions alone is open in the table still, so the next audit closes it.
    pub(super) async fn close_losses(&self, losses: &BTreeSet<LossNumber>) -> anyhow::Result<()> {
        let open = self.open_losses().await?;
        for number in losses.intersection(&open) {
            for partition in 0..self.config.partitions {
                self.append(partition, Body::Repaired(*number)).await?;
            }
            let now = self.calls.clock().now();
            self.calls.persist("close a loss", || self.stores.changes.close_loss(*number, now)).await?;
            self.spent.wrote(1);
            tracing::info!(loss = number.0, "loss closed: every row key was proved or corrected");
            self.findings.gap_closed();
        }
        Ok(())
    }
}
