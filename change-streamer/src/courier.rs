//! Carries counts out of the process, to the cache or to a feed, as fast as it takes them. Nobody waits for it.

use std::future::Future;
use std::time::Duration;

use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_core::ids::CounterId;
use tally_core::ports::Outcome;
use tally_core::served::Served;
use tally_service::{Chance, Clock, Stop, Stopped, Task};

use crate::outlet::Outlet;

/// The most counts sent at once.
const BATCH: usize = 512;

/// How long a destination that failed is left alone.
const BREATHER: Backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(5) };

/// How long a destination that does not answer is waited for once the process is to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Where counts are carried.
pub(crate) trait Destination: Send + Sync + 'static {
    /// Its name in the log.
    const NAME: &'static str;

    /// Offers `counts`; what comes back is to be offered again. Safe to repeat.
    fn offer(&self, counts: Vec<(CounterId, Served)>) -> impl Future<Output = Offered> + Send;
}

/// What became of some counts.
pub(crate) struct Offered {
    /// Those worth another try.
    pub(crate) left: Vec<(CounterId, Served)>,
    /// Whether the destination took them.
    pub(crate) outcome: Outcome<()>,
}

/// The task that empties one outlet.
pub(crate) struct Courier<D> {
    pub(crate) outlet: Outlet,
    pub(crate) destination: D,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
}

impl<D: Destination> Courier<D> {
    /// Sends all that waits; whether it went well.
    async fn deliver(&self) -> Outcome<()> {
        loop {
            let counts = self.outlet.take(BATCH);
            if counts.is_empty() {
                return Ok(());
            }
            let Offered { left, outcome } = self.destination.offer(counts).await;
            self.outlet.put(left);
            outcome?;
        }
    }

    /// [`deliver`](Self::deliver) for as long as it takes, or for a moment only once the process is to end. What a
    /// destination leaves unanswered then is dropped.
    async fn deliver_in_time(&self, stop: &Stop) -> Result<Outcome<()>, Stopped> {
        let farewell = async {
            stop.requested().await;
            self.clock.sleep(FAREWELL).await;
        };
        tokio::select! {
            biased;
            outcome = self.deliver() => Ok(outcome),
            () = farewell => Err(Stopped),
            () = stop.last_call() => Err(Stopped),
        }
    }

    async fn follow(&self, stop: &Stop) -> Result<(), Stopped> {
        let mut failures = 0u32;
        loop {
            stop.unless_requested(self.outlet.filled()).await?;
            while let Err(fault) = self.deliver_in_time(stop).await? {
                self.failed(&fault, failures);
                let wait = BREATHER.ceiling(failures).mul_f64(0.5 + self.chance.fraction() / 2.0);
                failures = failures.saturating_add(1);
                stop.unless_requested(self.clock.sleep(wait)).await?;
            }
            if std::mem::take(&mut failures) > 0 {
                tracing::info!(destination = D::NAME, "counts are taken again");
            }
        }
    }

    fn failed(&self, fault: &Fault, failures: u32) {
        if failures == 0 {
            tracing::warn!(destination = D::NAME, error = %fault, "counts are not taken");
        } else {
            tracing::debug!(destination = D::NAME, error = %fault, failures, "counts are not taken");
        }
    }
}

impl<D: Destination> Task for Courier<D> {
    async fn run(self, stop: Stop) -> anyhow::Result<()> {
        // The only end is a request to stop; what waits then is sent once.
        let _ = self.follow(&stop).await;
        match self.deliver_in_time(&stop).await {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => self.failed(&fault, 0),
            Err(Stopped) => tracing::warn!(destination = D::NAME, "counts are not taken in time, and dropped"),
        }
        Ok(())
    }
}
