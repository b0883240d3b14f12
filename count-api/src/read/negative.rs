//! Queues counters that look wrong for a recount, which compares them with the rows: sets (counters of members, such as
//! likes) below zero, which are shown as 0; counters that an unreadable row has put in doubt; and those that somebody
//! edited. The read path reports them to [`Negatives`] without waiting, and the task [`Recounter`] writes them to the
//! queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tally_adapters::dynamodb::counters::Counters;
use tally_adapters::dynamodb::{Consistency, Recounts};
use tally_core::Map;
use tally_core::audit::QueueReason;
use tally_core::cached::Value;
use tally_core::fold::Counter;
use tally_core::ids::{CounterId, CounterKind, RowKey, Shard, ShardCount};
use tally_core::ports::Outcome;
use tally_service::{Clock, Stop, Task};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::metrics::NEGATIVE_COUNTS;

/// The most reports that wait; more are dropped, and the next read reports the counter again.
const WAITING: usize = 256;

/// How long a counter is not queued again; [`DOUBTED_FOR`] if it is in doubt, which lasts until its row can be read.
const QUEUED_FOR: Duration = Duration::from_secs(60);
const DOUBTED_FOR: Duration = Duration::from_secs(3600);

/// The most counters that are remembered. Beyond that some are queued twice, which is harmless.
const REMEMBERED: usize = 10_000;

/// Accepts reports of such counters.
#[derive(Clone)]
pub struct Negatives(mpsc::Sender<CounterId>);

impl Negatives {
    /// Creates the queue of reports, and the task that reads it.
    pub fn new(counters: Arc<Counters>, recounts: Recounts, shards: ShardCount, clock: Clock) -> (Self, Recounter) {
        let (sender, reported) = mpsc::channel(WAITING);
        (Self(sender), Recounter { counters, recounts, shards, clock, reported, queued: Map::default() })
    }

    /// Reports `id` if its count is in doubt, or if it is a set below zero.
    pub fn report(&self, id: &CounterId, value: &Value) {
        let is_negative = value.likes < 0 && id.name.kind() == CounterKind::Set;
        if (is_negative || value.doubtful) && self.0.try_send(id.clone()).is_err() {
            NEGATIVE_COUNTS.counter(&["dropped"]).increment(1);
        }
    }
}

/// The task that queues recounts.
pub struct Recounter {
    counters: Arc<Counters>,
    recounts: Recounts,
    shards: ShardCount,
    clock: Clock,
    reported: mpsc::Receiver<CounterId>,
    /// The time before which each counter is not queued again.
    queued: Map<CounterId, Instant>,
}

impl Recounter {
    async fn look_at(&mut self, id: CounterId) {
        if self.queued.get(&id).is_some_and(|until| Instant::now() < *until) {
            return;
        }
        let outcome = match self.queue(&id).await {
            Ok(again) => {
                self.remember(id, again);
                "queued"
            }
            Err(fault) => {
                tracing::warn!(error = %fault, "a count could not be queued for a recount");
                "failed"
            }
        };
        NEGATIVE_COUNTS.counter(&[outcome]).increment(1);
    }

    fn remember(&mut self, id: CounterId, again: Duration) {
        let now = Instant::now();
        if self.queued.len() >= REMEMBERED {
            self.queued.retain(|_, until| now < *until);
        }
        if self.queued.len() >= REMEMBERED {
            self.queued.clear();
        }
        self.queued.insert(id, now + again);
    }

    /// Queues the counter's row keys. Returns how long not to queue it again. Safe to repeat: a key is in the queue
    /// once.
    async fn queue(&self, id: &CounterId) -> Outcome<Duration> {
        let mut read = self.counters.read(std::slice::from_ref(id), Consistency::Strong).await?;
        let Some(counter) = read.counters.remove(id).transpose()? else { return Ok(QUEUED_FOR) };
        let negative = negative(&counter);
        let is_doubted = negative.is_empty() && counter.adds_up() && !counter.doubt.is_empty();
        let again = if is_doubted { DOUBTED_FOR } else { QUEUED_FOR };
        let negative = negative.into_iter().map(|shard| (shard, QueueReason::Negative));
        let doubtful = counter.doubt.iter().map(|shard| (*shard, QueueReason::Doubt));
        // An edit may have changed or removed any part. A correction sets the total to the sum of all parts, so all of
        // them are recounted.
        let edited = self.shards.all().filter(|_| !counter.adds_up()).map(|shard| (shard, QueueReason::Drift));
        // A shard with two reasons is queued as negative.
        let keys: BTreeMap<Shard, QueueReason> = edited.chain(doubtful).chain(negative).collect();
        for (shard, reason) in keys {
            let key = RowKey { counter: id.clone(), shard };
            self.recounts.enqueue(&key, reason, self.clock.now()).await?;
        }
        Ok(again)
    }
}

/// Returns the shards to recount for a negative total: those below zero, or all if none is.
fn negative(counter: &Counter) -> Vec<Shard> {
    if counter.likes >= 0 {
        return Vec::new();
    }
    let below: Vec<Shard> = counter.parts.iter().filter(|(_, part)| **part < 0).map(|(shard, _)| *shard).collect();
    if below.is_empty() { counter.parts.keys().copied().collect() } else { below }
}

impl Task for Recounter {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        while let Some(id) = stop.unless_requested(self.reported.recv()).await? {
            self.look_at(id).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shards_below_zero_are_recounted_or_else_all_of_them() {
        let counter = |likes, parts: &[i64]| {
            let parts = (0u16..).zip(parts).map(|(k, part)| (Shard::new(k).unwrap(), *part)).collect();
            Counter { likes, parts, ..Counter::default() }
        };
        let doubted = |likes, parts: &[i64]| {
            negative(&counter(likes, parts)).iter().map(|shard| shard.index()).collect::<Vec<_>>()
        };
        assert_eq!(doubted(-1, &[1, -2, 0]), [1]);
        assert_eq!(doubted(-1, &[1, 2]), [0, 1]);
        assert_eq!(doubted(2, &[3, -1]), [0u16; 0], "mended meanwhile");
    }
}
