//! How a task learns that it should end; who decides that is the supervisor's.

use std::future::Future;

use thiserror::Error;
use tokio_util::sync::CancellationToken;

/// What a task that was stopped before it got what it waited for returns; the supervisor takes it for a clean end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Error)]
#[error("stopped")]
pub struct Stopped;

/// A task's view of shutdown: first a request to finish what it has begun, later a last call.
///
/// Check it between units of work; a write under way is not cancelled before the last call.
#[derive(Clone, Debug)]
pub struct Stop {
    requested: CancellationToken,
    last_call: CancellationToken,
}

impl Stop {
    /// Completes when the task should take nothing new, drain and return.
    pub async fn requested(&self) {
        self.requested.cancelled().await;
    }

    /// Whether the task should be draining.
    pub fn is_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    /// Completes when the grace is nearly over: drop what was not sent, log it and return. A task that is still there a
    /// little later is aborted, and the process reports failure.
    pub async fn last_call(&self) {
        self.last_call.cancelled().await;
    }

    /// Whether the grace is nearly over.
    pub fn is_last_call(&self) -> bool {
        self.last_call.is_cancelled()
    }

    /// What `work` returns, or [`Stopped`] if the request comes first. Only for work that may be dropped half-way:
    /// waiting, reading.
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

    /// What `work` returns, or [`Stopped`] if the last call comes first: for sending what is left while draining. What it
    /// drops half-way may still happen, so only for writes that are safe to repeat.
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

    /// Does `work` until it ends or the last call is made, and takes being stopped for a clean end. Only for work that
    /// the process started next repeats.
    ///
    /// # Errors
    /// Those of `work`, other than [`Stopped`].
    pub async fn finish(&self, work: impl Future<Output = anyhow::Result<()>> + Send) -> anyhow::Result<()> {
        match self.until_last_call(work).await {
            Ok(Err(error)) if !error.is::<Stopped>() => Err(error),
            _ => Ok(()),
        }
    }
}

/// The other end of a [`Stop`]; a test holds one to stop a single task.
#[derive(Clone, Debug, Default)]
pub struct Switch {
    requested: CancellationToken,
    last_call: CancellationToken,
}

impl Switch {
    pub fn new() -> Self {
        Self::default()
    }

    /// What the task watches.
    pub fn stop(&self) -> Stop {
        Stop { requested: self.requested.clone(), last_call: self.last_call.clone() }
    }

    /// A switch that this one moves too, but that moves alone as well.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { requested: self.requested.child_token(), last_call: self.last_call.child_token() }
    }

    pub fn request(&self) {
        self.requested.cancel();
    }

    /// Makes the last call, which is a request too.
    pub fn last_call(&self) {
        self.requested.cancel();
        self.last_call.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_request_wins_over_work_that_is_ready_too() {
        let switch = Switch::new();
        let stop = switch.stop();
        assert_eq!(stop.unless_requested(ready(1)).await, Ok(1));
        switch.request();
        assert_eq!(stop.unless_requested(ready(1)).await, Err(Stopped));
        assert_eq!(stop.until_last_call(ready(1)).await, Ok(1));
        switch.last_call();
        assert_eq!(stop.until_last_call(pending::<()>()).await, Err(Stopped));
    }

    #[test]
    fn a_child_follows_its_parent_and_not_the_reverse() {
        let parent = Switch::new();
        let (one, two) = (parent.child(), parent.child());
        one.request();
        assert!(one.stop().is_requested() && !parent.stop().is_requested() && !two.stop().is_requested());
        parent.last_call();
        assert!(two.stop().is_requested() && two.stop().is_last_call() && one.stop().is_last_call());
    }
}
