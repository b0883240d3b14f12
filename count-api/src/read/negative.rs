//! Counts below zero: shown as 0, and queued here for a recount. The request that met one does not wait for that.

use std::sync::Arc;
use std::time::Duration;

use tally_core::Map;
use tally_core::counter::Counter;
use tally_core::ids::{CounterId, CounterKind, RowKey, Shard};
use tally_core::ports::{Counts, Outcome, QueueReason, Recounts};
use tally_core::served::Served;
use tally_service::{Clock, Stop, Task};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::metrics::NEGATIVE_COUNTS;

/// Counters waiting to be queued; more are dropped, and the next read reports them again.
const WAITING: usize = 256;

/// How long a counter that was queued is not queued again.
const QUEUED_FOR: Duration = Duration::from_secs(60);

/// How many such counters are remembered. Past them some are queued twice, which is harmless.
const REMEMBERED: usize = 10_000;

/// Takes reports of counts below zero.
#[derive(Clone)]
pub struct Negatives(mpsc::Sender<CounterId>);

impl Negatives {
    /// The reports' queue, and the task at its end.
    pub fn new(counts: Arc<dyn Counts>, recounts: Arc<dyn Recounts>, clock: Clock) -> (Self, Recounter) {
        let (sender, counters) = mpsc::channel(WAITING);
        (Self(sender), Recounter { counts, recounts, clock, counters, queued: Map::default() })
    }

    /// Reports `id` if it is a set and its count is below zero.
    pub fn report(&self, id: &CounterId, served: &Served) {
        let wrong = served.likes < 0 && id.name.kind() == CounterKind::Set;
        if wrong && self.0.try_send(id.clone()).is_err() {
            NEGATIVE_COUNTS.counter(&["dropped"]).increment(1);
        }
    }
}

/// The task that queues recounts.
pub struct Recounter {
    counts: Arc<dyn Counts>,
    recounts: Arc<dyn Recounts>,
    clock: Clock,
    counters: mpsc::Receiver<CounterId>,
    queued: Map<CounterId, Instant>,
}

impl Recounter {
    async fn look_at(&mut self, id: CounterId) {
        if self.queued.get(&id).is_some_and(|at| at.elapsed() < QUEUED_FOR) {
            return;
        }
        let outcome = match self.queue(&id).await {
            Ok(()) => "queued",
            Err(fault) => {
                tracing::warn!(error = %fault, "a count below zero could not be queued for a recount");
                "failed"
            }
        };
        NEGATIVE_COUNTS.counter(&[outcome]).increment(1);
        if outcome == "queued" {
            self.remember(id);
        }
    }

    fn remember(&mut self, id: CounterId) {
        if self.queued.len() >= REMEMBERED {
            self.queued.retain(|_, at| at.elapsed() < QUEUED_FOR);
        }
        if self.queued.len() >= REMEMBERED {
            self.queued.clear();
        }
        self.queued.insert(id, Instant::now());
    }

    /// Safe to repeat: a key is in the queue once.
    async fn queue(&self, id: &CounterId) -> Outcome<()> {
        let Some(counter) = self.counts.counter(id).await? else { return Ok(()) };
        for shard in in_doubt(&counter) {
            let key = RowKey { counter: id.clone(), shard };
            self.recounts.enqueue(&key, QueueReason::Negative, self.clock.now()).await?;
        }
        Ok(())
    }
}

/// The shards to recount of a negative total: those below zero, or all where none is.
fn in_doubt(counter: &Counter) -> Vec<Shard> {
    if counter.likes >= 0 {
        return Vec::new();
    }
    let below = |only: bool| {
        let shards = counter.shards.iter().filter(move |(_, tally)| !only || tally.rows < 0);
        shards.map(|(shard, _)| *shard).collect::<Vec<_>>()
    };
    let negative = below(true);
    if negative.is_empty() { below(false) } else { negative }
}

impl Task for Recounter {
    async fn run(mut self, stop: Stop) -> anyhow::Result<()> {
        while let Some(id) = stop.unless_requested(self.counters.recv()).await? {
            self.look_at(id).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tally_core::counter::ShardTally;

    use super::*;

    #[test]
    fn the_shards_below_zero_are_recounted_or_else_all_of_them() {
        let counter = |likes, rows: &[i64]| {
            let shards = rows
                .iter()
                .zip(0u16..)
                .map(|(rows, k)| (Shard::new(k).unwrap(), ShardTally { rows: *rows, ..ShardTally::default() }));
            Counter { likes, shards: shards.collect(), ..Counter::default() }
        };
        let doubted =
            |likes, rows: &[i64]| in_doubt(&counter(likes, rows)).iter().map(|shard| shard.index()).collect::<Vec<_>>();
        assert_eq!(doubted(-1, &[1, -2, 0]), [1]);
        assert_eq!(doubted(-1, &[1, 2]), [0, 1]);
        assert_eq!(doubted(2, &[3, -1]), [0u16; 0], "mended meanwhile");
    }
}
