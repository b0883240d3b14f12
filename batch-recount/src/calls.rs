//! Calls that are repeated while their fault is worth it, and waits: all of them end when the process is asked to stop.

use std::future::Future;
use std::time::Duration;

use tally_core::fault::Fault;
use tally_core::ports::Outcome;
use tally_service::{Clock, Patience, Stop, Until};

/// How this process calls and waits. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    patience: Patience,
    stop: Stop,
}

impl Calls {
    /// Repeats as `patience` says, until `stop` is requested.
    pub(crate) fn new(patience: Patience, stop: Stop) -> Self {
        Self { patience, stop }
    }

    /// The clock waited by.
    pub(crate) fn clock(&self) -> Clock {
        self.patience.clock()
    }

    /// What `call` answers once it does. Only for calls that are safe to repeat.
    ///
    /// # Errors
    /// A fault that waiting does not mend, naming `what`; [`Stopped`](tally_service::Stopped) on request.
    pub(crate) async fn persist<T, Fut>(&self, what: &str, call: impl FnMut() -> Fut) -> anyhow::Result<T>
    where
        Fut: Future<Output = Outcome<T>>,
    {
        self.patience.persist(what, Until::Requested(&self.stop), call).await
    }

    /// Waits after a fault; `tries` counts them.
    ///
    /// # Errors
    /// `fault` itself if waiting does not mend it; [`Stopped`](tally_service::Stopped) on request.
    pub(crate) async fn pause(&self, what: &str, fault: Fault, tries: &mut u32) -> anyhow::Result<()> {
        self.patience.pause(what, fault, tries, Until::Requested(&self.stop)).await
    }

    /// Waits for `span`.
    pub(crate) async fn wait(&self, span: Duration) -> anyhow::Result<()> {
        self.unless_stopped(self.clock().sleep(span)).await
    }

    /// Waits until the monotonic clock says `at`.
    pub(crate) async fn wait_until(&self, at: Duration) -> anyhow::Result<()> {
        self.wait(at.saturating_sub(self.clock().reading().at)).await
    }

    /// What `wait` comes to; only for what may be dropped half-way.
    pub(crate) async fn unless_stopped<T>(&self, wait: impl Future<Output = T> + Send) -> anyhow::Result<T> {
        Ok(self.stop.unless_requested(wait).await?)
    }
}
