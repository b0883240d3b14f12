//! The task that is a member of the group: it polls Kafka and does nothing else, so that a slow store cannot cost the
//! membership, and it spawns a worker for each partition that is assigned.

use std::sync::Arc;

use anyhow::bail;
use tally_adapters::kafka::GroupHealth;
use tally_core::ports::log::Rebalance;
use tally_core::ports::{Intake, OwnedPartition};
use tally_service::{Stage, Stop, Task};

use crate::metrics;
use crate::partition::{Shared, Worker};

pub(crate) struct Membership {
    pub(crate) intake: Box<dyn Intake>,
    pub(crate) shared: Arc<Shared>,
}

impl Membership {
    /// # Errors
    /// The group is another deployment's, too.
    fn rebalanced(&self, rebalance: Rebalance, health: &mut GroupHealth) -> anyhow::Result<()> {
        match rebalance {
            Rebalance::Assigned(partitions) => {
                metrics::assigned(partitions.len());
                tracing::info!(partitions = ?indices(&partitions), "assigned");
                health.joined();
                partitions.into_iter().for_each(|partition| self.begin(partition));
            }
            Rebalance::Revoked(revocation, partitions) => {
                metrics::revoked(revocation, partitions.len());
                let partitions: Vec<u32> = partitions.iter().map(|partition| partition.index).collect();
                tracing::info!(?partitions, why = revocation.label(), "asked back");
            }
            Rebalance::Foreign(why) => bail!("cannot use kafka: {why}"),
        }
        Ok(())
    }

    fn begin(&self, partition: Arc<dyn OwnedPartition>) {
        let name = format!("partition-{}", partition.partition().index);
        let worker = Worker { log: partition, shared: Arc::clone(&self.shared) };
        self.shared.host.worker(Stage::Intake, &name, worker);
    }
}

fn indices(partitions: &[Arc<dyn OwnedPartition>]) -> Vec<u32> {
    partitions.iter().map(|partition| partition.partition().index).collect()
}

impl Task for Membership {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let mut health = GroupHealth::new(self.shared.host.readiness(), metrics::kafka_error);
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
                Ok(rebalance) => self.rebalanced(rebalance, &mut health)?,
                Err(fault) => health.failed(&fault)?,
            }
        }
        if stop.until_last_call(self.intake.leave()).await.is_err() {
            tracing::warn!("the group was not left in time: it expels this member by itself");
        }
        Ok(())
    }
}
