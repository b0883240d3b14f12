//! The task that follows a Kafka topic for the lists of what is trending (`tops.rs`). It reads the topic from its start
//! to its end, then looks for new records every 200 ms.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_core::ports::log::Records;
use tally_core::ports::{Outcome, TopicReader};
use tally_core::topic::{Log, Offset, Partition, TopicId};
use tally_service::{Clock, Stop, Task};

/// The wait between two looks at the topic.
const EVERY: Duration = Duration::from_millis(200);

/// The task that follows a topic.
pub(crate) struct Followed<F> {
    reader: Arc<dyn TopicReader>,
    clock: Clock,
    what: &'static str,
    /// Called with the records of each read, and after each look with no records and whether it reached the end.
    take: F,
    /// The next record of each partition.
    positions: BTreeMap<u32, (TopicId, Offset)>,
}

impl<F: FnMut(&Records, bool) + Send + 'static> Task for Followed<F> {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        let (what, mut is_missing) = (self.what, false);
        loop {
            let looked = stop.unless_requested(self.look()).await?;
            if looked == Ok(false) && !is_missing {
                tracing::warn!("the topic of --{what}-topic is not there: no list is answered before it is");
            }
            is_missing = looked == Ok(false) || (is_missing && looked.is_err());
            let is_whole = looked.unwrap_or_else(|fault| {
                tracing::debug!(error = %fault, "the topic of {what} cannot be read");
                false
            });
            (self.take)(&Records::default(), is_whole);
            if stop.unless_requested(self.clock.sleep(EVERY)).await.is_err() {
                return Ok(());
            }
        }
    }
}

impl<F: FnMut(&Records, bool)> Followed<F> {
    pub(crate) fn new(reader: Arc<dyn TopicReader>, clock: Clock, what: &'static str, take: F) -> Self {
        Self { reader, clock, what, take, positions: BTreeMap::new() }
    }

    /// Passes on new records, up to where the topic ended when this began. Returns whether the topic exists.
    async fn look(&mut self) -> Outcome<bool> {
        // Kafka has no logs of a topic that is not there, but an error.
        let logs = match self.reader.logs().await {
            Err(fault) if self.reader.exists().await? => return Err(fault),
            Err(_) => Vec::new(),
            Ok(logs) => logs,
        };
        for (partition, log) in &logs {
            self.read(partition, log).await?;
        }
        Ok(!logs.is_empty())
    }

    async fn read(&mut self, partition: &Partition, log: &Log) -> Outcome<()> {
        let position = self.positions.get(&partition.index).filter(|(topic, _)| *topic == log.topic);
        // Records that a compacted topic has dropped have later records of the same key.
        let mut from = position.map_or(log.start, |(_, next)| *next).max(log.start);
        while from < log.end {
            let records = self.reader.read(partition, from, log.end).await?;
            from = records.last_offset().map_or(log.end, Offset::next);
            (self.take)(&records, false);
            self.positions.insert(partition.index, (log.topic.clone(), from));
        }
        Ok(())
    }
}
