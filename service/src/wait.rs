//! Waiting for a dependency that is not up yet, aloud but not in every breath.

use std::future::Future;
use std::time::Duration;

use anyhow::anyhow;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tokio::time::Instant;

use crate::Host;

/// How often a wait that goes on is logged.
const REMINDER: Duration = Duration::from_secs(10);

impl Host {
    /// What `attempt` returns once it succeeds, tried again for as long as its fault is worth it. Meanwhile the
    /// condition `name` is not ready, and the log says what we wait for. An attempt has a time-out of its own; it is
    /// dropped half-way when shutdown begins.
    ///
    /// # Errors
    /// A fault that waiting does not mend, naming the dependency, or [`crate::Stopped`].
    pub async fn wait_for<T, Fut>(
        &self,
        name: &str,
        backoff: Backoff,
        mut attempt: impl FnMut() -> Fut + Send,
    ) -> anyhow::Result<T>
    where
        T: Send,
        Fut: Future<Output = Result<T, Fault>> + Send,
    {
        let stop = self.stop();
        let began = Instant::now();
        let mut reminded = None;
        let mut tries = 0u32;
        loop {
            let fault = match stop.unless_requested(attempt()).await? {
                Ok(found) => {
                    if reminded.is_some() {
                        tracing::info!(dependency = name, waited = ?began.elapsed(), "dependency is up");
                    }
                    self.readiness().ready(name);
                    return Ok(found);
                }
                Err(fault) if fault.is_retryable() => fault,
                Err(fault) => return Err(anyhow!(fault).context(format!("cannot use {name}"))),
            };
            tries = tries.saturating_add(1);
            self.readiness().not_ready(name, format!("waiting: {fault}"));
            if reminded.is_none_or(|at: Instant| at.elapsed() >= REMINDER) {
                tracing::warn!(dependency = name, error = %fault, tries, "waiting for dependency");
                reminded = Some(Instant::now());
            }
            let pause = backoff.wait(tries - 1, self.chance().fraction());
            stop.unless_requested(self.clock().sleep(pause)).await?;
        }
    }
}
