//! The member of the group that reads the log: it polls Kafka and does nothing else, and starts a fold for each partition.

use std::sync::Arc;

use anyhow::bail;
use tally_adapters::kafka::GroupHealth;
use tally_core::ports::Intake;
use tally_core::ports::log::Rebalance;
use tally_service::{Host, Patience, Stage, Stop, Task};

use super::Folding;
use super::partition::PartitionFold;

pub(super) struct Member {
    pub(super) intake: Box<dyn Intake>,
    pub(super) folding: Arc<Folding>,
    pub(super) host: Host,
    pub(super) patience: Patience,
}

impl Task for Member {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let mut health = GroupHealth::new(self.host.readiness(), |_| {});
        loop {
            let next = tokio::select! {
                biased;
                () = stop.requested() => break,
                next = self.intake.next() => next,
                () = health.refusal_passed() => {
                    health.joined();
                    continue;
                }
            };
            match next {
                Ok(Rebalance::Assigned(partitions)) => {
                    health.joined();
                    for log in partitions {
                        let name = format!("fold {}", log.partition());
                        let (folding, readiness) = (Arc::clone(&self.folding), self.host.readiness());
                        let fold = PartitionFold::new(folding, log, self.patience.clone(), readiness);
                        self.host.worker(Stage::Work, &name, fold);
                    }
                }
                Ok(Rebalance::Revoked(..)) => {}
                Ok(Rebalance::Foreign(why)) => bail!("cannot use kafka: {why}"),
                Err(fault) => health.failed(&fault)?,
            }
        }
        if stop.until_last_call(self.intake.leave()).await.is_err() {
            tracing::warn!("the group was not left in time: it expels this member by itself");
        }
        Ok(())
    }
}
