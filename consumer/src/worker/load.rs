//! Where a partition is read from: the fence first, then the log, then the position; patient with what is not up.

use std::future::Future;

use tally_core::fence::{self, Fence, Load, Log, Partition};
use tally_core::ports::Outcome;

use super::leave::Leave;
use super::{Cause, End, Halt, Worker};
use crate::metrics;

impl Worker {
    /// Loads the fence and positions the log at it.
    pub(super) async fn load(&self, leave: &Leave, cause: Cause) -> Result<Fence, End> {
        metrics::reloaded(cause.label());
        let fence = self.resume_point(leave).await?;
        let partitions = self.persist(leave, "partitions", || self.log.partitions()).await?;
        self.progress.spread_over(partitions);
        self.persist(leave, "start_at", || self.log.start_at(fence.offset)).await?;
        Ok(fence)
    }

    async fn resume_point(&self, leave: &Leave) -> Result<Fence, End> {
        let (rows, partition) = (&self.shared.rows, self.log.partition());
        loop {
            let stored = self.persist(leave, "fence", || rows.fence(partition)).await?;
            if let Some(fence) = &stored {
                // Before the log is asked: a partition that gets no further is behind all the same.
                self.progress.loaded(fence);
            }
            let log = self.persist(leave, "log", || self.log.log()).await?;
            if let Some((seen, told)) =
                stored.as_ref().and_then(|seen| Some((seen, told_since(seen, partition, &log)?)))
            {
                tracing::warn!(%partition, topic_id = %told.topic, "the broker tells topic ids now: the fence takes its");
                self.persist(leave, "reset_fence", || rows.reset_fence(partition, seen, &told)).await?;
                continue;
            }
            match fence::load(stored, &log) {
                Load::Create(fence) => {
                    tracing::info!(%partition, offset = %fence.offset, topic_id = %fence.topic, "creating the fence");
                    self.persist(leave, "create_fence", || rows.create_fence(partition, &fence)).await?;
                }
                Load::Resume(fence) => return Ok(fence),
                Load::Halt(alarm) => return Err(End::Halt(Halt::Alarm(alarm))),
            }
        }
    }

    /// What `attempt` yields once it succeeds, tried again for as long as its fault is worth it.
    async fn persist<T, Fut>(
        &self,
        leave: &Leave,
        call: &'static str,
        mut attempt: impl FnMut() -> Fut + Send,
    ) -> Result<T, End>
    where
        Fut: Future<Output = Outcome<T>> + Send,
    {
        let mut tries = 0u32;
        loop {
            let fault = match leave.unless_asked(attempt()).await? {
                Ok(result) => return Ok(result),
                Err(fault) if fault.is_retryable() => fault,
                Err(fault) => return Err(End::Halt(Halt::Refused(format!("{call}: {fault}")))),
            };
            metrics::retried(call, fault.class());
            tries = tries.saturating_add(1);
            if tries.is_power_of_two() {
                tracing::warn!(partition = %self.log.partition(), call, tries, error = %fault, "trying again");
            }
            leave.unless_asked(self.shared.host.clock().sleep(self.pause(tries - 1))).await?;
        }
    }
}

/// The fence with the topic's id, where it was written when the broker told none and the topic's name stood for it. The
/// other way round is an alarm: a broker that has told ids does not stop.
fn told_since(seen: &Fence, partition: &Partition, log: &Log) -> Option<Fence> {
    let named = |topic: &str| *topic == *partition.topic;
    let told = named(&seen.topic.0) && !named(&log.topic.0);
    told.then(|| Fence { topic: log.topic.clone(), ..seen.clone() })
}
