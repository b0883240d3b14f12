//! The task that is a member of the group: it polls Kafka and does nothing else, so that no store can make the group
//! give us up, and it spawns a worker for each partition that becomes ours.

mod standing;

use std::sync::Arc;

use tally_core::ports::log::Rebalance;
use tally_core::ports::{Intake, OwnedPartition};
use tally_service::{Stage, Stop, Task};

use self::standing::Standing;
use crate::lag::Board;
use crate::metrics;
use crate::worker::{Shared, Worker};

pub(crate) struct Membership {
    pub(crate) intake: Box<dyn Intake>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) board: Board,
}

impl Membership {
    fn rebalanced(&self, rebalance: Rebalance, standing: &mut Standing) {
        match rebalance {
            Rebalance::Assigned(partitions) => {
                metrics::assigned(partitions.len());
                tracing::info!(partitions = ?indices(&partitions), "assigned");
                standing.welcome();
                partitions.into_iter().for_each(|partition| self.employ(partition));
            }
            Rebalance::Ended(over, partitions) => {
                metrics::ended(over, partitions.len());
                let partitions: Vec<u32> = partitions.iter().map(|partition| partition.index).collect();
                tracing::info!(?partitions, why = over.label(), "asked back");
            }
        }
    }

    fn employ(&self, partition: Arc<dyn OwnedPartition>) {
        let progress = self.board.enter(&partition);
        let name = format!("partition-{}", partition.partition().index);
        let worker = Worker::new(partition, Arc::clone(&self.shared), progress);
        self.shared.host.worker(Stage::Intake, &name, worker);
    }
}

fn indices(partitions: &[Arc<dyn OwnedPartition>]) -> Vec<u32> {
    partitions.iter().map(|partition| partition.partition().index).collect()
}

impl Task for Membership {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let mut standing = Standing::new(self.shared.host.readiness());
        loop {
            let rebalance = tokio::select! {
                biased;
                () = stop.requested() => break,
                rebalance = self.intake.rebalance() => rebalance,
                () = standing.forgiven() => {
                    standing.welcome();
                    continue;
                }
            };
            match rebalance {
                Ok(rebalance) => self.rebalanced(rebalance, &mut standing),
                Err(fault) => standing.failed(&fault)?,
            }
        }
        if stop.until_last_call(self.intake.leave()).await.is_err() {
            tracing::warn!("the group was not left in time: it gives us up by itself");
        }
        Ok(())
    }
}
