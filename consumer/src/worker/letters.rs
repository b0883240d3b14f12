//! Dead letters under way: sends each and reports what became of it. Whether one is sent again is decided in core.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tally_core::consume::{Input, Letter, Note};
use tally_core::fence::Partition;

use super::Shared;
use crate::letter::{Stored, Writer};
use crate::metrics;

/// The dead letters of one partition.
pub(super) struct Letters {
    shared: Arc<Shared>,
    partition: Partition,
    under_way: FuturesUnordered<BoxFuture<'static, Input>>,
}

impl Letters {
    pub(super) fn new(partition: &Partition, shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), partition: partition.clone(), under_way: FuturesUnordered::new() }
    }

    /// Begins to send `letter`, which was refused `tries` times.
    pub(super) fn send(&mut self, letter: Arc<Letter>, tries: u32) {
        self.under_way.push(Box::pin(deliver(Arc::clone(&self.shared), self.partition.clone(), letter, tries)));
    }

    /// What became of the next one; pending while none is under way. Cancel safe.
    pub(super) async fn next(&mut self) -> Input {
        match self.under_way.next().await {
            Some(input) => input,
            None => std::future::pending().await,
        }
    }

    /// Where the fence is read again, those under way are dropped: their records are read again unless the fence has
    /// passed them.
    pub(super) fn heed(&mut self, note: &Note) {
        if matches!(note, Note::Loading(_)) {
            self.under_way.clear();
            self.shared.host.readiness().forget(&condition(&self.partition));
        }
    }
}

impl Drop for Letters {
    fn drop(&mut self) {
        // A partition that is given back says nothing about the dead-letter topic any more.
        self.shared.host.readiness().forget(&condition(&self.partition));
    }
}

/// The name under which readiness knows the dead letters of a partition.
fn condition(partition: &Partition) -> String {
    format!("dead-letters-{}", partition.index)
}

async fn deliver(shared: Arc<Shared>, partition: Partition, letter: Arc<Letter>, tries: u32) -> Input {
    if let Some(attempt) = tries.checked_sub(1) {
        shared.host.clock().sleep(shared.pause(attempt)).await;
    }
    let (topic, readiness) = (&shared.settings.dead_letter_topic, shared.host.readiness());
    let (offset, rejection) = (letter.offset, &letter.rejection);
    let writer = Writer { producer: &*shared.producer, topic, deployment: shared.name.as_deref() };
    match writer.write(&partition, letter.record(), rejection).await {
        Ok(stored) => {
            if let Stored::Cut(why) = stored {
                let bytes = letter.record().value.map_or(0, <[u8]>::len);
                tracing::warn!(%partition, %offset, topic, bytes, why, "the dead letter has a part of the record alone");
            }
            // Also where another letter was refused: the topic takes dead letters.
            readiness.forget(&condition(&partition));
            metrics::records("rejected", 1);
            metrics::dead_letter(rejection.reason());
            tracing::debug!(%partition, %offset, reason = rejection.reason(), "dead letter: {rejection}");
            Input::LetterStored(letter)
        }
        Err(fault) => {
            metrics::dead_letter_refused(&fault);
            let tries = tries.saturating_add(1);
            if tries.is_power_of_two() {
                tracing::warn!(%partition, %offset, topic, tries, error = %fault, "a dead letter is not acknowledged");
            }
            readiness.not_ready(&condition(&partition), format!("`{topic}` takes no dead letters: {fault}"));
            Input::LetterRefused(letter)
        }
    }
}
