//! Trying again: what is worth it, how long to wait between, and when to give up.

use std::future::Future;

use anyhow::anyhow;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tally_service::{Chance, Clock, Stop, Stopped};

/// Does `work` until it is done or the last call is made, which a silent store would otherwise outlast; to be stopped is
/// no failure. Only for work that whoever comes next repeats.
///
/// # Errors
/// Those of `work`.
pub(crate) async fn until_last_call(
    stop: &Stop,
    work: impl Future<Output = anyhow::Result<()>> + Send,
) -> anyhow::Result<()> {
    match stop.until_last_call(work).await {
        Ok(Err(error)) if !error.is::<Stopped>() => Err(error),
        _ => Ok(()),
    }
}

/// The waits between tries of one process.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
}

impl Patience {
    /// What `call` answers once it does, asked again for as long as its fault is worth it. Only for calls that are safe
    /// to repeat.
    ///
    /// # Errors
    /// A fault that waiting does not mend, naming `what`; [`Stopped`](tally_service::Stopped) at the last call.
    pub(crate) async fn persist<T, Fut>(
        &self,
        what: &str,
        stop: &Stop,
        mut call: impl FnMut() -> Fut,
    ) -> anyhow::Result<T>
    where
        Fut: Future<Output = Result<T, Fault>>,
    {
        let mut tries = 0;
        loop {
            match call().await {
                Ok(answer) => return Ok(answer),
                Err(fault) if fault.is_retryable() => self.pause(what, &fault, &mut tries, stop).await?,
                Err(fault) => return Err(anyhow!(fault).context(format!("cannot {what}"))),
            }
        }
    }

    /// Waits before the next try.
    ///
    /// # Errors
    /// [`Stopped`](tally_service::Stopped) at the last call.
    pub(crate) async fn pause(&self, what: &str, fault: &Fault, tries: &mut u32, stop: &Stop) -> anyhow::Result<()> {
        crate::metrics::faulted(fault);
        tracing::debug!(what, error = %fault, tries, "trying again");
        let wait = Backoff::STORE.wait(*tries, self.chance.fraction());
        *tries = tries.saturating_add(1);
        Ok(stop.until_last_call(self.clock.sleep(wait)).await?)
    }
}
