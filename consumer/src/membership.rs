//! The task that is a member of the group: it polls Kafka and does nothing else, so that no store can make the group
//! give us up, and it spawns a worker for each partition that becomes ours.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tally_core::fault::Fault;
use tally_core::ports::log::Rebalance;
use tally_core::ports::{Intake, OwnedPartition};
use tally_service::{Stage, Stop, Task};
use tokio::time::Instant;

use crate::lag::Board;
use crate::metrics;
use crate::worker::{Shared, Worker};

/// The readiness condition: whether the group has had us in a rebalance.
const CONDITION: &str = "kafka";

/// How often an error that goes on is logged.
const REMINDER: Duration = Duration::from_secs(10);

pub(crate) struct Membership {
    pub(crate) intake: Box<dyn Intake>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) board: Board,
}

impl Membership {
    fn rebalanced(&self, rebalance: Rebalance) {
        match rebalance {
            Rebalance::Assigned(partitions) => {
                metrics::assigned(partitions.len());
                tracing::info!(partitions = ?indices(&partitions), "assigned");
                self.shared.host.readiness().ready(CONDITION);
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
        let readiness = self.shared.host.readiness().clone();
        readiness.not_ready(CONDITION, "waiting for an assignment");
        let mut joined = false;
        let mut logged: Option<Instant> = None;
        while let Ok(rebalance) = stop.unless_requested(self.intake.rebalance()).await {
            match rebalance {
                Ok(rebalance) => {
                    joined = true;
                    self.rebalanced(rebalance);
                }
                Err(fault @ (Fault::Fatal(_) | Fault::Poison(_))) => bail!("cannot use kafka: {fault}"),
                Err(fault) => {
                    metrics::kafka_error(&fault);
                    if !joined {
                        readiness.not_ready(CONDITION, format!("waiting: {fault}"));
                    }
                    if logged.is_none_or(|at| at.elapsed() >= REMINDER) {
                        tracing::warn!(dependency = "kafka", error = %fault, "waiting for dependency");
                        logged = Some(Instant::now());
                    }
                }
            }
        }
        self.intake.leave().await;
        Ok(())
    }
}
