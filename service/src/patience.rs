//! Retries calls that fail for a while, in every process alike: which faults are worth another attempt, how long to
//! wait before it, and when to give up.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use thiserror::Error;

use crate::{Chance, Clock, Stop};

/// Called for each fault that leads to another attempt, with the name of the call, the fault and the attempts failed so
/// far.
type OnFault = Arc<dyn Fn(&str, &Fault, u32) + Send + Sync>;

/// Retries calls that fail for a while. This is the only retry loop of a service: calls must be safe to repeat.
#[derive(Clone)]
pub struct Patience {
    clock: Clock,
    chance: Chance,
    backoff: Backoff,
    limit: Option<Duration>,
    on_fault: OnFault,
}

/// A job gave up on a call that has failed for as long as its patience allows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("given up after {patience:?}, which --patience sets")]
pub struct GivenUp {
    pub patience: Duration,
    #[source]
    pub fault: Fault,
}

/// What ends the wait between two attempts early. A call under way is never cut off.
#[derive(Clone, Copy, Debug)]
pub enum Until<'a> {
    /// The request to stop, for work that may be left undone.
    Requested(&'a Stop),
    /// The last call of a shutdown, for work that has to be finished while stopping.
    LastCall(&'a Stop),
}

impl Patience {
    /// Waits according to [`Backoff::STORE`], with jitter drawn from `chance`.
    pub fn new(clock: Clock, chance: Chance) -> Self {
        Self { clock, chance, backoff: Backoff::STORE, limit: None, on_fault: Arc::new(|_, _, _| {}) }
    }

    /// Returns the same policy with another backoff.
    #[must_use]
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Returns the same policy, which gives up on a call that has failed for `limit`, if there is a limit.
    #[must_use]
    pub fn giving_up_after(self, limit: Option<Duration>) -> Self {
        Self { limit, ..self }
    }

    /// Returns the same policy, which calls `on_fault` before each wait, for metrics and logs. Its arguments are the
    /// name of the call, the fault and the number of attempts failed so far.
    #[must_use]
    pub fn on_fault(self, on_fault: impl Fn(&str, &Fault, u32) + Send + Sync + 'static) -> Self {
        Self { on_fault: Arc::new(on_fault), ..self }
    }

    /// Returns the clock that it waits by.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Repeats `call` until it succeeds, without a limit of time. Dropping this future cuts the call off, so drop it
    /// only if that is harmless.
    ///
    /// # Errors
    /// A fault that another attempt cannot solve.
    pub async fn answer<T, Fut>(&self, what: &str, mut call: impl FnMut() -> Fut) -> Result<T, Fault>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let mut tries = 0;
        loop {
            match call().await {
                Err(fault) if fault.is_retryable() => self.sleep(what, &fault, &mut tries).await,
                answer => return answer,
            }
        }
    }

    /// Repeats `call` until it succeeds, or until `until` ends the wait.
    ///
    /// # Errors
    /// A fault that another attempt cannot solve, with `what` as context; [`GivenUp`]; [`crate::Stopped`].
    pub async fn persist<T, Fut>(
        &self,
        what: &str,
        until: Until<'_>,
        mut call: impl FnMut() -> Fut,
    ) -> anyhow::Result<T>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let (mut tries, began) = (0, self.clock.reading().at);
        loop {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(fault) => {
                    let failed_for = self.clock.reading().at.saturating_sub(began);
                    if let Some(patience) = self.limit.filter(|limit| fault.is_retryable() && failed_for >= *limit) {
                        return Err(anyhow!(GivenUp { patience, fault }).context(format!("cannot {what}")));
                    }
                    self.pause(what, fault, &mut tries, until).await?;
                }
            }
        }
    }

    /// Waits before the next attempt; `tries` counts the failed ones and begins at 0. For loops that handle some faults
    /// themselves.
    ///
    /// # Errors
    /// `fault` itself, with `what` as context, if another attempt cannot solve it; [`crate::Stopped`].
    pub async fn pause(&self, what: &str, fault: Fault, tries: &mut u32, until: Until<'_>) -> anyhow::Result<()> {
        if !fault.is_retryable() {
            return Err(anyhow!(fault).context(format!("cannot {what}")));
        }
        let wait = self.sleep(what, &fault, tries);
        match until {
            Until::Requested(stop) => stop.unless_requested(wait).await?,
            Until::LastCall(stop) => stop.until_last_call(wait).await?,
        }
        Ok(())
    }

    async fn sleep(&self, what: &str, fault: &Fault, tries: &mut u32) {
        let wait = self.backoff.wait(*tries, self.chance.fraction());
        *tries = tries.saturating_add(1);
        tracing::debug!(what, error = %fault, tries, "trying again");
        (self.on_fault)(what, fault, *tries);
        self.clock.sleep(wait).await;
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience").field("backoff", &self.backoff).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tally_core::time::UnixMillis;
    use tokio::time::Instant;

    use super::*;
    use crate::{Exit, Stopped, Switch};

    fn patience() -> Patience {
        Patience::new(Clock::starting_at(UnixMillis(0)), Chance::seeded(1))
    }

    /// A call that fails `times` times with `fault` and then returns how often it was called.
    fn fails<'a>(
        calls: &'a Cell<u32>,
        times: u32,
        fault: &'a Fault,
    ) -> impl FnMut() -> std::future::Ready<Result<u32, Fault>> + 'a {
        move || {
            calls.set(calls.get() + 1);
            std::future::ready(if calls.get() > times { Ok(calls.get()) } else { Err(fault.clone()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_transient_fault_is_retried_until_it_passes_and_each_one_is_reported() {
        let told = Arc::new(AtomicU32::new(0));
        let teller = Arc::clone(&told);
        let patience = patience().on_fault(move |what, fault, tries| {
            assert_eq!((what, fault.class()), ("ask", "throttled"));
            assert_eq!(teller.fetch_add(1, Ordering::Relaxed) + 1, tries);
        });
        let (fault, began) = (Fault::Throttled("slow down".to_owned()), Instant::now());
        assert_eq!(patience.answer("ask", fails(&Cell::new(0), 20, &fault)).await, Ok(21));
        assert_eq!(told.load(Ordering::Relaxed), 20);
        let longest: std::time::Duration = (0..20).map(|attempt| Backoff::STORE.ceiling(attempt)).sum();
        assert!(began.elapsed() > longest / 10 && began.elapsed() <= longest, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_permanent_fault_is_returned_at_once_with_what_was_tried() {
        let (calls, fault) = (Cell::new(0), Fault::Fatal("access denied".to_owned()));
        assert_eq!(patience().answer("ask", fails(&calls, 9, &fault)).await, Err(fault.clone()));
        let stop = Switch::new().stop();
        let error = patience().persist("ask", Until::LastCall(&stop), fails(&calls, 9, &fault)).await.unwrap_err();
        assert_eq!((calls.get(), format!("{error:#}")), (2, "cannot ask: access denied".to_owned()));
        assert_eq!(error.downcast_ref(), Some(&fault));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_fails_for_longer_than_the_patience_is_given_up_by_name() {
        let (limit, stop) = (Duration::from_secs(60), Switch::new().stop());
        let patience = patience().giving_up_after(Some(limit));
        let (fault, calls, began) = (Fault::Transient("no answer".to_owned()), Cell::new(0), Instant::now());
        let error =
            patience.persist("ask", Until::Requested(&stop), fails(&calls, u32::MAX, &fault)).await.unwrap_err();
        assert!(began.elapsed() >= limit && calls.get() > 2, "{:?}", began.elapsed());
        assert_eq!(format!("{error:#}"), format!("cannot ask: given up after 60s, which --patience sets: {fault}"));
        assert_eq!(Exit::after(&error), Exit::UNAVAILABLE);
        let fatal = Fault::Fatal("access denied".to_owned());
        let error =
            patience.persist("ask", Until::Requested(&stop), fails(&calls, u32::MAX, &fatal)).await.unwrap_err();
        assert_eq!((error.downcast_ref(), Exit::after(&error)), (Some(&fatal), Exit::FAILED));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_the_request_to_stop_or_at_the_last_call_as_asked() {
        let (switch, fault) = (Switch::new(), Fault::Transient("down".to_owned()));
        let stop = switch.stop();
        switch.request();
        let calls = Cell::new(0);
        let error = patience().persist("ask", Until::Requested(&stop), fails(&calls, 2, &fault)).await.unwrap_err();
        assert!(error.is::<Stopped>());
        assert_eq!(calls.get(), 1, "the call itself was made");
        let answer = patience().persist("ask", Until::LastCall(&stop), fails(&Cell::new(0), 2, &fault)).await;
        assert_eq!(answer.unwrap(), 3);
        switch.last_call();
        let answer = patience().persist("ask", Until::LastCall(&stop), fails(&Cell::new(0), 2, &fault)).await;
        assert!(answer.unwrap_err().is::<Stopped>());
    }
}
