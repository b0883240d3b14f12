//! Dead letters under way: each is sent until the dead-letter topic has acknowledged it, however long that takes.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tally_core::event::Rejection;
use tally_core::fence::Offset;
use tally_core::ports::log::Records;

use super::Worker;
use crate::{letter, metrics};

/// The dead letters of one batch.
pub(super) struct Letters<'a> {
    worker: &'a Worker,
    under_way: FuturesUnordered<BoxFuture<'a, Offset>>,
}

impl<'a> Letters<'a> {
    pub(super) fn new(worker: &'a Worker) -> Self {
        Self { worker, under_way: FuturesUnordered::new() }
    }

    /// Begins to send the record at `offset` of `run`.
    pub(super) fn send(&mut self, run: Arc<Records>, offset: Offset, rejection: Rejection) {
        self.under_way.push(Box::pin(deliver(self.worker, run, offset, rejection)));
    }

    /// The next one that is acknowledged; pending while none is under way. Cancel safe.
    pub(super) async fn acknowledged(&mut self) -> Offset {
        match self.under_way.next().await {
            Some(offset) => offset,
            None => std::future::pending().await,
        }
    }
}

async fn deliver(worker: &Worker, run: Arc<Records>, offset: Offset, rejection: Rejection) -> Offset {
    let record = run.at(offset).expect("a rejected record is in the run it was read from");
    let (shared, partition) = (&worker.shared, worker.log.partition());
    let topic = &shared.settings.dead_letter_topic;
    let condition = format!("dead-letters-{}", partition.index);
    let mut tries = 0u32;
    loop {
        let fault = match letter::write(&*shared.producer, topic, partition, record, &rejection).await {
            Ok(_) => break,
            Err(fault) => fault,
        };
        metrics::dead_letter_refused(&fault);
        tries = tries.saturating_add(1);
        if tries.is_power_of_two() {
            tracing::warn!(%partition, %offset, topic, tries, error = %fault, "a dead letter is not acknowledged");
        }
        shared.host.readiness().not_ready(&condition, format!("`{topic}` takes no dead letters: {fault}"));
        shared.host.clock().sleep(worker.pause(tries - 1)).await;
    }
    if tries > 0 {
        shared.host.readiness().forget(&condition);
    }
    metrics::records("rejected", 1);
    metrics::dead_letter(rejection.reason());
    tracing::debug!(%partition, %offset, reason = rejection.reason(), "dead letter: {rejection}");
    offset
}
