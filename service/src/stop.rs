//! [`Stop`] tells a task that it should end; the supervisor decides when, and holds the [`Switch`].

use std::future::Future;

use thiserror::Error;
use tokio_util::sync::CancellationToken;

/// Returned by a task that was stopped while it waited. The supervisor takes it for a clean end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Error)]
#[error("stopped")]
pub struct Stopped;

/// A task's view of a shutdown: first a request to finish what it has begun, later a last call.
///
/// Check it between units of work. A write under way is not cancelled before the last call.
#[derive(Clone, Debug)]
pub struct Stop {
    requested: CancellationToken,
    last_call: CancellationToken,
}

impl Stop {
    /// Returns when the task should take on nothing new, drain and return.
    pub async fn requested(&self) {
        self.requested.cancelled().await;
    }

    /// Returns whether the task should be draining.
    pub fn is_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    /// Returns when the grace period is nearly over. The task should drop and log what it has not sent, and return.
    /// Soon after, a task that is still running is aborted, and the process exits with an error.
    pub async fn last_call(&self) {
        self.last_call.cancelled().await;
    }

    /// Returns whether the grace period is nearly over.
    pub fn is_last_call(&self) -> bool {
        self.last_call.is_cancelled()
    }

    /// Returns the result of `work`, or [`Stopped`] if the request to stop comes first. Only for work that may be
    /// dropped midway, such as waiting and reading.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn unless_requested<T>(&self, work: impl Future<Output = T> + Send) -> Result<T, Stopped> {
        tokio::select! {
            biased;
            () = self.requested() => Err(Stopped),
            result = work => Ok(result),
        }
    }

    /// Returns the result of `work`, or [`Stopped`] if the last call comes first. It is meant for sending the rest
    /// while draining. A write that is dropped midway may still take effect, so it must be safe to repeat.
    ///
    /// # Errors
    /// [`Stopped`].
    pub async fn until_last_call<T>(&self, work: impl Future<Output = T> + Send) -> Result<T, Stopped> {
        tokio::select! {
            biased;
            () = self.last_call() => Err(Stopped),
            result = work => Ok(result),
        }
    }

    /// Runs `work` until it ends or the last call comes, and takes being stopped for a clean end. Only for work that
    /// the next process repeats.
    ///
    /// # Errors
    /// The errors of `work`, except [`Stopped`].
    pub async fn finish(&self, work: impl Future<Output = anyhow::Result<()>> + Send) -> anyhow::Result<()> {
        match self.until_last_call(work).await {
            Ok(Err(error)) if !error.is::<Stopped>() => Err(error),
            _ => Ok(()),
        }
    }
}

/// The sending end of a [`Stop`]. A test holds one to stop a single task.
#[derive(Clone, Debug)]
pub struct Switch(Stop);

impl Default for Switch {
    fn default() -> Self {
        Self(Stop { requested: CancellationToken::new(), last_call: CancellationToken::new() })
    }
}

impl Switch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the receiving end for the task.
    pub fn stop(&self) -> Stop {
        self.0.clone()
    }

    /// Returns a switch that follows this one and can also be switched alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(Stop { requested: self.0.requested.child_token(), last_call: self.0.last_call.child_token() })
    }

    pub fn request(&self) {
        self.0.requested.cancel();
    }

    /// Makes the last call, which includes the request to stop.
    pub fn last_call(&self) {
        self.request();
        self.0.last_call.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_request_to_stop_wins_over_work_that_is_ready_as_well() {
        let switch = Switch::new();
        let stop = switch.stop();
        assert_eq!(stop.unless_requested(ready(1)).await, Ok(1));
        switch.request();
        assert_eq!(stop.unless_requested(ready(1)).await, Err(Stopped));
        assert_eq!(stop.until_last_call(ready(1)).await, Ok(1));
        switch.last_call();
        assert_eq!(stop.until_last_call(pending::<()>()).await, Err(Stopped));
    }
}
