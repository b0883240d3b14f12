//! Where a service lives in a process: what it may use of it, and how it is started and ended. Signals and exit codes
//! are `run`'s.

use std::future::Future;
use std::time::Duration;

use axum::Router;

use crate::{
    Chance, Clock, Ended, Exit, Patience, Readiness, Shutdown, Stage, Standstill, Stop, Supervisor, Task, Worker,
};

/// The condition every host states itself: whether start-up is through and shutdown has not begun.
const RUNNING: &str = "running";

/// A whole service, wired and ready to go; production, the local stack and the tests start the same one.
pub trait App: Sized + Send + 'static {
    /// Routes of its own on the admin listener, beside `/livez`, `/readyz`, `/metrics` and `/log-level`. They are served before
    /// [`start`](Self::start), with the same host.
    fn routes(&self, _host: &Host) -> Router {
        Router::new()
    }

    /// Waits for what it needs, spawns its tasks and returns; the service runs on in them.
    ///
    /// # Errors
    /// What it cannot start without, other than a dependency that is worth waiting for ([`Host::wait_for`]).
    fn start(self, host: Host) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// What a service has of its process. Clones are the same host, so a task may keep one.
#[derive(Clone, Debug)]
pub struct Host {
    supervisor: Supervisor,
    clock: Clock,
    chance: Chance,
    readiness: Readiness,
    patience: Option<Duration>,
}

impl Host {
    /// A host with the system's clock and chance, and readiness of its own.
    #[expect(clippy::disallowed_methods, reason = "the clock of every service comes from here")]
    pub fn new(name: &str) -> Self {
        Self {
            supervisor: Supervisor::new(name),
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

    /// The same, whose tasks stand still when `standstill` says so.
    #[must_use]
    pub fn with_standstill(self, standstill: Standstill) -> Self {
        Self { supervisor: self.supervisor.standing_still_by(standstill), ..self }
    }

    /// The same with readiness shared with others, usually a [`Readiness::scope`].
    #[must_use]
    pub fn with_readiness(self, readiness: Readiness) -> Self {
        Self { readiness, ..self }
    }

    /// The same, which gives up on what it needs once that has failed for `patience`, if there is a limit.
    #[must_use]
    pub fn giving_up_after(self, patience: Option<Duration>) -> Self {
        Self { patience, ..self }
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// How this process tries again.
    pub fn patience(&self) -> Patience {
        Patience::new(self.clock, self.chance.clone()).giving_up_after(self.patience)
    }

    pub fn chance(&self) -> &Chance {
        &self.chance
    }

    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Runs a task that must not end before it is asked to ([`Supervisor::spawn`]).
    pub fn spawn(&self, stage: Stage, name: &str, task: impl Task) {
        self.supervisor.spawn(stage, name, task);
    }

    /// Runs a task that may end well, or be stopped alone ([`Supervisor::worker`]).
    pub fn worker(&self, stage: Stage, name: &str, task: impl Task) -> Worker {
        self.supervisor.worker(stage, name, task)
    }

    /// Runs the one thing the process is for ([`Supervisor::job`]).
    pub fn job<Fut>(&self, name: &str, job: impl FnOnce(Stop) -> Fut)
    where
        Fut: Future<Output = anyhow::Result<Exit>> + Send + 'static,
    {
        self.supervisor.job(name, job);
    }

    /// Shutdown, as seen outside of any task: the view of the first stage.
    pub fn stop(&self) -> Stop {
        self.supervisor.stop_of(Stage::Intake)
    }
}

/// A service under way. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    host: Host,
}

impl Running {
    /// Starts `app` and returns at once: start-up is itself a task, named `start`, that can fail or be stopped.
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

    /// The service's host: its readiness, and the means to add tasks to it.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Completes when the service is ready.
    ///
    /// # Errors
    /// The end that came first.
    pub async fn ready(&self) -> Result<(), Ended> {
        tokio::select! {
            biased;
            end = self.ended() => Err(end),
            () = self.host.readiness.until_ready() => Ok(()),
        }
    }

    /// The first end of a task that matters; pending while all is well.
    pub async fn ended(&self) -> Ended {
        self.host.supervisor.first_end().await
    }

    /// Stops in order, inside `grace` ([`Supervisor::stop`]).
    pub async fn stop(self, grace: Duration) -> Shutdown {
        self.host.readiness.not_ready(RUNNING, "stopping");
        self.host.supervisor.stop(grace).await
    }

    /// Ends as in a crash: no task runs another line. Returns once everything they owned is dropped.
    pub async fn kill(self) {
        self.host.supervisor.kill().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.host.readiness.not_ready(RUNNING, "stopped");
        self.host.supervisor.abort_all();
    }
}

#[cfg(test)]
mod tests;
