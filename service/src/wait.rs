//! `Host::wait_for`: waits for a dependency that is not available yet. The log names it, but not at every attempt.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tokio::time::Instant;

use crate::{Host, Until};

/// How often an ongoing wait is logged.
const REMINDER: Duration = Duration::from_secs(10);

impl Host {
    /// Repeats `attempt` until it succeeds, for as long as its fault is worth another attempt. Meanwhile the condition
    /// `name` is not ready, and the log names the dependency. Each attempt needs a time-out of its own; it is dropped
    /// midway when shutdown begins.
    ///
    /// # Errors
    /// A fault that waiting does not solve or [`crate::GivenUp`], both with the dependency's name, or
    /// [`crate::Stopped`].
    pub async fn wait_for<T, Fut>(
        &self,
        name: &str,
        backoff: Backoff,
        attempt: impl FnMut() -> Fut + Send,
    ) -> anyhow::Result<T>
    where
        T: Send,
        Fut: Future<Output = Result<T, Fault>> + Send,
    {
        let (readiness, began) = (self.readiness(), Instant::now());
        let reminded = Arc::new(Mutex::new(None::<Instant>));
        let patience = self.patience().with_backoff(backoff).on_fault({
            let (name, readiness, reminded) = (name.to_owned(), readiness.clone(), Arc::clone(&reminded));
            move |_, fault, tries| {
                readiness.not_ready(&name, format!("waiting: {fault}"));
                let mut reminded = reminded.lock();
                if reminded.is_none_or(|at| at.elapsed() >= REMINDER) {
                    tracing::warn!(dependency = name, error = %fault, tries, "waiting for dependency");
                    *reminded = Some(Instant::now());
                }
            }
        });
        let (stop, what) = (self.stop(), format!("use {name}"));
        let found = stop.unless_requested(patience.persist(&what, Until::Requested(&stop), attempt)).await??;
        if reminded.lock().is_some() {
            tracing::info!(dependency = name, waited = ?began.elapsed(), "dependency is up");
        }
        readiness.ready(name);
        Ok(found)
    }
}
