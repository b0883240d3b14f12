//! Writes dead letters, for records that cannot be applied: sends each until Kafka acknowledges it, and only then
//! counts its record as finished.

use std::sync::Arc;
use std::time::Duration;

use tally_core::event::Rejection;
use tally_core::ports::log::Records;
use tally_core::topic::{Offset, Partition};

use super::{DEAD_LETTERS, Held, Shared, condition};
use crate::letter::Writer;
use crate::metrics;

/// How many dead letters may be under way before no further record is taken.
const MOST: usize = 1_000;

/// How often the log names a row that the store refused.
const WARN_EVERY: Duration = Duration::from_secs(60);

impl Held {
    /// Sends the dead letter of the record at `offset`, which the progress waits for.
    pub(super) fn put_aside(&mut self, offset: Offset, records: Arc<Records>, rejection: Rejection) {
        let (shared, partition) = (Arc::clone(&self.shared), self.log.partition().clone());
        self.letters += 1;
        let work = async move { deliver(&shared, &partition, offset, &records, &rejection).await };
        self.begin(work, move |held, ()| {
            held.letters -= 1;
            held.rejected += 1;
            held.acknowledged(offset);
            held.progress.finish(offset);
            None
        });
    }

    pub(super) fn may_put_aside(&self) -> bool {
        self.letters < MOST
    }
}

async fn deliver(shared: &Shared, partition: &Partition, offset: Offset, records: &Records, rejection: &Rejection) {
    let (topic, readiness) = (&shared.settings.topics.letters(), shared.host.readiness());
    let record = records.at(offset).expect("a letter is made with the records that its record was read with");
    let writer = Writer { producer: &*shared.producer, topic, deployment: shared.name.as_deref() };
    for tries in 1_u32.. {
        match writer.write(partition, record, rejection).await {
            Ok(cut) => {
                if let Some(why) = cut {
                    let bytes = record.value.map_or(0, <[u8]>::len);
                    tracing::warn!(%partition, %offset, topic, bytes, why, "the dead letter has a part of the record alone");
                }
                // The topic takes dead letters, even if it has refused another one.
                readiness.forget(&condition(DEAD_LETTERS, partition));
                metrics::RECORDS.counter(&["rejected"]).increment(1);
                metrics::DEAD_LETTERS.counter(&[rejection.reason()]).increment(1);
                // Other reasons are a producer's doing, and the dead-letter topic names each. A row that is damaged or full
                // is for an operator to mend.
                if matches!(rejection, Rejection::RefusedByStore(_)) && shared.refused.is_due(WARN_EVERY) {
                    tracing::warn!(%partition, %offset, topic, "a dead letter, further ones are only counted: {rejection}");
                }
                tracing::debug!(%partition, %offset, reason = rejection.reason(), "dead letter: {rejection}");
                return;
            }
            Err(fault) => {
                metrics::DEAD_LETTER_RETRIES.counter(&[fault.class()]).increment(1);
                if tries.is_power_of_two() {
                    tracing::warn!(%partition, %offset, topic, tries, error = %fault, "a dead letter is not acknowledged");
                }
                readiness.not_ready(
                    &condition(DEAD_LETTERS, partition),
                    format!("`{topic}` takes no dead letters: {fault}"),
                );
            }
        }
        shared.host.clock().sleep(shared.pause(tries - 1)).await;
    }
}
