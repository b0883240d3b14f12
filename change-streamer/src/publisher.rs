//! Publishes new counts to the cache or to a feed, as fast as it takes them. The appliers never wait for it.

use std::future::Future;
use std::time::Duration;

use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_core::served::Served;
use tally_service::{Chance, Clock, Patience, Stop, Task, Until};

use crate::latest::LatestCounts;

/// The most counts sent at once.
const BATCH: usize = 512;

/// Wait after a failure.
const AFTER_FAILURE: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(5) };

/// How long a destination may take once the process is to end.
const LAST_SEND: Duration = Duration::from_secs(2);

/// Where counts are published.
pub(crate) trait Destination: Send + Sync + 'static {
    /// Its name in the log.
    const NAME: &'static str;

    /// Sends `counts`. Safe to repeat: a count never takes the place of a newer one.
    fn send(&self, counts: Vec<(CounterId, Served)>) -> impl Future<Output = Sent> + Send;
}

/// What became of some counts.
pub(crate) struct Sent {
    /// Those worth another try.
    pub(crate) left: Vec<(CounterId, Served)>,
    /// Whether the destination took them.
    pub(crate) outcome: Outcome<()>,
}

/// The task that publishes to one destination.
pub(crate) struct Publisher<D> {
    latest: LatestCounts,
    destination: D,
    patience: Patience,
}

impl<D: Destination> Publisher<D> {
    pub(crate) fn new(latest: LatestCounts, destination: D, clock: Clock, chance: Chance) -> Self {
        let patience = Patience::new(clock, chance).with_backoff(AFTER_FAILURE);
        Self { latest, destination, patience: patience.on_fault(|_, fault, tries| Self::failed(fault, tries)) }
    }

    /// Sends all that waits.
    async fn publish(&self) -> Outcome<()> {
        loop {
            let counts = self.latest.take(BATCH);
            if counts.is_empty() {
                return Ok(());
            }
            let Sent { left, outcome } = self.destination.send(counts).await;
            self.latest.put(left);
            outcome?;
        }
    }

    /// Publishes until the process is to end. Every fault of a destination leads to another try; none ends the process.
    async fn follow(&self, stop: &Stop) -> anyhow::Result<()> {
        loop {
            stop.unless_requested(self.latest.filled()).await?;
            let mut tries = 0u32;
            let publish = || {
                tries += 1;
                async { self.publish().await.map_err(|fault| Fault::Transient(fault.to_string())) }
            };
            self.patience.persist(D::NAME, Until::Requested(stop), publish).await?;
            if tries > 1 {
                tracing::info!(destination = D::NAME, "counts are taken again");
            }
        }
    }

    fn failed(fault: &Fault, tries: u32) {
        if tries == 1 {
            tracing::warn!(destination = D::NAME, error = %fault, "counts are not taken");
        } else {
            tracing::debug!(destination = D::NAME, error = %fault, tries, "counts are not taken");
        }
    }
}

impl<D: Destination> Task for Publisher<D> {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let publish = async {
            // The only end is a request to stop; what waits then is sent once.
            let _ = self.follow(&stop).await;
            self.publish().await
        };
        let too_late = async {
            stop.requested().await;
            self.patience.clock().sleep(LAST_SEND).await;
        };
        tokio::select! {
            biased;
            sent = publish => if let Err(fault) = sent {
                Self::failed(&fault, 1);
            },
            () = too_late => tracing::warn!(destination = D::NAME, "counts are not taken in time, and dropped"),
            () = stop.last_call() => tracing::warn!(destination = D::NAME, "counts are not taken in time, and dropped"),
        }
        Ok(())
    }
}
