//! Starts and stops services inside a process: [`App`] is a service, [`Host`] what it may use of its process, and
//! [`Running`] a service that was started. `run` handles signals and exit codes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use parking_lot::Mutex;
use tally_core::backoff::Backoff;
use tally_core::fault::Fault;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::supervisor::Tasks;
use crate::{Chance, Clock, Ended, Patience, Readiness, Shutdown, Stage, Standstill, Switch, Until};

/// The readiness condition that the host itself sets: start-up has finished and shutdown has not begun.
const RUNNING: &str = "running";

/// How often an ongoing wait for a dependency is logged.
const REMINDER: Duration = Duration::from_secs(10);

/// A complete service, ready to start. Production, the local stack and the tests start the same one.
pub trait App: Sized + Send + 'static {
    /// Returns routes to add to the admin listener, beside `/livez`, `/readyz`, `/metrics` and `/log-level`. They are
    /// served before [`start`](Self::start), with the same host.
    fn routes(&self, _host: &Host) -> Router {
        Router::new()
    }

    /// Waits for what the service needs, spawns its tasks and returns. The service then runs in those tasks.
    ///
    /// # Errors
    /// A problem that waiting does not solve. Use [`Host::wait_for`] for a dependency that may become available.
    fn start(self, host: Host) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// What a service may use of its process: tasks, clock, random numbers, readiness. Clones are the same host, so a task
/// may keep one; dropping a clone ends nothing.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) name: Arc<str>,
    pub(crate) stages: Arc<[Switch; Stage::ALL.len()]>,
    pub(crate) tasks: Arc<watch::Sender<Tasks>>,
    /// Tasks pause while it is on.
    pub(crate) standstill: Option<Standstill>,
    clock: Clock,
    chance: Chance,
    readiness: Readiness,
    patience: Option<Duration>,
}

impl Host {
    /// Creates a host without tasks, with the system's clock, unpredictable random numbers and readiness of its own.
    /// `name` appears in the log span of every task.
    #[expect(clippy::disallowed_methods, reason = "the clock of every service comes from here")]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            stages: Arc::default(),
            tasks: Arc::default(),
            standstill: None,
            clock: Clock::system(),
            chance: Chance::from_entropy(),
            readiness: Readiness::new(),
            patience: None,
        }
    }

    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    #[must_use]
    pub fn with_chance(self, chance: Chance) -> Self {
        Self { chance, ..self }
    }

    /// Returns the same host, whose tasks pause while `standstill` is on.
    #[must_use]
    pub fn with_standstill(self, standstill: Standstill) -> Self {
        Self { standstill: Some(standstill), ..self }
    }

    /// Returns the same host with another readiness, usually a [`Readiness::scope`] of a shared one.
    #[must_use]
    pub fn with_readiness(self, readiness: Readiness) -> Self {
        Self { readiness, ..self }
    }

    /// Returns the same host, which gives up on a dependency that has failed for `patience`, if there is a limit.
    #[must_use]
    pub fn giving_up_after(self, patience: Option<Duration>) -> Self {
        Self { patience, ..self }
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the retry policy of this process.
    pub fn patience(&self) -> Patience {
        Patience::new(self.clock, self.chance.clone()).giving_up_after(self.patience)
    }

    pub fn chance(&self) -> &Chance {
        &self.chance
    }

    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

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

/// A running service. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    host: Host,
}

impl Running {
    /// Starts `app` and returns at once. Start-up runs in a task named `start`, which can fail or be stopped.
    pub fn start(app: impl App, host: Host) -> Self {
        host.readiness.clear();
        host.readiness.not_ready(RUNNING, "starting");
        let starting = host.clone();
        host.worker(Stage::Intake, "start", move |_| async move {
            let readiness = starting.readiness.clone();
            let stop = starting.stop();
            app.start(starting).await?;
            if !stop.is_requested() {
                readiness.ready(RUNNING);
            }
            Ok(())
        });
        Self { host }
    }

    /// Returns the service's host, for its readiness and for adding tasks.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns once the service is ready.
    ///
    /// # Errors
    /// A task ended first.
    pub async fn ready(&self) -> Result<(), Ended> {
        tokio::select! {
            biased;
            end = self.ended() => Err(end),
            () = self.host.readiness.until_ready() => Ok(()),
        }
    }

    /// Waits until a task ends that should not have, and returns the first such end.
    pub async fn ended(&self) -> Ended {
        self.host.first_end().await
    }

    /// Stops the stages in order, within `grace` ([`Host::shut_down`]).
    pub async fn stop(self, grace: Duration) -> Shutdown {
        self.host.readiness.not_ready(RUNNING, "stopping");
        self.host.shut_down(grace).await
    }

    /// Ends the service as a crash would: no task runs any further. Returns once everything that they own is dropped.
    pub async fn kill(self) {
        self.host.kill().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.host.readiness.not_ready(RUNNING, "stopped");
        self.host.abort_all();
    }
}

#[cfg(test)]
mod tests;
