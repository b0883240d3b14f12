//! The machine's requests as calls of the ports, each answered by one input.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tally_core::consume::{Effect, Input, Replacing, Transaction};
use tally_core::ports::OwnedPartition;
use tracing::{Instrument, Span};

use super::Shared;

/// What requests are made of.
pub(super) struct Requests {
    pub(super) log: Arc<dyn OwnedPartition>,
    pub(super) shared: Arc<Shared>,
}

impl Requests {
    /// Begins `request`, inside `span`.
    pub(super) fn begin(&self, request: Effect, span: &Span) -> BoxFuture<'static, Input> {
        let (log, shared) = (Arc::clone(&self.log), Arc::clone(&self.shared));
        match request {
            Effect::Commit(transaction) => Box::pin(commit(log, shared, transaction).instrument(span.clone())),
            Effect::BackOff { lane, attempt } => Box::pin(async move {
                shared.host.clock().sleep(shared.pause(attempt)).await;
                Input::Waited(lane)
            }),
            request => Box::pin(load(log, shared, request)),
        }
    }
}

/// Safe to repeat: the transaction carries the fence's condition.
async fn commit(log: Arc<dyn OwnedPartition>, shared: Arc<Shared>, transaction: Transaction) -> Input {
    let _permit = shared.permits.acquire().await.expect("the semaphore is never closed");
    let changes = transaction.changes();
    Input::Committed(transaction.lane(), shared.rows.commit(log.partition(), &transaction.advance, &changes).await)
}

/// The requests of a load, and the wait before the next one. Each is safe to repeat.
async fn load(log: Arc<dyn OwnedPartition>, shared: Arc<Shared>, request: Effect) -> Input {
    let (rows, partition) = (&shared.rows, log.partition());
    match request {
        Effect::ReadFence => Input::Fence(rows.lanes(partition).await),
        Effect::ReadLog => Input::Log(log.log().await),
        Effect::RecallPartitions(partitions) => Input::FirstSeen(rows.first_seen(&partition.topic, partitions).await),
        Effect::CreateFence(fence) => {
            tracing::info!(%partition, offset = %fence.offset, topic_id = %fence.topic, "creating the fence");
            Input::FenceStored(rows.create_fence(partition, &fence).await)
        }
        Effect::ReplaceFences { seen, by, why } => {
            match why {
                Replacing::TopicNamed => {
                    tracing::warn!(%partition, topic_id = %by.topic(), "the broker tells topic ids now: the fence takes its");
                }
                Replacing::Definitions => {
                    tracing::info!(%partition, counters = by.terms().defs, "more counters are defined: the fence states them");
                }
                Replacing::Lanes => {
                    tracing::info!(%partition, lanes = %by.lanes(), at = %by.least().offset, "changing the number of lanes");
                }
            }
            Input::FenceStored(rows.replace_fences(partition, &seen, &by).await.map(drop))
        }
        Effect::ReadDefinitions => Input::Definitions(shared.deployment.definitions().await),
        Effect::ReadCells { lane, counters } => Input::Cells(lane, rows.cells(partition, &counters).await),
        Effect::ReadAnnounced => Input::Announced(shared.maps.announced().await),
        Effect::ReadMaps { lane, counters } => {
            let maps = shared.maps.maps(&counters).await;
            Input::Maps(lane, maps.map(|maps| counters.into_iter().zip(maps).collect()))
        }
        Effect::Locate { lane, sought } => Input::Located(lane, shared.maps.locate(&sought).await),
        Effect::CountPartitions => Input::Partitions(log.partitions().await),
        Effect::StartAt(offset) => Input::Started(log.start_at(offset).await),
        Effect::Rest(span) => {
            shared.host.clock().sleep(span).await;
            Input::Waited(None)
        }
        other => unreachable!("{other:?} is no request"),
    }
}
