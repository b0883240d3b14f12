//! The task that is a member of the group.

use std::sync::Arc;

use anyhow::bail;
use tally_core::fault::Fault;
use tally_core::ports::log::Rebalance;
use tally_core::ports::{Intake, OwnedPartition};
use tally_service::{Readiness, Stop, Task};

use super::health::GroupHealth;

/// The task: it polls Kafka and does nothing else, so that a slow store cannot cost the membership.
pub struct Membership {
    pub intake: Box<dyn Intake>,
    pub readiness: Readiness,
    /// Begins to work on a partition that is assigned, in a task of its own.
    pub begin: Box<dyn Fn(Arc<dyn OwnedPartition>) + Send>,
    /// Told of each rebalance.
    pub on_rebalance: fn(&Rebalance),
    /// Told of each error.
    pub on_fault: fn(&Fault),
}

impl Membership {
    /// # Errors
    /// The group is another deployment's, too.
    fn rebalanced(&self, rebalance: Rebalance, health: &mut GroupHealth) -> anyhow::Result<()> {
        (self.on_rebalance)(&rebalance);
        match rebalance {
            Rebalance::Assigned(partitions) => {
                let indices: Vec<u32> = partitions.iter().map(|owned| owned.partition().index).collect();
                tracing::info!(partitions = ?indices, "assigned");
                health.joined();
                partitions.into_iter().for_each(&self.begin);
            }
            Rebalance::Revoked(revocation, partitions) => {
                let partitions: Vec<u32> = partitions.iter().map(|partition| partition.index).collect();
                tracing::info!(?partitions, why = revocation.label(), "asked back");
            }
            Rebalance::Foreign(why) => bail!("cannot use kafka: {why}"),
        }
        Ok(())
    }
}

impl Task for Membership {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let mut health = GroupHealth::new(&self.readiness, self.on_fault);
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
