//! What only an audit puts an end to: losses that are open, and the request for one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tally_adapters::dynamodb::claims::Claims;
use tally_core::changes::{Body, LossNumber};
use tally_core::register::Replay;
use tally_core::time::UnixMillis;

use super::Recount;

/// Why an audit is due.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Due {
    /// The losses that an audit closes which begins now.
    losses: BTreeSet<LossNumber>,
    /// When an audit was asked for last.
    asked: Option<UnixMillis>,
}

impl Due {
    /// Nothing asks for an audit.
    pub(crate) fn is_empty(&self) -> bool {
        self.losses.is_empty() && self.asked.is_none()
    }
}

impl Recount {
    /// Why an audit is due now.
    pub(crate) async fn due(&self) -> anyhow::Result<Due> {
        let losses = self.due_losses().await?;
        let asked = self.calls.persist("read the queued audit", || self.ports.recounts.audit_queued()).await?;
        self.calls.read_items(1);
        Ok(Due { losses, asked })
    }

    /// The open losses, but for those of replays that have not passed: rows that were removed long ago may still come back.
    async fn due_losses(&self) -> anyhow::Result<BTreeSet<LossNumber>> {
        let losses = self.calls.persist("read losses", || self.ports.changes.losses()).await?;
        self.calls.read_items(1);
        let mut due = BTreeSet::new();
        for (number, loss) in losses.open() {
            let replay = (loss.kind == Replay::LOSS).then(|| loss.what.parse::<Replay>().ok()).flatten();
            let goes_on = match &replay {
                Some(replay) => self.goes_on(replay).await?,
                None => false,
            };
            due.extend((!goes_on).then_some(number));
        }
        Ok(due)
    }

    async fn goes_on(&self, replay: &Replay) -> anyhow::Result<bool> {
        let claims = Claims::new(&self.ports.tables, self.calls.clock());
        let claim = self.calls.persist("read a claim", || claims.read(&replay.partition)).await?;
        self.calls.read_items(1);
        Ok(replay.goes_on(claim.kept.as_ref()))
    }

    /// An audit that began when this was due has settled every row key. Safe to repeat, as both ends are.
    pub(super) async fn is_done(&self, due: &Due) -> anyhow::Result<()> {
        self.close_losses(&due.losses).await?;
        let Some(asked) = due.asked else { return Ok(()) };
        self.calls.persist("take the audit off the queue", || self.ports.recounts.audit_done(asked)).await
    }

    /// The losses that are open now.
    pub(super) async fn open_losses(&self) -> anyhow::Result<BTreeSet<LossNumber>> {
        let losses = self.calls.persist("read losses", || self.ports.changes.losses()).await?;
        self.calls.read_items(1);
        Ok(losses.open().map(|(number, _)| number).collect())
    }

    /// Closes losses that were open when an audit began that has settled every row key: in every partition, behind the audit's
    /// corrections, and then in the table. Safe to repeat: a loss that is repaired never opens again. One that is repaired in
    /// some partitions alone is open in the table still, so the next audit closes it.
    async fn close_losses(&self, losses: &BTreeSet<LossNumber>) -> anyhow::Result<()> {
        let open = self.open_losses().await?;
        for number in losses.intersection(&open) {
            for partition in 0..self.config.partitions {
                self.append(partition, Body::Repaired(*number)).await?;
            }
            let now = self.calls.now();
            self.calls.persist("close a loss", || self.ports.changes.close_loss(*number, now)).await?;
            self.calls.wrote(1);
            tracing::info!(loss = number.0, "loss closed: every row key was proved or corrected");
            self.findings.loss_closed();
        }
        Ok(())
    }
}
