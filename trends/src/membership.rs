//! The task that is a member of the group: it polls Kafka and does nothing else, and spawns a worker for each partition that is
//! assigned.

use std::sync::Arc;

use anyhow::bail;
use tally_adapters::kafka::GroupHealth;
use tally_core::ports::log::Rebalance;
use tally_core::ports::{Intake, OwnedPartition};
use tally_service::{Stage, Stop, Task};

use crate::metrics;
use crate::worker::{Shared, Worker};

pub(crate) struct Membership {
    pub(crate) intake: Box<dyn Intake>,
    pub(crate) shared: Arc<Shared>,
}

impl Membership {
    fn begin(&self, log: Arc<dyn OwnedPartition>) {
        let name = format!("partition-{}", log.partition().index);
        self.shared.host.worker(Stage::Intake, &name, Worker { log, shared: Arc::clone(&self.shared) });
    }
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
                Ok(Rebalance::Assigned(partitions)) => {
                    health.joined();
                    let indices: Vec<u32> = partitions.iter().map(|owned| owned.partition().index).collect();
                    tracing::info!(partitions = ?indices, "assigned");
                    partitions.into_iter().for_each(|partition| self.begin(partition));
                }
                Ok(Rebalance::Revoked(why, partitions)) => {
                    let partitions: Vec<u32> = partitions.iter().map(|partition| partition.index).collect();
                    tracing::info!(?partitions, why = why.label(), "asked back");
                }
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
